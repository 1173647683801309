#include "model/weights/gguf/gguf_piece_keys.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ipc/base/utf8.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/text_step_limits.hpp"

namespace paceline {
namespace {

constexpr const char* kRulesKey = "paceline.tokenizer.piece_rules";
constexpr const char* kStepsKey = "paceline.tokenizer.text_steps";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr const char* kPrefixKey = "tokenizer.ggml.add_space_prefix";
constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

constexpr const char* kMerges = "merges";
constexpr const char* kScores = "scores";
constexpr const char* kPrefixFirst = "prefix-first";
constexpr const char* kPrefixAlways = "prefix-always";

constexpr std::array<std::pair<const char*, bool PieceRules::*>, 5> kFlags = {{
    {"metaspace", &PieceRules::metaspace},
    {"cut-at-spaces", &PieceRules::cut_at_spaces},
    {"byte-fallback", &PieceRules::byte_fallback},
    {"fuse-unknown", &PieceRules::fuse_unknown},
    {"drops-space", &PieceRules::drops_space},
}};
constexpr std::array<std::pair<const char*, TextStep::Kind>, 4> kKinds = {{
    {"nfc", TextStep::Kind::NormalFormC},
    {"nfkc", TextStep::Kind::NormalFormKC},
    {"prepend", TextStep::Kind::Prepend},
    {"replace", TextStep::Kind::Replace},
}};

std::vector<std::string> words_of(const TokenizerData& data) {
    std::vector<std::string> words{data.merges.empty() ? kScores : kMerges};
    for (const auto& [word, flag] : kFlags) {
        if (data.pieces.*flag) words.emplace_back(word);
    }
    if (data.pieces.prefix == PieceRules::Prefix::First) words.emplace_back(kPrefixFirst);
    if (data.pieces.prefix == PieceRules::Prefix::Always) words.emplace_back(kPrefixAlways);
    return words;
}

std::vector<std::string> texts_of(const std::vector<TextStep>& steps) {
    std::vector<std::string> texts;
    for (const TextStep& step : steps) {
        const auto* kind = std::find_if(kKinds.begin(), kKinds.end(),
                                        [&](const auto& row) { return row.second == step.kind; });
        texts.insert(texts.end(), {kind->first, step.from, step.to});
    }
    return texts;
}

/// Of a vocabulary with merges. What no merge makes, and is no single character, has the lowest of
/// all.
std::vector<float> scores_by_merges(const TokenizerData& data) {
    constexpr float kNeverJoined = -1e9F;
    std::unordered_map<std::string, std::size_t> ranks;
    for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
        std::string joined = data.merges[rank];
        joined.erase(joined.find(' '), 1);
        ranks.emplace(std::move(joined), rank);
    }
    std::vector<float> scores;
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
        const std::string& text = data.tokens[i];
        const bool plain = data.kinds[i] == TokenKind::Normal || data.kinds[i] == TokenKind::User;
        const auto known = ranks.find(text);
        if (plain && known != ranks.end()) {
            scores.push_back(-static_cast<float>(known->second));
        } else {
            const bool joins = plain && !text.empty() && utf8::first(text).bytes < text.size();
            scores.push_back(joins ? kNeverJoined : 0.0F);
        }
    }
    return scores;
}

/// Empty: a score is no float32.
std::vector<float> stated_scores(const TokenizerData& data) {
    std::vector<float> scores;
    for (const double score : data.scores) {
        scores.push_back(static_cast<float>(score));
        if (static_cast<double>(scores.back()) != score) return {};
    }
    return scores;
}

bool adds_prefix(const PieceRules& rules) {
    return rules.prefix != PieceRules::Prefix::Never ||
           std::any_of(rules.steps.begin(), rules.steps.end(),
                       [](const TextStep& step) { return step.kind == TextStep::Kind::Prepend; });
}

void read_words(GgufKeys& keys, TokenizerData& data) {
    PieceRules& rules = data.pieces;
    for (const auto& [word, flag] : kFlags) rules.*flag = false;
    bool by_merges = false;
    for (const std::string_view word : keys.texts(kRulesKey)) {
        const auto* flag = std::find_if(kFlags.begin(), kFlags.end(),
                                        [&](const auto& row) { return word == row.first; });
        if (flag != kFlags.end()) {
            rules.*flag->second = true;
        } else if (word == kPrefixFirst || word == kPrefixAlways) {
            rules.prefix =
                word == kPrefixFirst ? PieceRules::Prefix::First : PieceRules::Prefix::Always;
        } else if (word == kMerges) {
            by_merges = true;
        } else if (word != kScores) {
            keys.fail(Errc::BadFile, fmt::format("{} has the word {}, which is not known",
                                                 kRulesKey, quoted_text(word)));
        }
    }
    if (by_merges && data.merges.empty())
        keys.fail(Errc::BadFile, std::string{kRulesKey} + " says merges, and there are none");
    if (!by_merges) data.merges.clear();
    if (by_merges) data.scores.clear();
}

void read_steps(GgufKeys& keys, PieceRules& rules) {
    const std::vector<std::string_view> texts = keys.texts(kStepsKey);
    if (texts.size() % 3 != 0) {
        keys.fail(Errc::BadFile, fmt::format("{} has {} entries; it must be three for each step",
                                             kStepsKey, texts.size()));
        return;
    }
    for (std::size_t i = 0; i < texts.size(); i += 3) {
        const auto* kind = std::find_if(kKinds.begin(), kKinds.end(),
                                        [&](const auto& row) { return texts[i] == row.first; });
        const bool whole = kind != kKinds.end() &&
                           (kind->second != TextStep::Kind::Replace || !texts[i + 1].empty()) &&
                           utf8::valid_prefix(texts[i + 1]) == texts[i + 1].size() &&
                           utf8::valid_prefix(texts[i + 2]) == texts[i + 2].size();
        if (!whole) {
            keys.fail(Errc::BadFile, fmt::format("{}: step {} ({}) is none that is known",
                                                 kStepsKey, i / 3, quoted_text(texts[i])));
            return;
        }
        rules.steps.push_back({kind->second, std::string{texts[i + 1]}, std::string{texts[i + 2]}});
        // Before a thousand of them are copied.
        if (const std::string excess = excess_of(rules.steps); !excess.empty()) {
            keys.fail(Errc::BadFile,
                      fmt::format("{}: a normalizer {} is not supported", kStepsKey, excess));
            return;
        }
    }
}

/// What a vocabulary of another program's file leaves to its readers.
void read_family_rules(GgufKeys& keys, TokenizerData& data) {
    // Their converters write a copy of the merges now and then; scores are what counts.
    data.merges.clear();
    // A key with an id that no token has means none, not the usual one.
    const auto absent = [&keys](const char* name) {
        return !keys.has(fmt::format("tokenizer.ggml.{}_token_id", name));
    };
    if (absent("bos") && data.tokens.size() > 1) data.bos = 1;
    if (absent("eos") && data.tokens.size() > 2) data.eos = 2;
    if (absent("unknown")) data.unknown = 0;
    const std::string space{kSpace};
    if (keys.bool_or(kPrefixKey, true)) {
        data.pieces.steps.push_back({TextStep::Kind::Prepend, "", space});
        data.pieces.drops_space = true;
    }
    data.pieces.steps.push_back({TextStep::Kind::Replace, " ", space});
    // The user's own tokens are cut out of a text that still has its spaces.
    for (std::size_t i = 0; i < data.kinds.size(); ++i) {
        if (data.kinds[i] != TokenKind::User) continue;
        std::string& text = data.tokens[i];
        for (std::size_t at = text.find(space); at != text.npos; at = text.find(space, at + 1))
            text.replace(at, space.size(), " ");
    }
}

}  // namespace

bool has_pieces(const TokenizerData& data) {
    return data.model == "llama" || data.model == "unigram";
}

Status add_piece_keys(const TokenizerData& data, GgufKeyWriter& keys) {
    const std::vector<float> scores =
        data.merges.empty() ? stated_scores(data) : scores_by_merges(data);
    if (scores.size() != data.tokens.size()) {
        return Error{Errc::Unsupported,
                     "its tokenizer (Unigram) cannot be written to a GGUF file: scores have more "
                     "digits than a float32"};
    }
    keys.add_text("tokenizer.ggml.model", data.model == "unigram" ? "t5" : "llama");
    keys.add_text("tokenizer.ggml.pre", "default");
    keys.add_f32s(kScoresKey, scores);
    keys.add_bool(kPrefixKey, adds_prefix(data.pieces));
    keys.add_texts(kRulesKey, words_of(data));
    if (!data.pieces.steps.empty()) keys.add_texts(kStepsKey, texts_of(data.pieces.steps));
    return {};
}

void read_piece_keys(GgufKeys& keys, TokenizerData& data) {
    const bool own = keys.has(kRulesKey);
    if (data.model == "t5" && own)
        data.model = "unigram";
    else if (data.model != "llama")
        return;
    data.scores = keys.floats(kScoresKey);
    if (!own) return read_family_rules(keys, data);
    read_words(keys, data);
    read_steps(keys, data.pieces);
}

}  // namespace paceline
