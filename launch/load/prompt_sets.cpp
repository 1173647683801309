#include "launch/load/prompt_sets.hpp"

#include <array>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/base/option_checks.hpp"
#include "launch/base/text_input.hpp"
#include "launch/load/json_lines.hpp"
#include "launch/load/model_use.hpp"
#include "model/tokenizer/chat_template.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

using Json = nlohmann::ordered_json;  // a template may print a message: its keys keep their order

constexpr std::array kKeys{"prompt", "messages", "turns", "question", "text"};

bool is_message(const Json& value) {
    const auto role = value.is_object() ? value.find("role") : value.end();
    return role != value.end() && role->is_string();
}

/// `messages` up to the last one that the model answers. Errors: without a place, for a list that
/// is none.
Result<std::string> conversation(const std::string& key, Json messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (is_message(messages[i])) continue;
        return Error{Errc::BadFile, fmt::format("\"{}\"[{}] is no message such as "
                                                "{{\"role\": \"user\", \"content\": \"Hello\"}}",
                                                key, i)};
    }
    while (!messages.empty() && messages.back()["role"] == "assistant")
        messages.erase(messages.size() - 1);
    if (messages.empty())
        return Error{Errc::BadFile, "all of \"" + key + "\" is the assistant's; nothing is asked"};
    return messages.dump();
}

/// Sets what is asked. Errors: without a place.
Status read_asked(const Json& object, Prompt& prompt) {
    for (const char* key : kKeys) {
        const auto found = object.find(key);
        if (found == object.end()) continue;
        const bool several = found->is_array() && !found->empty();
        const bool talk =
            std::string_view{key} == "messages" ? several : several && found->front().is_object();
        if (talk) {
            Result<std::string> messages = conversation(key, *found);
            if (!messages) return messages.error();
            prompt.messages = std::move(messages).value();
            if (const auto tools = object.find("tools"); tools != object.end() && !tools->is_null())
                prompt.tools = tools->dump();
            return {};
        }
        const Json& text = several ? found->front() : *found;
        if (!text.is_string()) continue;
        prompt.text = text.get<std::string>();
        if (!prompt.text.empty()) return {};
        break;
    }
    return Error{Errc::BadFile,
                 "no text under \"prompt\", \"turns\", \"question\" or \"text\", and no list under "
                 "\"messages\" such as [{\"role\": \"user\", \"content\": \"Hello\"}]"};
}

std::string id_of(const Json& object, std::size_t line) {
    for (const char* key : {"id", "task_id", "question_id"}) {
        const auto found = object.find(key);
        if (found == object.end()) continue;
        return found->is_string() ? found->get<std::string>() : found->dump();
    }
    return std::to_string(line);
}

Result<std::vector<TokenId>> encode_chat(const Prompt& prompt,
                                         const ChatTemplate& chat,
                                         const Tokenizer& tokenizer,
                                         const jinja::LocalTime& now) {
    if (prompt.messages.empty())
        return chat.encode(tokenizer, std::array{ChatMessage{"user", prompt.text}}, now);
    const Result<jinja::Text> text = chat.render_json(prompt.messages, prompt.tools, now);
    if (!text) return text.error();
    return encode(tokenizer, text.value());
}

}  // namespace

std::vector<Prompt> built_in_prompts() {
    static constexpr std::array<std::array<const char*, 2>, 16> kPrompts{{
        {"sky", "Why is the sky blue?"},
        {"hello", "Hello"},
        {"reverse", "Write a Python function that reverses a linked list."},
        {"sql", "Write an SQL query that counts the orders of each customer in 2023."},
        {"c-loop", "What does this C code print?\nfor (int i = 0; i < 3; ++i) printf(\"%d \", i);"},
        {"train", "A train goes 60 km in 45 minutes. How fast is it in km per hour? Explain."},
        {"apples", "Anna has 12 apples. She gives 3 to each of 2 friends. How many are left?"},
        {"primes", "List the prime numbers between 10 and 50, one per line."},
        {"summary",
         "Summarise in one sentence: The river rose for three days after the storm. On the fourth "
         "day the bridge at the mill was closed, and the villagers carried their food across the "
         "hills until the water fell."},
        {"repeat",
         "Repeat this text and replace red by green: The red house has a red door and a red roof."},
        {"json",
         "Turn this into JSON with the keys name, age and city: Maria is 31 and lives in Porto."},
        {"email", "Write a short and polite email to move a meeting from Monday to Wednesday."},
        {"story", "Tell a story about a lighthouse keeper who is afraid of the dark."},
        {"french", "Translate into French: The library opens at nine and closes at six."},
        {"unicode",
         "Was hei\xc3\x9ft \xe2\x80\x9eGr\xc3\xbc\xc3\x9f Gott\xe2\x80\x9c auf Englisch?"},
        {"steps", "Explain in five numbered steps how to plant a tree."},
    }};
    std::vector<Prompt> prompts;
    prompts.reserve(kPrompts.size());
    for (const auto& [id, text] : kPrompts) prompts.push_back({id, text});
    return prompts;
}

Result<std::vector<Prompt>> parse_prompts(std::string_view text, const std::string& name) {
    std::vector<Prompt> prompts;
    const auto add = [&prompts](const Json& value, std::size_t line) -> Status {
        if (!value.is_object()) {
            return Error{Errc::BadFile, std::string{"not a JSON object, but "} +
                                            (value.is_array() ? "a list" : value.type_name())};
        }
        Prompt prompt{.id = id_of(value, line)};
        if (Status s = read_asked(value, prompt); !s) return s;
        prompts.push_back(std::move(prompt));
        return {};
    };
    if (Status s = read_json_lines(text, name, add); !s) return s.error();
    if (prompts.empty()) return Error{Errc::BadArgument, name + ": no prompts in it"};
    return prompts;
}

Result<std::vector<Prompt>> read_prompts(const std::string& path) {
    Result<std::string> text = read_file(path, kRecordBytesMax);
    if (!text) return text.error();
    return parse_prompts(text.value(), path);
}

Result<std::vector<Prompt>> chosen_prompts(const std::string& path, int most) {
    Result<std::vector<Prompt>> prompts =
        path.empty() ? Result<std::vector<Prompt>>{built_in_prompts()} : read_prompts(path);
    if (!prompts) return prompts.error();
    const auto count = static_cast<std::size_t>(most);
    if (most > 0 && prompts.value().size() > count) prompts.value().resize(count);
    return prompts;
}

void add_prompt_set_options(
    Command& command, std::string& file, int& first, int& tokens, PromptSetRanges ranges) {
    command.add_option("--prompts", file,
                       "prompts, a JSON object per line (default: the built-in sixteen)");
    command.add_option("--first", first,
                       ranges.first_min == 0 ? "take only so many of the prompts; 0: all"
                                             : "take only so many of the prompts",
                       whole_number(ranges.first_min, ranges.first_max));
    command.add_option(
        "-n,--n-predict", tokens, "most tokens of each answer",
        explain_low(whole_number(ranges.tokens_min, ranges.tokens_max), kNoEndlessAnswer));
}

Result<std::vector<std::vector<TokenId>>> encode_prompts(const std::vector<Prompt>& prompts,
                                                         const ModelFile& file,
                                                         const Tokenizer& tokenizer) {
    std::vector<std::vector<TokenId>> encoded;
    encoded.reserve(prompts.size());
    std::optional<ChatTemplate> chat;
    if (!file.tokenizer().chat_template.empty()) {
        Result<ChatTemplate> found = chat_template_of(file);
        if (!found) return found.error();
        chat = std::move(found).value();
    }
    const jinja::LocalTime now = local_time();
    for (const Prompt& prompt : prompts) {
        const auto refused = [&](const Error& error) {
            return Error{error.code, fmt::format("{}: prompt {}: {}", file.path(),
                                                 paceline::quoted_text(prompt.id), error.what)};
        };
        if (Status s = check_place_for_tools(file); chat && !prompt.tools.empty() && !s)
            return refused(s.error());
        if (chat) {
            Result<std::vector<TokenId>> ids = encode_chat(prompt, *chat, tokenizer, now);
            if (!ids) return refused(ids.error());
            encoded.push_back(std::move(ids).value());
            continue;
        }
        if (!prompt.messages.empty()) {
            return refused({Errc::Unsupported,
                            "messages need a chat template, and there is none; give the text that "
                            "the model goes on with as \"prompt\""});
        }
        std::vector<TokenId> ids;
        if (const std::optional<TokenId> bos = tokenizer.prompt_bos()) ids.push_back(*bos);
        const std::vector<TokenId> text = tokenizer.encode(prompt.text, SpecialTokens::Parse);
        ids.insert(ids.end(), text.begin(), text.end());
        encoded.push_back(std::move(ids));
    }
    return encoded;
}

}  // namespace paceline
