// Datastore: a text of other people's answers, looked up as prompt lookup looks up the text at hand
// (REST, He et al., 2023): where the longest end of a text occurs in it, what followed there are
// candidates.
//
//     file    header | tokens i32[n] | suffixes u32[n]       little-endian
//             texts are followed by kStoreSeparator; suffixes[i]: where the i-th suffix begins, in
//             the order of the tokens from there on
//
// A trie of the next tokens at all places counts how often each occurs; its most frequent nodes are
// proposed, each with its share of its parent's count as probability.
//
// The file is mapped read-only and shared by all requests of a process; bytes are checked on open:
// a datastore of another tokenizer or with a damaged byte is refused. The order of the suffixes is
// not checked, and the file may be changed while it is mapped: then candidates are bad ones, and
// still tokens of the file. Const: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

inline constexpr TokenId kStoreSeparator = -1;
inline constexpr int kStoreNgramMax = 16;
inline constexpr int kStorePlacesMax = 100'000;
inline constexpr int kStoreContinuationMax = 32;

struct StoreOptions {
    int min_ngram = 1;
    int max_ngram = kStoreNgramMax;
    int places = 5000;      // that are looked at; of more, as many at equal distances
    int continuation = 10;  // tokens that followed each place
    int nodes = 63;         // that are proposed
};

/// A node of the trie; its parent is an earlier one, or -1.
struct StoreNode {
    TokenId token = 0;
    std::int32_t parent = -1;
    std::int32_t depth = 1;  // of a token right behind the place
    std::uint32_t count = 0;
    std::uint32_t of = 0;  // its parent's count

    friend bool operator==(const StoreNode&, const StoreNode&) = default;
};

/// What two models that encode any text alike have in common.
[[nodiscard]] std::uint64_t tokenizer_hash(const TokenizerData& data);

class Datastore {
public:
    /// Errors: those of MappedFile::open(); BadFile, naming the path: not a datastore, another
    /// version, damaged, or made with another tokenizer than `tokenizer`.
    static Result<Datastore> open(const std::string& path, const TokenizerData& tokenizer);

    /// The trie's most frequent nodes behind the longest end of `text` that occurs, parents before
    /// their children. Empty: not even `min_ngram` tokens of it do.
    /// Reads up to `places` of them, each on a page of its own: work for a job. Cancelled: none.
    [[nodiscard]] std::vector<StoreNode> candidates(std::span<const TokenId> text,
                                                    const StoreOptions& options,
                                                    const CancelToken& cancel) const;

private:
    struct Places {
        std::size_t first = 0;
        std::size_t last = 0;
    };
    explicit Datastore(MappedFile file) : file_{std::move(file)} {}
    [[nodiscard]] std::span<const TokenId> behind(std::size_t place) const;
    [[nodiscard]] Places find(std::span<const TokenId> pattern) const;

    MappedFile file_;
    std::span<const TokenId> tokens_;
    std::span<const std::uint32_t> suffixes_;
};

/// The bytes of a file. `suffixes`: the order of all suffixes of `tokens`, compared as unsigned
/// numbers, a shorter one before those that begin with it.
[[nodiscard]] std::string datastore_bytes(std::span<const TokenId> tokens,
                                          std::span<const std::uint32_t> suffixes,
                                          const TokenizerData& tokenizer);

}  // namespace paceline
