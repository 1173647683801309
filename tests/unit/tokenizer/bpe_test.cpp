#include "model/tokenizer/bpe.hpp"

#include <map>
#include <random>
#include <utility>

#include <doctest/doctest.h>

namespace paceline {
namespace {

/// Merges over the letters a..d, at random, and the plainest way to apply them.
struct RandomBpe {
    std::array<TokenId, 256> byte_tokens{};
    std::map<std::pair<TokenId, TokenId>, std::pair<int, TokenId>> merges;

    RandomBpe(std::mt19937& random, int merge_count) {
        byte_tokens.fill(-1);
        for (TokenId i = 0; i < 4; ++i) byte_tokens[static_cast<std::size_t>('a' + i)] = i;
        TokenId next = 4;
        for (int rank = 0; rank < merge_count; ++rank) {
            std::uniform_int_distribution<TokenId> any(0, next - 1);
            const std::pair<TokenId, TokenId> pair{any(random), any(random)};
            if (merges.emplace(pair, std::pair{rank, next}).second) ++next;
        }
    }
    [[nodiscard]] Bpe make() const {
        Bpe bpe{byte_tokens, 0};  // expects none, so that the table must grow
        for (const auto& [pair, merge] : merges) {
            bpe.add_merge(pair.first, pair.second, merge.first, merge.second);
        }
        return bpe;
    }
    [[nodiscard]] std::vector<TokenId> encode(const std::string& piece) const {
        std::vector<TokenId> ids;
        for (const char c : piece) ids.push_back(byte_tokens[static_cast<unsigned char>(c)]);
        for (;;) {
            std::size_t best = ids.size();
            int best_rank = 0;
            for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
                const auto found = merges.find({ids[i], ids[i + 1]});
                if (found == merges.end()) continue;
                if (best == ids.size() || found->second.first < best_rank) {
                    best = i;
                    best_rank = found->second.first;
                }
            }
            if (best == ids.size()) return ids;
            ids[best] = merges.at({ids[best], ids[best + 1]}).second;
            ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        }
    }
};

}  // namespace

TEST_CASE("random merges give what merging the best pair again and again gives") {
    std::mt19937 random{1};
    Bpe::Scratch scratch;
    for (int round = 0; round < 300; ++round) {
        const RandomBpe slow{random, 1 + round % 40};
        const Bpe bpe = slow.make();
        std::string piece(random() % 60, ' ');
        for (char& c : piece) c = static_cast<char>('a' + random() % 4);
        std::vector<TokenId> ids;
        bpe.encode(piece, scratch, ids);
        CAPTURE(piece);
        CHECK(ids == slow.encode(piece));
    }
}

TEST_CASE("a byte that the vocabulary lacks vanishes, and its neighbours meet") {
    std::array<TokenId, 256> bytes{};
    bytes.fill(-1);
    bytes['a'] = 0;
    bytes['b'] = 1;
    Bpe bpe{bytes, 1};
    bpe.add_merge(0, 1, 0, 2);
    Bpe::Scratch scratch;
    std::vector<TokenId> ids;
    bpe.encode("a?b", scratch, ids);
    bpe.encode("??", scratch, ids);
    CHECK(ids == std::vector<TokenId>{2});
}

TEST_CASE("a piece of a million equal letters is encoded in a moment") {
    std::array<TokenId, 256> bytes{};
    bytes.fill(0);
    Bpe bpe{bytes, 20};
    for (TokenId i = 0; i < 20; ++i) bpe.add_merge(i, i, i, i + 1);
    Bpe::Scratch scratch;
    std::vector<TokenId> ids;
    bpe.encode(std::string(1 << 20, 'x'), scratch, ids);  // quadratic time would be hours
    CHECK(ids == std::vector<TokenId>{20});
}

}  // namespace paceline
