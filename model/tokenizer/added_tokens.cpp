#include "model/tokenizer/added_tokens.hpp"

#include "ipc/base/check.hpp"

namespace paceline {

void AddedTokens::add(std::string_view text, TokenId token) {
    PACE_CHECK(!text.empty(), "an empty token would match everywhere");
    begins_[static_cast<unsigned char>(text[0])] = true;
    std::size_t node = 0;
    for (const char byte : text) {
        const auto [child, is_new] = nodes_[node].children.emplace(byte, nodes_.size());
        node = child->second;
        if (is_new) nodes_.emplace_back();
    }
    if (nodes_[node].token == kNone) nodes_[node].token = token;
}

AddedTokens::Match AddedTokens::next(std::string_view text, std::size_t from) const {
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
        const Match match = match_at(text, begin);
        if (match.token != kNone) return match;
    }
    return {text.size(), text.size(), kNone};
}

AddedTokens::Match AddedTokens::match_at(std::string_view text, std::size_t begin) const {
    Match longest{begin, begin, kNone};
    std::size_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
        const auto child = nodes_[node].children.find(text[at]);
        if (child == nodes_[node].children.end()) break;
        node = child->second;
        if (nodes_[node].token != kNone) longest = {begin, at + 1, nodes_[node].token};
    }
    return longest;
}

}  // namespace paceline
