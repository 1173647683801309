#include "model/tokenizer/added_tokens.hpp"

#include "ipc/base/check.hpp"
#include "ipc/base/utf8.hpp"
#include "model/tokenizer/char_class.hpp"
#include "model/tokenizer/unicode_tables.hpp"

namespace paceline {
namespace {

bool is_space(const utf8::Step& step) {
    return (unicode::char_class(step.code) & unicode::kSpace) != 0;
}

std::size_t white_space_end(std::string_view text, std::size_t at) {
    while (at < text.size()) {
        const utf8::Step step = utf8::first(text.substr(at));
        if (!is_space(step)) break;
        at += step.bytes;
    }
    return at;
}

/// Where the white space begins that ends at `end`, not before `from`.
std::size_t white_space_begin(std::string_view text, std::size_t from, std::size_t end) {
    while (end > from) {
        std::size_t before = end - 1;
        while (before > from && (static_cast<unsigned char>(text[before]) & 0xC0U) == 0x80U)
            --before;
        if (!is_space(utf8::first(text.substr(before)))) break;
        end = before;
    }
    return end;
}

}  // namespace

void AddedTokens::add(std::string_view text, TokenId token, Strip strip) {
    PACE_CHECK(!text.empty(), "an empty token would match everywhere");
    begins_[static_cast<unsigned char>(text[0])] = true;
    std::size_t node = 0;
    for (const char byte : text) {
        const auto [child, is_new] = nodes_[node].children.emplace(byte, nodes_.size());
        node = child->second;
        if (is_new) nodes_.emplace_back();
    }
    if (nodes_[node].token != kNone) return;
    nodes_[node].token = token;
    nodes_[node].strip = strip;
}

AddedTokens::Match AddedTokens::next(std::string_view text, std::size_t from) const {
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
        const Match match = match_at(text, begin, from);
        if (match.token != kNone) return match;
    }
    return {text.size(), text.size(), kNone, text.size(), text.size()};
}

AddedTokens::Match AddedTokens::match_at(std::string_view text,
                                         std::size_t begin,
                                         std::size_t from) const {
    Match longest{begin, begin, kNone, begin, begin};
    Strip strip{false, false};
    std::size_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
        const auto child = nodes_[node].children.find(text[at]);
        if (child == nodes_[node].children.end()) break;
        node = child->second;
        if (nodes_[node].token == kNone) continue;
        longest = {begin, at + 1, nodes_[node].token, begin, at + 1};
        strip = nodes_[node].strip;
    }
    if (strip.before) longest.begin = white_space_begin(text, from, begin);
    if (strip.after) longest.end = white_space_end(text, longest.end);
    return longest;
}

}  // namespace paceline
