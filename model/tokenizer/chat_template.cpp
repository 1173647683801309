#include "model/tokenizer/chat_template.hpp"

#include <algorithm>
#include <ctime>

#include "model/templates/json_value.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

using jinja::Origin;
using jinja::Value;

constexpr std::string_view kWithoutIt = "; --raw works without";
constexpr std::string_view kForTools = "tool_use";

/// As transformers gives it to templates: role, content.
Value as_value(jinja::Variables& variables, const ChatMessage& message) {
    jinja::Dict dict;
    dict.items.emplace_back(variables.text("role", Origin::Template),
                            variables.text(message.role, Origin::User));
    dict.items.emplace_back(variables.text("content", Origin::Template),
                            variables.text(message.content, Origin::User));
    return jinja::with_known_role(variables.heap(), variables.heap().add(std::move(dict)));
}

/// Whether `text` is written as control tokens usually are: "<|word|>".
bool looks_like_control(std::string_view text) {
    return text.size() > 4 && text.starts_with("<|") && text.ends_with("|>") &&
           text.find_first_of(" \n") == text.npos;
}

/// The next "<|word|>" in `text` from `at` on that the template wrote itself; empty: none.
std::string_view next_control_text(const jinja::Text& text, std::size_t& at) {
    const std::string_view bytes = text.bytes();
    while ((at = bytes.find("<|", at)) != bytes.npos) {
        const std::size_t end = bytes.find("|>", at + 2);
        if (end == bytes.npos) break;
        const std::string_view word = bytes.substr(at, end + 2 - at);
        const std::string_view origins = std::string_view{text.origins()}.substr(at, word.size());
        at += 2;
        if (looks_like_control(word) &&
            origins.find(static_cast<char>(Origin::User)) == origins.npos)
            return word;
    }
    return {};
}

/// An error may quote what a message or a template says.
Result<jinja::Text> fit_to_print(Result<jinja::Text> text) {
    if (!text) return Error{text.error().code, visible(text.error().what, kLineShownBytesMax)};
    return text;
}

}  // namespace

jinja::LocalTime local_time() {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    jinja::LocalTime local{.calendar = {}, .microseconds = static_cast<int>(now.tv_nsec / 1000)};
    localtime_r(&now.tv_sec, &local.calendar);
    return local;
}

ChatTemplate::ChatTemplate(jinja::Template parsed,
                           const TokenizerData& data,
                           const ChatSources& sources)
    : template_{std::move(parsed)}, tokens_place_{sources.tokens_place} {
    const std::pair<const char*, std::optional<TokenId>> named[] = {{"bos_token", data.bos},
                                                                    {"eos_token", data.eos},
                                                                    {"unk_token", data.unknown},
                                                                    {"pad_token", data.padding}};
    for (const auto& [name, token] : named) {
        if (token && *token >= 0 && static_cast<std::size_t>(*token) < data.tokens.size())
            special_.emplace_back(name, data.tokens[static_cast<std::size_t>(*token)]);
    }
    for (std::size_t token = 0; token < data.tokens.size(); ++token) {
        const TokenKind kind = token < data.kinds.size() ? data.kinds[token] : TokenKind::Normal;
        if (kind == TokenKind::Normal && looks_like_control(data.tokens[token]))
            ordinary_.push_back(data.tokens[token]);
    }
}

Result<ChatTemplate> ChatTemplate::make(const TokenizerData& data, const ChatSources& sources) {
    if (data.chat_template.empty()) {
        return Error{Errc::Unsupported,
                     "there is no chat template (" + sources.place + ")" + std::string{kWithoutIt}};
    }
    Result<jinja::Template> parsed = jinja::Template::parse(data.chat_template);
    if (!parsed) {
        return Error{parsed.error().code,
                     visible(parsed.error().what, kLineShownBytesMax) + std::string{kWithoutIt}};
    }
    ChatTemplate chat{std::move(parsed).value(), data, sources};
    for (const auto& [name, text] : sources.more) {
        if (name == kForTools) chat.for_tools_ = jinja::Template::parse(text);
    }
    return chat;
}

/// What looks like a control token and is in the vocabulary must be one: else the model would read
/// it as words.
Status ChatTemplate::check_control_tokens(const jinja::Text& text) const {
    for (std::size_t at = 0; !ordinary_.empty();) {
        const std::string_view word = next_control_text(text, at);
        if (word.empty()) break;
        if (std::find(ordinary_.begin(), ordinary_.end(), word) == ordinary_.end()) continue;
        return Error{Errc::BadFile, "the chat template writes " + std::string{word} +
                                        ", which is no control token of " + tokens_place_ +
                                        std::string{kWithoutIt}};
    }
    return {};
}

Result<jinja::Text> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const jinja::LocalTime& now,
                                         std::string_view tools) const {
    jinja::Variables variables;
    jinja::List list;
    for (const ChatMessage& message : messages) list.items.push_back(as_value(variables, message));
    variables.set("messages", variables.heap().add(std::move(list)));
    return render_with(variables, tools, now);
}

void ChatTemplate::add_specials(jinja::Variables& variables) const {
    variables.set("documents", Value::none());
    variables.set("add_generation_prompt", Value::boolean(true));
    for (const auto& [name, text] : special_) variables.set_text(name, text, Origin::Template);
}

Result<jinja::Text> ChatTemplate::render_json(std::string_view messages,
                                              std::string_view tools,
                                              const jinja::LocalTime& now,
                                              std::string_view arguments,
                                              CutArguments cut) const {
    jinja::Variables variables;
    if (!arguments.empty()) {
        const Result<Value> given = jinja::json_value(variables.heap(), arguments);
        if (!given || !given.value().is(jinja::Kind::Dict)) {
            return Error{Errc::BadArgument, "the template's arguments must be a JSON object"};
        }
        for (const auto& [name, value] : given.value().dict().items)
            variables.set(std::string{name.text().bytes()}, value);
    }
    const Result<Value> list = chat_messages(variables.heap(), messages, cut);
    if (!list) return fit_to_print(list.error());
    variables.set("messages", list.value());
    return render_with(variables, tools, now);
}

/// With the template for tools, if there are some and it has one.
Result<jinja::Text> ChatTemplate::render_with(jinja::Variables& variables,
                                              std::string_view tools,
                                              const jinja::LocalTime& now) const {
    Value tool_list = Value::none();
    if (!tools.empty()) {
        const Result<Value> parsed = jinja::json_value(variables.heap(), tools);
        if (!parsed || !parsed.value().is(jinja::Kind::List)) {
            return Error{Errc::BadArgument, "tools must be a list of objects" +
                                                (parsed ? "" : ": " + parsed.error().what)};
        }
        tool_list = parsed.value();
    }
    variables.set("tools", tool_list);
    add_specials(variables);
    const bool own = for_tools_ && !tool_list.is(jinja::Kind::None);
    if (own && !*for_tools_) {
        const Error& error = for_tools_->error();
        return fit_to_print(Error{error.code, "with tools (tool_use): " + error.what});
    }
    const jinja::Template& chosen = own ? for_tools_->value() : template_;
    Result<jinja::Text> text = fit_to_print(chosen.render(variables, now));
    if (!text) return text;
    if (Status fits = check_control_tokens(text.value()); !fits) return fits.error();
    return text;
}

Result<std::vector<TokenId>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                  std::span<const ChatMessage> messages,
                                                  const jinja::LocalTime& now) const {
    const Result<jinja::Text> text = render(messages, now);
    if (!text) return text.error();
    return paceline::encode(tokenizer, text.value());
}

std::vector<TokenId> encode(const Tokenizer& tokenizer,
                            const jinja::Text& text,
                            std::optional<TokenId> after) {
    return tokenizer.encode_marked(text.bytes(), text.origins(), after);
}

}  // namespace paceline
