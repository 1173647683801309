#include "launch/load/shared_vocabulary.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr int kDifferencesShown = 3;

TokenKind kind_of(const TokenizerData& data, std::size_t id) {
    return id < data.kinds.size() ? data.kinds[id] : TokenKind::Normal;
}

/// Whether text never becomes this token by merges. Which of the three words a file has for such a
/// token depends on who wrote it: converters call a user's token a control token if it looks like
/// one.
bool is_added(TokenKind kind) {
    return kind == TokenKind::Control || kind == TokenKind::User || kind == TokenKind::Unknown;
}

/// Ids below this may be tokens: the rest is padding.
std::size_t used_tokens(const TokenizerData& data) {
    std::size_t count = data.tokens.size();
    while (count > 0 && kind_of(data, count - 1) == TokenKind::Unused) --count;
    return count;
}

std::string text_of(const TokenizerData& data, std::size_t id) {
    if (kind_of(data, id) == TokenKind::Unused) return "unused";
    return "'" + visible(data.tokens[id]) + "'";
}

/// ", which is the target's token 5"; empty: the target does not have the text.
std::string where_else(const TokenizerData& draft, std::size_t id, const TokenizerData& target) {
    if (kind_of(draft, id) == TokenKind::Unused) return {};
    const auto found = std::find(target.tokens.begin(), target.tokens.end(), draft.tokens[id]);
    if (found == target.tokens.end()) return {};
    return fmt::format(" ({} is the target's token {})", text_of(draft, id),
                       found - target.tokens.begin());
}

std::string with_spaces(std::string text) {
    constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581
    for (std::size_t at = text.find(kSpacePiece); at != text.npos; at = text.find(kSpacePiece, at))
        text.replace(at, kSpacePiece.size(), " ");
    return text;
}

/// Of a user's token U+2581 counts as a space: the reader of SentencePiece vocabularies of GGUF
/// files makes it one, that of tokenizer.json does not.
bool same_text(const TokenizerData& a, const TokenizerData& b, std::size_t id) {
    if (a.tokens[id] == b.tokens[id]) return true;
    const bool of_user = kind_of(a, id) == TokenKind::User || kind_of(b, id) == TokenKind::User;
    return of_user && with_spaces(a.tokens[id]) == with_spaces(b.tokens[id]);
}

/// What differs at `id`; empty: nothing.
std::string difference(const TokenizerData& draft, const TokenizerData& target, std::size_t id) {
    const TokenKind mine = kind_of(draft, id);
    const TokenKind other = kind_of(target, id);
    const bool unused = mine == TokenKind::Unused;
    if (unused && other == TokenKind::Unused) return {};
    if (unused || other == TokenKind::Unused || !same_text(draft, target, id)) {
        return fmt::format("token {} is {}, the target's is {}", id, text_of(draft, id),
                           text_of(target, id));
    }
    if (is_added(mine) == is_added(other)) return {};
    return fmt::format("token {}, {}, is an {} token, the target's is an {} one", id,
                       text_of(draft, id), is_added(mine) ? "added" : "ordinary",
                       is_added(other) ? "added" : "ordinary");
}

}  // namespace

Result<int> shared_vocabulary(const ModelFile& draft, const ModelFile& target) {
    const TokenizerData& ours = draft.tokenizer();
    const TokenizerData& theirs = target.tokenizer();
    const auto refuse = [&](const std::string& what) {
        return Error{Errc::BadArgument, "draft model " + visible(draft.path()) + " does not fit " +
                                            visible(target.path()) + ": " + what};
    };
    for (const ModelFile* file : {&draft, &target}) {
        if (used_tokens(file->tokenizer()) > 0) continue;
        const std::string& why = file->tokenizer().refusal;
        return refuse(
            "the vocabulary of " + visible(file->path()) + " is not known" +
            (why.empty() ? std::string{": the file has no tokens"} : ": " + visible(why)));
    }
    const std::size_t both = std::min(used_tokens(ours), used_tokens(theirs));
    std::size_t differences = 0;
    std::string shown;
    for (std::size_t id = 0; id < both; ++id) {
        const std::string what = difference(ours, theirs, id);
        if (what.empty() || ++differences > kDifferencesShown) continue;
        shown += (shown.empty() ? "" : "; ") + what;
        if (differences == 1) shown += where_else(ours, id, theirs);
    }
    if (differences == 0) return static_cast<int>(both);
    return refuse(fmt::format("{} of {} tokens differ{}: {}", differences, both,
                              differences > kDifferencesShown ? ", first" : "", shown));
}

}  // namespace paceline
