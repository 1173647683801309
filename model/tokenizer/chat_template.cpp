#include "model/tokenizer/chat_template.hpp"

#include <algorithm>
#include <array>

#include "model/templates/json_value.hpp"
#include "model/tokenizer/chat_messages.hpp"
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

/// "<|word|>" in `text` from `at` on; empty: none.
std::string_view next_control_text(std::string_view text, std::size_t& at) {
    while ((at = text.find("<|", at)) != text.npos) {
        const std::size_t end = text.find("|>", at + 2);
        const std::string_view word = text.substr(at, end == text.npos ? end : end + 2 - at);
        at += 2;
        if (end != text.npos && word.find_first_of(" \n", 0) == word.npos) return word;
    }
    return {};
}

/// An error may quote what a message or a template says.
Result<jinja::Text> fit_to_print(Result<jinja::Text> text) {
    if (!text) return Error{text.error().code, visible(text.error().what, kLineShownBytesMax)};
    return text;
}

}  // namespace

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local;
}

ChatTemplate::ChatTemplate(jinja::Template parsed, const TokenizerData& data)
    : template_{std::move(parsed)} {
    const std::pair<const char*, std::optional<TokenId>> named[] = {{"bos_token", data.bos},
                                                                    {"eos_token", data.eos},
                                                                    {"unk_token", data.unknown},
                                                                    {"pad_token", data.padding}};
    for (const auto& [name, token] : named) {
        if (token && *token >= 0 && static_cast<std::size_t>(*token) < data.tokens.size())
            special_.emplace_back(name, data.tokens[static_cast<std::size_t>(*token)]);
    }
}

Result<ChatTemplate> ChatTemplate::make(const TokenizerData& data, const ChatSources& sources) {
    if (data.chat_template.empty()) {
        return Error{Errc::Unsupported,
                     "there is no chat template (" + sources.place + ")" + std::string{kWithoutIt}};
    }
    const auto refused = [](const Error& error) {
        return Error{error.code, error.what + std::string{kWithoutIt}};
    };
    Result<jinja::Template> parsed = jinja::Template::parse(data.chat_template);
    if (!parsed)
        return refused({parsed.error().code, visible(parsed.error().what, kLineShownBytesMax)});
    ChatTemplate chat{std::move(parsed).value(), data};
    if (Status fits = chat.check_control_tokens(data, sources); !fits) return refused(fits.error());
    for (const auto& [name, text] : sources.more) {
        if (name == kForTools) chat.for_tools_ = jinja::Template::parse(text);
    }
    return chat;
}

/// Renders a message: what looks like a control token and is in the vocabulary must be one.
Status ChatTemplate::check_control_tokens(const TokenizerData& data,
                                          const ChatSources& sources) const {
    const Result<jinja::Text> text = render(std::array{ChatMessage{"user", "x"}}, std::tm{});
    if (!text) return text.error();
    for (std::size_t at = 0;;) {
        const std::string_view word = next_control_text(text.value().bytes(), at);
        if (word.empty()) return {};
        const auto found = std::find(data.tokens.begin(), data.tokens.end(), word);
        if (found == data.tokens.end()) continue;
        const auto token = static_cast<std::size_t>(found - data.tokens.begin());
        const TokenKind kind = token < data.kinds.size() ? data.kinds[token] : TokenKind::Normal;
        if (kind == TokenKind::Normal) {
            return Error{Errc::BadFile, "the chat template writes " + std::string{word} +
                                            ", which is no control token of " +
                                            sources.tokens_place};
        }
    }
}

Result<jinja::Text> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const std::tm& now,
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
                                              const std::tm& now) const {
    jinja::Variables variables;
    const Result<Value> list = chat_messages(variables.heap(), messages);
    if (!list) return fit_to_print(list.error());
    variables.set("messages", list.value());
    return render_with(variables, tools, now);
}

/// With the template for tools, if there are some and it has one.
Result<jinja::Text> ChatTemplate::render_with(jinja::Variables& variables,
                                              std::string_view tools,
                                              const std::tm& now) const {
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
    return fit_to_print(chosen.render(variables, now));
}

Result<std::vector<TokenId>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                  std::span<const ChatMessage> messages,
                                                  const std::tm& now) const {
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
