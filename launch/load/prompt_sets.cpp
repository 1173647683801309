#include "launch/load/prompt_sets.hpp"

#include <array>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/base/text_input.hpp"
#include "launch/load/model_use.hpp"
#include "model/tokenizer/chat_template.hpp"

namespace paceline {
namespace {

using Json = nlohmann::json;

/// The text that is asked; nothing if the object has none.
std::optional<std::string> text_of(const Json& object) {
    for (const char* key : {"prompt", "turns", "question", "text"}) {
        const auto found = object.find(key);
        if (found == object.end()) continue;
        if (found->is_string()) return found->get<std::string>();
        if (found->is_array() && !found->empty() && found->front().is_string())
            return found->front().get<std::string>();
    }
    return {};
}

std::string id_of(const Json& object, std::size_t line) {
    for (const char* key : {"id", "task_id", "question_id"}) {
        const auto found = object.find(key);
        if (found == object.end()) continue;
        return found->is_string() ? found->get<std::string>() : found->dump();
    }
    return std::to_string(line);
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
    std::size_t line = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view content = text.substr(begin, end - begin);
        begin = end + 1;
        ++line;
        if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string where = fmt::format("{}:{}: ", name, line);
        const Json object = Json::parse(content, nullptr, false);
        if (!object.is_object()) return Error{Errc::BadFile, where + "not a JSON object"};
        std::optional<std::string> asked = text_of(object);
        if (!asked || asked->empty()) {
            return Error{Errc::BadFile, where +
                                            "no text under \"prompt\", \"turns\", "
                                            "\"question\" or \"text\""};
        }
        prompts.push_back({id_of(object, line), std::move(*asked)});
    }
    if (prompts.empty()) return Error{Errc::BadArgument, name + ": no prompts in it"};
    return prompts;
}

Result<std::vector<Prompt>> read_prompts(const std::string& path) {
    Result<std::string> text = read_file(path, kRecordBytesMax);
    if (!text) return text.error();
    return parse_prompts(text.value(), path);
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
    const std::tm now = local_time();
    for (const Prompt& prompt : prompts) {
        if (chat) {
            Result<std::vector<TokenId>> ids =
                chat->encode(tokenizer, std::array{ChatMessage{"user", prompt.text}}, now);
            if (!ids) return Error{ids.error().code, file.path() + ": " + ids.error().what};
            encoded.push_back(std::move(ids).value());
            continue;
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
