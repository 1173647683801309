#include "model/tokenizer/vocabulary.hpp"

#include <fmt/core.h>
#include <utility>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

Error bad_merge(std::size_t rank, std::string_view merge, std::string_view why) {
    return bad_vocabulary(
        fmt::format("tokenizer.ggml.merges[{}] is {}: {}", rank, quoted_text(merge), why));
}

}  // namespace

Error bad_vocabulary(std::string what) {
    return Error{Errc::BadFile, std::move(what)};
}

Status for_each_merge(const TokenizerData& data,
                      const Vocabulary& vocabulary,
                      const std::function<void(const MergeEntry&)>& use) {
    std::string joined;
    for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
        const std::string_view text = data.merges[rank];
        const std::size_t space = text.find(' ');
        if (space == text.npos || text.find(' ', space + 1) != text.npos)
            return bad_merge(rank, text, "not two tokens with a space between");
        MergeEntry merge{.left = text.substr(0, space),
                         .right = text.substr(space + 1),
                         .rank = static_cast<std::int32_t>(rank)};
        joined.assign(merge.left).append(merge.right);
        merge.joined = joined;
        merge.left_id = vocabulary.id_of(merge.left);
        merge.right_id = vocabulary.id_of(merge.right);
        merge.joined_id = vocabulary.id_of(joined);
        if (merge.left_id < 0 || merge.right_id < 0 || merge.joined_id < 0)
            return bad_merge(rank, text, "the vocabulary lacks a part of it or the whole");
        use(merge);
    }
    return {};
}

Status Vocabulary::read(const TokenizerData& data) {
    if (data.tokens.empty())
        return bad_vocabulary("tokenizer.ggml.tokens is empty: there is no vocabulary");
    if (!data.kinds.empty() && data.kinds.size() != data.tokens.size()) {
        return bad_vocabulary(
            fmt::format("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}",
                        data.kinds.size(), data.tokens.size()));
    }
    texts_ = data.tokens;
    kinds_ = data.kinds.empty() ? std::vector(texts_.size(), TokenKind::Normal) : data.kinds;
    ids_.reserve(texts_.size());
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        if (!texts_[i].empty()) ids_.emplace(texts_[i], static_cast<TokenId>(i));
    }
    return {};
}

TokenId Vocabulary::id_of(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
}

TokenId Vocabulary::plain_id_of(std::string_view text) const {
    const TokenId token = id_of(text);
    return token >= 0 && is_control(token) ? -1 : token;
}

}  // namespace paceline
