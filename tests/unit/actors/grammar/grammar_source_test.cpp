// GrammarSource in front of sources that propose trees and observe rows.
#include "actors/draft/grammar_source.hpp"

#include <map>
#include <random>

#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// What the source in front of it was told and asked.
struct Seen {
    std::vector<SourceNode> nodes;  // of the last tree
    std::vector<msg::OwnToken> own;
};

/// Random trees with observed nodes.
class RandomTrees final : public DraftSource {
public:
    RandomTrees(std::uint64_t seed, Seen& seen) : random_{seed}, seen_{seen} {}
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> /*tokens*/) override {}
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> /*path*/,
                                               std::int32_t /*depth*/,
                                               const CancelToken& /*cancel*/) override {
        seen_.nodes.clear();
        for (std::uint8_t i = 0; i < 40; ++i) {
            seen_.nodes.push_back({.token = static_cast<TokenId>(random_() % kFakeVocab),
                                   .parent = static_cast<std::int32_t>(random_() % (i + 1U)) - 1,
                                   .log_prob = -0.5F,
                                   .observe = static_cast<std::uint8_t>(i + 1)});
        }
        return seen_.nodes;
    }
    void observe(std::span<const msg::OwnToken> own) override {
        seen_.own.assign(own.begin(), own.end());
    }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

private:
    std::mt19937_64 random_;
    Seen& seen_;
};

/// The true continuation as a trunk, a wrong sibling in front of each of its nodes.
class TrueTree final : public DraftSource {
public:
    explicit TrueTree(std::vector<TokenId> known) : known_{std::move(known)} {}
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override { committed_ += tokens.size(); }
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t depth,
                                               const CancelToken& /*cancel*/) override {
        std::vector<SourceNode> nodes;
        if (!path.empty()) return nodes;
        std::int32_t above = -1;
        const auto end = committed_ + static_cast<std::size_t>(std::max(depth, 0));
        for (std::size_t at = committed_; at < std::min(end, known_.size()); ++at) {
            const TokenId wrong = (known_[at] + 1) % kFakeVocab;
            nodes.push_back({.token = wrong, .parent = above, .log_prob = -0.2F});
            nodes.push_back({.token = known_[at], .parent = above, .log_prob = -0.3F});
            above = static_cast<std::int32_t>(nodes.size()) - 1;
        }
        return nodes;
    }

private:
    std::vector<TokenId> known_;
    std::size_t committed_ = 0;
};

/// Of the nodes those whose whole path a fresh matcher accepts after `answer`, by their names.
std::map<std::uint8_t, std::vector<TokenId>> allowed(const Request& request,
                                                     std::vector<TokenId> answer,
                                                     std::span<const SourceNode> nodes) {
    std::map<std::uint8_t, std::vector<TokenId>> found;
    std::vector<std::vector<TokenId>> paths;
    for (const SourceNode& node : nodes) {
        std::vector<TokenId> path =
            node.parent < 0 ? std::vector<TokenId>{} : paths[static_cast<std::size_t>(node.parent)];
        path.push_back(node.token);
        std::vector<TokenId> whole = answer;
        whole.insert(whole.end(), path.begin(), path.end());
        if (is_allowed(request, whole)) found[node.observe] = path;
        paths.push_back(std::move(path));
    }
    return found;
}

/// The paths of a tree, by the names of its nodes.
std::map<std::uint8_t, std::vector<TokenId>> named(std::span<const SourceNode> nodes) {
    std::map<std::uint8_t, std::vector<TokenId>> found;
    std::vector<std::vector<TokenId>> paths;
    for (const SourceNode& node : nodes) {
        REQUIRE(node.parent < static_cast<std::int32_t>(paths.size()));
        std::vector<TokenId> path =
            node.parent < 0 ? std::vector<TokenId>{} : paths[static_cast<std::size_t>(node.parent)];
        path.push_back(node.token);
        found[node.observe] = path;
        paths.push_back(std::move(path));
    }
    return found;
}

}  // namespace

TEST_CASE("of another source's tree those nodes are left whose whole path the grammar allows") {
    const auto grammars = toy_grammars();
    const CancelToken never;
    std::size_t kept = 0;
    std::size_t dropped = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        BeginPayload request{small_request(seed)};
        make_constrained(request, seed);
        const std::vector<TokenId> plain = plain_answer(request).answer;
        Seen seen;
        GrammarSource source{*grammars, request, std::make_unique<RandomTrees>(seed, seen)};
        source.commit(request.text);
        std::vector<TokenId> answer;
        for (const TokenId token : plain) {
            if (std::find(request.end_tokens.begin(), request.end_tokens.end(), token) !=
                request.end_tokens.end())
                break;
            const std::vector<SourceNode> nodes = source.grow({}, 8, never);
            if (source.origin() == msg::Origin::Lookup) {
                const auto expected = allowed(request, answer, seen.nodes);
                CHECK(named(nodes) == expected);
                kept += nodes.size();
                dropped += seen.nodes.size() - nodes.size();
            }
            answer.push_back(token);
            source.commit(std::span{&token, 1});
        }
        source.observe(std::vector<msg::OwnToken>{{3, 4}, {5, 6}});
        REQUIRE(seen.own.size() == 2);
        CHECK(seen.own[1].token == 6);
    }
    CHECK(kept > 1000);
    CHECK(dropped > 1000);
}

TEST_CASE("with a grammar a source's tree is verified as a tree: several tokens in a batch") {
    int verdicts = 0;
    std::size_t tokens = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        make_constrained(request, seed);
        const std::vector<TokenId> known = whole_text(request, plain_answer(request));
        PipelineOptions options{
            .segments = 1 + static_cast<int>(seed % 2), .drafting = Drafting::Lookup, .seed = seed};
        options.dispatch.shape = BatchShape::Tree;
        options.sources = [known](const Request&) { return std::make_unique<TrueTree>(known); };
        verdicts += check_exact(options, std::span{&request, 1});
        tokens += known.size() - request.text.size();
    }
    CHECK(2 * static_cast<std::size_t>(verdicts) < tokens);
}

TEST_CASE("guesses under a grammar give plain decoding's text") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::vector<Request> requests;
        for (std::uint64_t i = 0; i < 1 + seed % 3; ++i) {
            requests.push_back(small_request(seed * 10 + i));
            make_constrained(requests.back(), seed + i);
            if ((seed + i) % 2 == 1) make_sampled(requests.back(), seed + i);
        }
        PipelineOptions options{.segments = 1 + static_cast<int>(seed % 3),
                                .drafting = Drafting::Guesses,
                                .seed = seed};
        options.dispatch.shape = BatchShape::Tree;
        options.dispatch.rows_max = 40;
        (void)check_exact(options, requests);
    }
}
