// Vocabulary: the tokens of a model as the file states them, and which of them text may become.
//
// Immutable once read; then any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

class Vocabulary {
public:
    Vocabulary() = default;
    /// The maps point into the texts.
    Vocabulary(const Vocabulary&) = delete;
    Vocabulary& operator=(const Vocabulary&) = delete;
    ~Vocabulary() = default;

    /// A token without text is never found. Errors: BadFile: no tokens, kinds that are not as many.
    Status read(const TokenizerData& data);

    [[nodiscard]] std::size_t size() const { return texts_.size(); }
    [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }
    [[nodiscard]] const std::string& text(TokenId token) const {
        return texts_[static_cast<std::size_t>(token)];
    }
    [[nodiscard]] TokenKind kind(TokenId token) const {
        return kinds_[static_cast<std::size_t>(token)];
    }
    /// It says nothing, and text of a user must never become it.
    [[nodiscard]] bool is_control(TokenId token) const {
        return kind(token) == TokenKind::Control || kind(token) == TokenKind::Unknown;
    }
    /// It is found in the text before the text is pre-tokenized.
    [[nodiscard]] bool is_added(TokenId token) const {
        return is_control(token) || kind(token) == TokenKind::User;
    }
    /// The first token of this text, or -1.
    [[nodiscard]] TokenId id_of(std::string_view text) const;
    /// The same, but -1 where it is a control token: text must not become one by what it consists
    /// of.
    [[nodiscard]] TokenId plain_id_of(std::string_view text) const;

private:
    std::vector<std::string> texts_;
    std::vector<TokenKind> kinds_;  // as many as texts
    std::unordered_map<std::string_view, TokenId> ids_;
};

/// The error of a file that contradicts itself.
[[nodiscard]] Error bad_vocabulary(std::string what);

/// One of the file's merges, "left right": the texts, and the tokens that have them.
struct MergeEntry {
    std::string_view left, right;
    std::string_view joined = {};
    TokenId left_id = -1, right_id = -1, joined_id = -1;
    std::int32_t rank = 0;  // its place in the list
};
/// Calls `use` with each merge, best first. Errors: BadFile, naming place and text: one that is not
/// two tokens with a space between, or whose parts or whole the vocabulary lacks.
[[nodiscard]] Status for_each_merge(const TokenizerData& data,
                                    const Vocabulary& vocabulary,
                                    const std::function<void(const MergeEntry&)>& use);

}  // namespace paceline
