#include "model/tokenizer/unigram.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <utility>

#include "ipc/base/utf8.hpp"
#include "model/tokenizer/character_bpe.hpp"

namespace paceline {

Unigram::Unigram(const TokenizerData& data, const Vocabulary& vocabulary)
    : bytes_{data, vocabulary}, edges_(1024) {}

Status Unigram::add_all(const TokenizerData& data, const Vocabulary& vocabulary) {
    // Real vocabularies have some 5 bytes a token that no other begins with.
    const std::size_t nodes_max = std::max<std::size_t>(65'536, 32 * data.tokens.size());
    double lowest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
        const double score = data.scores[i];
        if (!std::isfinite(score)) continue;  // only an added token
        lowest = std::min(lowest, score);
        const auto token = static_cast<TokenId>(i);
        // A control token in the text of a user is its characters.
        if (!vocabulary.is_control(token)) add(vocabulary.text(token), token, score);
        if (nodes_.size() > nodes_max)
            return bad_vocabulary(
                fmt::format("tokenizer.json: model.vocab has more than {} different beginnings of "
                            "entries; {} tokens may have no more",
                            nodes_max, data.tokens.size()));
    }
    unknown_score_ = lowest - kUnknownPenalty;
    return {};
}

Result<Unigram> Unigram::make(const TokenizerData& data, const Vocabulary& vocabulary) {
    if (!data.unknown)
        return bad_vocabulary(
            "a Unigram vocabulary has no unknown token (model.unk_id of tokenizer.json)");
    if (data.scores.size() != data.tokens.size())
        return bad_vocabulary(fmt::format("a Unigram vocabulary of {} tokens has {} scores",
                                          data.tokens.size(), data.scores.size()));
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
        if (data.tokens[i].size() > kPieceBytesMax && std::isfinite(data.scores[i]))
            return bad_vocabulary(
                fmt::format("tokenizer.json: model.vocab[{}] has {} bytes; the limit is {}", i,
                            data.tokens[i].size(), kPieceBytesMax));
    }
    Unigram unigram{data, vocabulary};
    if (Status added = unigram.add_all(data, vocabulary); !added) return added.error();
    return unigram;
}

std::size_t Unigram::slot_of(std::uint64_t key) const {
    const std::size_t mask = edges_.size() - 1;
    std::size_t slot = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15) >> 32) & mask;
    while (edges_[slot].key != key && edges_[slot].key != kNoEdge) slot = (slot + 1) & mask;
    return slot;
}

void Unigram::add(std::string_view text, TokenId token, double score) {
    if (text.empty()) return;
    std::uint32_t node = 0;
    for (const char byte : text) {
        if (2 * (edge_count_ + 1) > edges_.size()) {
            const std::vector<Edge> old =
                std::exchange(edges_, std::vector<Edge>(2 * edges_.size()));
            for (const Edge& edge : old) {
                if (edge.key != kNoEdge) edges_[slot_of(edge.key)] = edge;
            }
        }
        const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
        Edge& edge = edges_[slot_of(key)];
        if (edge.key == kNoEdge) {
            edge = {key, static_cast<std::uint32_t>(nodes_.size())};
            nodes_.emplace_back();
            ++edge_count_;
        }
        node = edge.child;
    }
    if (nodes_[node].token < 0) nodes_[node] = {token, score};
}

/// Tries every piece that begins at `at`.
void Unigram::reach(std::vector<Step>& steps, std::string_view piece, std::size_t at) const {
    const double sum = steps[at].sum;
    const auto offer = [&](std::size_t end, double score, TokenId token) {
        Step& step = steps[end];
        if (step.begin == kNoStep || sum + score > step.sum) step = {sum + score, at, token};
    };
    const std::size_t next = at + utf8::first(piece.substr(at)).bytes;
    bool knows_character = false;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < piece.size();) {
        const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(piece[end]);
        const Edge& edge = edges_[slot_of(key)];
        if (edge.key == kNoEdge) break;
        node = edge.child;
        ++end;
        if (nodes_[node].token < 0) continue;
        offer(end, nodes_[node].score, nodes_[node].token);
        knows_character = knows_character || end == next;
    }
    if (!knows_character) offer(next, unknown_score_, -1);
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out) const {
    std::vector<Step> steps(piece.size() + 1);
    for (std::size_t at = 0; at < piece.size(); at += utf8::first(piece.substr(at)).bytes)
        reach(steps, piece, at);
    std::vector<std::size_t> ends;
    for (std::size_t end = piece.size(); end > 0; end = steps[end].begin) ends.push_back(end);
    for (std::size_t i = ends.size(); i > 0;) {
        const Step& step = steps[ends[--i]];
        if (step.token >= 0) {
            out.push_back(step.token);
            continue;
        }
        // Unknown characters side by side are one text: its bytes if there are all, else one token.
        while (i > 0 && steps[ends[i - 1]].token < 0) --i;
        ByteTokens::Pending pending;
        bytes_.append(piece.substr(step.begin, ends[i] - step.begin), pending, out);
        bytes_.flush(pending, out);
    }
}

}  // namespace paceline
