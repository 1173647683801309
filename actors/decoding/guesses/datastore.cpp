#include "actors/decoding/guesses/datastore.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/core.h>
#include <numeric>
#include <utility>

namespace paceline {
namespace {

constexpr std::array<char, 8> kMagic{'P', 'A', 'C', 'E', 'S', 'T', 'O', 'R'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kPlacesBetweenLooks = 64;  // at the cancel token: tens of microseconds

struct Header {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::uint32_t reserved;   // 0
    std::uint64_t tokenizer;  // tokenizer_hash()
    std::uint64_t tokens;     // how many
    std::uint64_t check;      // of all that follows
};
static_assert(sizeof(Header) == 40);

constexpr std::uint64_t kHashBegin = 0xcbf29ce484222325ULL;  // FNV-1a
constexpr std::uint64_t kHashPrime = 0x100000001b3ULL;

template <class Word>
std::uint64_t hashed(std::uint64_t hash, std::span<const Word> words) {
    for (const Word word : words) hash = (hash ^ static_cast<std::uint32_t>(word)) * kHashPrime;
    return hash;
}

std::uint64_t hashed(std::uint64_t hash, const std::string& text) {
    hash = (hash ^ text.size()) * kHashPrime;
    for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * kHashPrime;
    return hash;
}

std::uint64_t check_of(std::span<const TokenId> tokens, std::span<const std::uint32_t> suffixes) {
    return hashed(hashed(kHashBegin, tokens), suffixes);
}

/// The trie of the next tokens at places in the order of the suffixes, so that those which begin
/// alike stand together.
class Trie {
public:
    void add(std::span<const TokenId> next) {
        ++places_;
        std::size_t same = 0;
        while (same < path_.size() && same < next.size() && nodes_[path_[same]].token == next[same])
            ++same;
        path_.resize(same);
        for (std::size_t i = same; i < next.size(); ++i) {
            const std::int32_t parent = i == 0 ? -1 : static_cast<std::int32_t>(path_[i - 1]);
            path_.push_back(nodes_.size());
            nodes_.push_back({.token = next[i],
                              .parent = parent,
                              .depth = static_cast<std::int32_t>(i) + 1,
                              .count = 0,
                              .of = 0});
        }
        for (const std::size_t node : path_) ++nodes_[node].count;
    }

    /// Of equally frequent ones those closer to the place, then those of smaller tokens.
    [[nodiscard]] std::vector<StoreNode> most_frequent(std::size_t most) const {
        std::vector<std::size_t> order(nodes_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto before = [&](std::size_t a, std::size_t b) {
            const StoreNode& one = nodes_[a];
            const StoreNode& other = nodes_[b];
            if (one.count != other.count) return one.count > other.count;
            return one.depth != other.depth ? one.depth < other.depth : a < b;
        };
        const std::size_t kept = std::min(most, order.size());
        std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept),
                          order.end(), before);
        order.resize(kept);
        std::sort(order.begin(), order.end());  // a parent is older than its children
        std::vector<StoreNode> best;
        for (const std::size_t index : order) {
            StoreNode node = nodes_[index];
            node.of =
                node.parent < 0 ? places_ : nodes_[static_cast<std::size_t>(node.parent)].count;
            if (node.parent >= 0) {
                const auto above = std::lower_bound(order.begin(), order.end(),
                                                    static_cast<std::size_t>(node.parent));
                node.parent = static_cast<std::int32_t>(above - order.begin());
            }
            best.push_back(node);
        }
        return best;
    }

private:
    std::vector<StoreNode> nodes_;
    std::vector<std::size_t> path_;  // of the last place
    std::uint32_t places_ = 0;
};

}  // namespace

std::uint64_t tokenizer_hash(const TokenizerData& data) {
    std::uint64_t hash = hashed(hashed(kHashBegin, data.model), data.pre);
    for (const std::string& token : data.tokens) hash = hashed(hash, token);
    for (const std::string& merge : data.merges) hash = hashed(hash, merge);
    for (const TokenKind kind : data.kinds)
        hash = (hash ^ static_cast<std::uint64_t>(kind)) * kHashPrime;
    return hash;
}

Result<Datastore> Datastore::open(const std::string& path, const TokenizerData& tokenizer) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    const auto bad = [&](const std::string& what) {
        return Error{Errc::BadFile, path + ": " + what};
    };
    Datastore store{std::move(file).value()};
    const std::span<const std::byte> bytes = store.file_.bytes();
    Header header{};
    if (bytes.size() < sizeof header) return bad("not a datastore: too short");
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != kMagic) return bad("not a datastore");
    if (header.version != kVersion) {
        return bad(fmt::format("a datastore of version {}, this program knows {}", header.version,
                               kVersion));
    }
    if (header.reserved != 0)
        return bad(fmt::format("a damaged datastore: reserved = {}, must be 0", header.reserved));
    const std::uint64_t room = (bytes.size() - sizeof header) / (2 * sizeof(TokenId));
    if (header.tokens == 0 || header.tokens != room ||
        bytes.size() != sizeof header + room * 2 * sizeof(TokenId)) {
        return bad(fmt::format("a damaged datastore: {} bytes, said to hold {} tokens",
                               bytes.size(), header.tokens));
    }
    const auto count = static_cast<std::size_t>(header.tokens);
    const std::byte* at = bytes.data() + sizeof header;
    store.tokens_ = {reinterpret_cast<const TokenId*>(at), count};
    store.suffixes_ = {reinterpret_cast<const std::uint32_t*>(at + count * sizeof(TokenId)), count};
    if (check_of(store.tokens_, store.suffixes_) != header.check)
        return bad("a damaged datastore: its bytes are not those that were written");
    const std::uint64_t wanted = tokenizer_hash(tokenizer);
    if (header.tokenizer != wanted) {
        return bad(
            fmt::format("a datastore made with another model's tokenizer: its hash is "
                        "{:016x}, this model's {:016x}",
                        header.tokenizer, wanted));
    }
    // A file from any writer: nothing outside of it is read, and nothing but tokens is proposed.
    const auto vocabulary = static_cast<TokenId>(tokenizer.tokens.size());
    for (std::size_t i = 0; i < count; ++i) {
        if (store.suffixes_[i] >= count) {
            return bad(fmt::format("a damaged datastore: suffixes[{}] = {}, it has {} tokens", i,
                                   store.suffixes_[i], count));
        }
        if (store.tokens_[i] < kStoreSeparator || store.tokens_[i] >= vocabulary) {
            return bad(fmt::format("a damaged datastore: tokens[{}] = {}, the model has {}", i,
                                   store.tokens_[i], vocabulary));
        }
    }
    return store;
}

/// The tokens from a suffix on; none if it begins beyond the end: the file may have been changed
/// since it was checked.
std::span<const TokenId> Datastore::behind(std::size_t place) const {
    return tokens_.subspan(std::min(place, tokens_.size()));
}

/// The suffixes that begin with `pattern`.
Datastore::Places Datastore::find(std::span<const TokenId> pattern) const {
    const auto compared = [&](std::uint32_t suffix) {
        const std::span<const TokenId> from = behind(suffix);
        for (std::size_t i = 0; i < pattern.size(); ++i) {
            if (i == from.size()) return -1;
            const auto here = static_cast<std::uint32_t>(from[i]);
            const auto wanted = static_cast<std::uint32_t>(pattern[i]);
            if (here != wanted) return here < wanted ? -1 : 1;
        }
        return 0;
    };
    const auto first = std::partition_point(suffixes_.begin(), suffixes_.end(),
                                            [&](std::uint32_t s) { return compared(s) < 0; });
    const auto last = std::partition_point(first, suffixes_.end(),
                                           [&](std::uint32_t s) { return compared(s) == 0; });
    return {.first = static_cast<std::size_t>(first - suffixes_.begin()),
            .last = static_cast<std::size_t>(last - suffixes_.begin())};
}

/// Suffixes in a wrong order make find() return places where `text` does not occur: what follows
/// them is a worse candidate, and never outside of the tokens.
std::vector<StoreNode> Datastore::candidates(std::span<const TokenId> text,
                                             const StoreOptions& options,
                                             const CancelToken& cancel) const {
    const std::size_t longest = std::min(text.size(), static_cast<std::size_t>(options.max_ngram));
    for (std::size_t length = longest; length >= static_cast<std::size_t>(options.min_ngram);
         --length) {
        const Places places = find(text.last(length));
        const std::size_t all = places.last - places.first;
        const std::size_t looked = std::min(all, static_cast<std::size_t>(options.places));
        Trie trie;
        bool any = false;
        for (std::size_t i = 0; i < looked; ++i) {
            if (i % kPlacesBetweenLooks == 0 && cancel.cancelled()) return {};
            const std::size_t place = suffixes_[places.first + i * all / looked];
            std::span<const TokenId> next = behind(place + length);
            next =
                next.first(std::min(next.size(), static_cast<std::size_t>(options.continuation)));
            const auto end = std::find(next.begin(), next.end(), kStoreSeparator);
            next = next.first(static_cast<std::size_t>(end - next.begin()));
            any = any || !next.empty();
            trie.add(next);
        }
        if (any) return trie.most_frequent(static_cast<std::size_t>(options.nodes));
    }
    return {};
}

std::string datastore_bytes(std::span<const TokenId> tokens,
                            std::span<const std::uint32_t> suffixes,
                            const TokenizerData& tokenizer) {
    const Header header{.magic = kMagic,
                        .version = kVersion,
                        .reserved = 0,
                        .tokenizer = tokenizer_hash(tokenizer),
                        .tokens = tokens.size(),
                        .check = check_of(tokens, suffixes)};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
    bytes.append(reinterpret_cast<const char*>(suffixes.data()), suffixes.size_bytes());
    return bytes;
}

}  // namespace paceline
