// Datastore against a reference: a linear scan of the text, and a map of paths with their counts.
#include "actors/decoding/guesses/datastore.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "actors/draft/datastore_source.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/unit/actors/sources/toy_text.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using paceline::test::TestFolder;
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

TokenizerData toy_tokenizer(int tokens) {
    TokenizerData data;
    data.model = "gpt2";
    for (int i = 0; i < tokens; ++i) data.tokens.push_back("t" + std::to_string(i));
    return data;
}

std::vector<std::uint32_t> sorted_suffixes(const Tokens& tokens) {
    std::vector<std::uint32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto as_unsigned = [](TokenId a, TokenId b) {
        return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);
    };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::lexicographical_compare(tokens.begin() + a, tokens.end(), tokens.begin() + b,
                                            tokens.end(), as_unsigned);
    });
    return order;
}

/// All places by a scan; of each the next tokens; the counts of all their beginnings.
std::vector<std::pair<Tokens, std::pair<std::uint32_t, std::uint32_t>>> scanned(
    const Tokens& tokens, const Tokens& text, const StoreOptions& options) {
    for (int length = std::min(static_cast<int>(text.size()), options.max_ngram);
         length >= options.min_ngram; --length) {
        const Tokens end{text.end() - length, text.end()};
        std::map<Tokens, std::uint32_t> counts;
        for (std::size_t at = 0; at + end.size() <= tokens.size(); ++at) {
            if (!std::equal(end.begin(), end.end(),
                            tokens.begin() + static_cast<std::ptrdiff_t>(at)))
                continue;
            ++counts[{}];
            Tokens next;
            for (std::size_t i = at + end.size(); i < tokens.size(); ++i) {
                if (tokens[i] == kStoreSeparator ||
                    next.size() == static_cast<std::size_t>(options.continuation))
                    break;
                next.push_back(tokens[i]);
                ++counts[next];
            }
        }
        if (counts.size() < 2) continue;
        std::vector<std::pair<Tokens, std::pair<std::uint32_t, std::uint32_t>>> nodes;
        for (const auto& [path, count] : counts) {
            if (path.empty()) continue;
            nodes.push_back({path, {count, counts.at({path.begin(), path.end() - 1})}});
        }
        std::stable_sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
            if (a.second.first != b.second.first) return a.second.first > b.second.first;
            return a.first.size() < b.first.size();
        });
        if (nodes.size() > static_cast<std::size_t>(options.nodes))
            nodes.resize(static_cast<std::size_t>(options.nodes));
        std::sort(nodes.begin(), nodes.end());
        return nodes;
    }
    return {};
}

}  // namespace

TEST_CASE("in 500 rounds the candidates are those of a linear scan") {
    const TokenizerData tokenizer = toy_tokenizer(8);
    std::size_t found = 0;
    std::size_t accepted = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        std::mt19937_64 random{seed};
        const ToyText target{3, 8, 2};
        Tokens stored;
        while (stored.size() < 600) {
            Tokens one{static_cast<TokenId>(random() % 8), static_cast<TokenId>(random() % 8)};
            while (one.size() < 40) one.push_back(target.next(one));
            stored.insert(stored.end(), one.begin(), one.end());
            stored.push_back(kStoreSeparator);
        }
        const TestFolder folder;
        const std::string file =
            folder.file("a.store", datastore_bytes(stored, sorted_suffixes(stored), tokenizer));
        Result<Datastore> opened = Datastore::open(file, tokenizer);
        REQUIRE(opened);
        const auto store = std::make_shared<const Datastore>(std::move(opened).value());
        const StoreOptions options{.min_ngram = 1 + static_cast<int>(seed % 2),
                                   .max_ngram = 4 + static_cast<int>(seed),
                                   .continuation = 1 + static_cast<int>(seed * 2),
                                   .nodes = 5 * static_cast<int>(seed)};
        DatastoreSource source{store, options};
        const CancelToken never;
        Tokens text{1, 2};
        source.commit(text);
        for (int round = 0; round < 100; ++round) {
            CAPTURE(seed);
            CAPTURE(round);
            const std::vector<SourceNode> nodes = source.grow({}, 32, never);
            const auto expected = scanned(stored, text, options);
            REQUIRE(nodes.size() == expected.size());
            std::vector<Tokens> paths;
            std::map<Tokens, float> weights;
            for (const SourceNode& node : nodes) {
                Tokens path =
                    node.parent < 0 ? Tokens{} : paths.at(static_cast<std::size_t>(node.parent));
                path.push_back(node.token);
                weights[path] = node.log_prob;
                paths.push_back(path);
            }
            for (const auto& [path, counts] : expected) {
                REQUIRE(weights.contains(path));
                CHECK(weights.at(path) == std::log(static_cast<float>(counts.first) /
                                                   static_cast<float>(counts.second)));
            }
            found += nodes.size();
            const ToyRound verified = toy_round(target, text, nodes);
            accepted += verified.committed.size() - 1;
            source.commit(verified.committed);
            text.insert(text.end(), verified.committed.begin(), verified.committed.end());
        }
    }
    CHECK(found > 1000);
    CHECK(accepted > 300);
}

TEST_CASE("a damaged datastore, or one of another tokenizer, is refused and says why") {
    const TokenizerData tokenizer = toy_tokenizer(8);
    const Tokens stored{1, 2, 3, 1, 2, 4, kStoreSeparator};
    const std::string whole = datastore_bytes(stored, sorted_suffixes(stored), tokenizer);
    const auto refusal = [&](const std::string& bytes, const TokenizerData& of) {
        const TestFolder folder;
        const std::string file = folder.file("a.store", bytes);
        const Result<Datastore> opened = Datastore::open(file, of);
        return opened ? std::string{"opened"} : opened.error().what;
    };
    CHECK(refusal(whole, tokenizer) == "opened");
    CHECK(contains(refusal(whole, toy_tokenizer(9)),
                   "made with another model's tokenizer: its hash"));
    for (std::size_t at = 0; at < whole.size(); ++at) {
        CAPTURE(at);
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
        CHECK(refusal(damaged, tokenizer) != "opened");
        CHECK(refusal(whole.substr(0, at), tokenizer) != "opened");
    }
    // Written by a program that does not know better: the check fits, the suffixes do not.
    CHECK(refusal(datastore_bytes(stored, std::vector<std::uint32_t>(7, 99), tokenizer), tokenizer)
              .ends_with("suffixes[0] = 99, it has 7 tokens"));
    CHECK(refusal(datastore_bytes(Tokens{1, 99}, std::vector<std::uint32_t>{0, 1}, tokenizer),
                  tokenizer)
              .ends_with("tokens[1] = 99, the model has 8"));
}

TEST_CASE("of more places than are looked at, as many at equal distances count") {
    const TokenizerData tokenizer = toy_tokenizer(8);
    Tokens stored;
    for (int i = 0; i < 100; ++i) stored.insert(stored.end(), {7, static_cast<TokenId>(i % 5)});
    const TestFolder folder;
    const std::string file =
        folder.file("a.store", datastore_bytes(stored, sorted_suffixes(stored), tokenizer));
    const Datastore store = Datastore::open(file, tokenizer).value();
    const std::vector<StoreNode> nodes =
        store.candidates(Tokens{7}, {.places = 10, .continuation = 1}, CancelToken{});
    REQUIRE(nodes.size() == 5);
    for (const StoreNode& node : nodes) {
        CHECK(node.of == 10);
        CHECK(node.count == 2);
    }
}

TEST_CASE("suffixes in a wrong order give tokens of the text, and nothing outside of it is read") {
    const TokenizerData tokenizer = toy_tokenizer(8);
    std::mt19937_64 random{5};
    for (int round = 0; round < 200; ++round) {
        CAPTURE(round);
        Tokens stored(1 + random() % 40);
        for (TokenId& token : stored)
            token = random() % 9 == 0 ? kStoreSeparator : static_cast<TokenId>(random() % 8);
        std::vector<std::uint32_t> suffixes = sorted_suffixes(stored);
        // Any places in any order, the last tokens often, so that a look behind them goes too far.
        for (std::uint32_t& suffix : suffixes) {
            const auto last = static_cast<std::uint32_t>(stored.size() - 1);
            suffix = random() % 2 == 0 ? last : static_cast<std::uint32_t>(random()) % (last + 1);
        }
        const TestFolder folder;
        const std::string file =
            folder.file("a.store", datastore_bytes(stored, suffixes, tokenizer));
        const Result<Datastore> store = Datastore::open(file, tokenizer);
        REQUIRE(store);
        for (int lookup = 0; lookup < 50; ++lookup) {
            Tokens text(random() % 16);
            for (TokenId& token : text) token = static_cast<TokenId>(random() % 8);
            for (const StoreNode& node : store.value().candidates(text, {}, CancelToken{})) {
                CHECK(node.token >= 0);
                CHECK(node.token < 8);
            }
        }
    }
}

TEST_CASE("a lookup that is cancelled has no candidates") {
    const TokenizerData tokenizer = toy_tokenizer(8);
    const Tokens stored{1, 2, 3, kStoreSeparator};
    const TestFolder folder;
    const std::string file =
        folder.file("a.store", datastore_bytes(stored, sorted_suffixes(stored), tokenizer));
    const Datastore store = Datastore::open(file, tokenizer).value();
    CancelToken cancel;
    CHECK(store.candidates(Tokens{1}, {}, cancel).size() == 2);
    cancel.cancel();
    CHECK(store.candidates(Tokens{1}, {}, cancel).empty());
}
