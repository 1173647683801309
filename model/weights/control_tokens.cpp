#include "model/weights/control_tokens.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <span>

#include "ipc/base/utf8.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

/// Of Llama 2 and Mistral; Llama 3; Qwen, Phi, SmolLM2; OpenChat, Gemma's format, SmolVLM; DeepSeek
/// Coder, CodeLlama (in three spellings) and others; DeepSeek; the harmony format. Separators of
/// infilling (<|file_sep|>, <|fim_pad|>) are none: a text goes on after them.
constexpr std::string_view kEnds[] = {
    "</s>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<eos>",
    "<end_of_utterance>",
    "<|EOT|>",
    "<EOT>",
    "_<EOT>",
    "\u2581<EOT>",
    "[EOT]",
    "[EOS]",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "<|return|>",
    "<|call|>",
};
constexpr std::string_view kBegins[] = {
    "<s>",
    "[INST]",
    "[/INST]",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|im_start|>",
    "<|im_sep|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<start_of_turn>",
    "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>",
    "<\uFF5CUser\uFF5C>",
    "<\uFF5CAssistant\uFF5C>",
};

bool is_one_of(std::span<const std::string_view> names, std::string_view text) {
    return std::find(names.begin(), names.end(), text) != names.end();
}

bool merges_make(const TokenizerData& data, std::string_view text) {
    return std::any_of(data.merges.begin(), data.merges.end(), [&](std::string_view merge) {
        const std::size_t space = merge.find(' ');
        return merge.size() == text.size() + 1 && space < merge.size() &&
               text.starts_with(merge.substr(0, space)) && text.ends_with(merge.substr(space + 1));
    });
}

bool is_text(TokenKind kind) {
    return kind == TokenKind::Normal || kind == TokenKind::User || kind == TokenKind::Unused;
}

}  // namespace

bool is_end_name(std::string_view text) {
    return is_one_of(kEnds, text);
}

bool make_control(TokenizerData& data, TokenId token) {
    const auto place = static_cast<std::size_t>(token);
    if (token < 0 || place >= data.kinds.size() || !is_text(data.kinds[place])) return false;
    const std::string& text = data.tokens[place];
    if (!text.empty() && utf8::first(text).bytes == text.size()) return false;
    data.kinds[place] = TokenKind::Control;
    return true;
}

std::vector<TokenId> make_names_control(TokenizerData& data) {
    const bool byte_level = data.model == "gpt2";
    std::vector<TokenId> changed;
    for (std::size_t i = 0; i < data.kinds.size(); ++i) {
        const std::string& text = data.tokens[i];
        if (!is_text(data.kinds[i]) || !(is_end_name(text) || is_one_of(kBegins, text))) continue;
        const bool ordinary = data.kinds[i] == TokenKind::Normal;
        if (ordinary && byte_level && merges_make(data, text)) continue;
        data.kinds[i] = TokenKind::Control;
        changed.push_back(static_cast<TokenId>(i));
    }
    return changed;
}

std::string control_remark(const TokenizerData& data, const std::vector<TokenId>& changed) {
    constexpr std::size_t kShown = 8;
    std::string list;
    for (std::size_t i = 0; i < std::min(changed.size(), kShown); ++i) {
        const std::string& text = data.tokens[static_cast<std::size_t>(changed[i])];
        list += fmt::format("{}{} {}", i == 0 ? "" : ", ", changed[i], quoted_text(text));
    }
    if (changed.size() > kShown) list += fmt::format(" and {} more", changed.size() - kShown);
    return "the file stores as text what begins or ends a text or a turn; here it is a control "
           "token: " +
           list;
}

}  // namespace paceline
