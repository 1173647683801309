// Fixed trees of heads that look ahead (Medusa): shape, what is asked of the heads, what is learnt.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "actors/protocol/counters.hpp"
#include "actors/segment/exit_evaluator.hpp"
#include "tests/support/pipeline/pipeline.hpp"
#include "tests/support/toy/toy_ahead_tree.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr Attempt kFirst{1};
using Ranks = std::vector<int>;

/// A set of paths of ranks that has every path's beginning, and the same as a list of nodes.
struct RandomTree {
    RandomTree(std::mt19937_64& random, int heads, int ranks) {
        std::map<Ranks, std::int16_t> places{{Ranks{}, std::int16_t{-1}}};
        for (int tries = 0; tries < 60; ++tries) {
            auto below = places.begin();
            std::advance(below, static_cast<std::ptrdiff_t>(random() % places.size()));
            Ranks path = below->first;
            const std::int16_t parent = below->second;
            if (static_cast<int>(path.size()) == heads) continue;
            path.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(ranks)));
            if (places.contains(path)) continue;
            places.emplace(path, static_cast<std::int16_t>(nodes.size()));
            nodes.push_back({parent, static_cast<std::uint8_t>(path.back())});
            paths.insert(path);
        }
    }
    std::set<Ranks> paths;
    std::vector<AheadNode> nodes;
};

/// A request, and what the heads say after its first token.
struct TreeBench {
    TreeBench(std::uint64_t seed, ExitOptions options)
        : request{small_request(seed)}, exit{backend, std::move(options)} {
        if (seed % 2 == 0) make_sampled(request, seed);
        state =
            std::make_shared<RequestState>(kOne, kFirst, BeginPayload{request}, TreeRole::Names);
        for (int k = 0; k < kFakeDim; ++k) hidden.push_back(static_cast<float>(3 + k));
        part.state = state;
        part.committed = state->text();
        part.hidden = std::span<const float>{hidden};
    }
    Request request;
    FakeBackend backend{0, 4, 64};
    ExitEvaluator exit;
    std::shared_ptr<RequestState> state;
    std::vector<float> hidden;
    AheadPart part;
};

/// All paths of ranks of these levels, by enumeration.
void enumerate(const std::vector<std::vector<Candidate>>& levels,
               const Ranks& path,
               std::set<Ranks>& all) {
    if (path.size() == levels.size()) return;
    for (int rank = 0; rank < static_cast<int>(levels[path.size()].size()); ++rank) {
        Ranks longer = path;
        longer.push_back(rank);
        all.insert(longer);
        enumerate(levels, longer, all);
    }
}

std::vector<HeadId> heads_of(int count) {
    std::vector<HeadId> ids;
    for (int id = 1; id <= count; ++id) ids.push_back(static_cast<HeadId>(id));
    return ids;
}

}  // namespace

TEST_CASE("a fixed tree has the paths of ranks that it lists and no other, by enumeration") {
    std::size_t left_out = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const int heads = 1 + static_cast<int>(seed % 5);
        const RandomTree tree{random, heads, 4};
        TreeBench bench{seed, {.ahead = heads_of(heads), .ahead_tree = tree.nodes}};
        // Every token once, so that a token says which rank of which head it is.
        TokenId next = 0;
        for (int level = 0; level < heads; ++level) {
            std::vector<Candidate> best;
            const std::size_t there = seed % 3 == 0 ? 1 + random() % 4 : 4;
            for (std::size_t i = 0; i < there; ++i, ++next)
                best.push_back({next, -static_cast<float>(next)});
            bench.part.levels.push_back(best);
        }
        std::set<Ranks> all;
        enumerate(bench.part.levels, {}, all);
        std::map<std::vector<TokenId>, float> wanted;
        for (const Ranks& path : all) {
            if (!tree.paths.contains(path)) continue;
            std::vector<TokenId> tokens;
            for (std::size_t i = 0; i < path.size(); ++i)
                tokens.push_back(bench.part.levels[i][static_cast<std::size_t>(path[i])].token);
            const Candidate& last =
                bench.part.levels[path.size() - 1][static_cast<std::size_t>(path.back())];
            wanted.emplace(std::move(tokens), last.log_prob);
        }
        left_out += tree.paths.size() - wanted.size();
        const auto proposal = bench.exit.ahead(bench.part);
        REQUIRE(proposal.has_value() == !wanted.empty());
        if (!proposal) continue;
        std::map<std::vector<TokenId>, float> got;
        std::vector<std::vector<TokenId>> paths;
        for (const msg::ProposedNode& node : std::span{proposal->nodes}.first(proposal->count)) {
            REQUIRE(node.parent < static_cast<std::int16_t>(paths.size()));
            std::vector<TokenId> path;
            if (node.parent >= 0) path = paths[static_cast<std::size_t>(node.parent)];
            path.push_back(node.token);
            CHECK(node.origin == msg::Origin::Heads);
            got.emplace(path, node.log_prob);
            paths.push_back(std::move(path));
        }
        CHECK(paths.size() == wanted.size());
        CHECK(got == wanted);
    }
    CHECK(left_out > 0);
}

TEST_CASE("each head is asked for as many tokens as the tree has places for, and no deeper") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const RandomTree tree{random, 3, 5};
        // Greedy: no filter leaves out tokens.
        TreeBench bench{2 * seed + 1, {.ahead = heads_of(5), .ahead_tree = tree.nodes}};
        bench.exit.evaluate(std::span{&bench.part, 1});
        std::vector<std::size_t> most;
        for (const Ranks& path : tree.paths) {
            most.resize(std::max(most.size(), path.size()));
            std::size_t& count = most[path.size() - 1];
            count = std::max(count, static_cast<std::size_t>(path.back()) + 1);
        }
        std::vector<std::size_t> asked;
        for (const std::vector<Candidate>& level : bench.part.levels) asked.push_back(level.size());
        CHECK(asked == most);
    }
}

TEST_CASE("fixed trees that make no sense are refused by name") {
    const auto said = [](std::vector<AheadNode> tree, int heads = 2) {
        const Status status = validate({.ahead = heads_of(heads), .ahead_tree = std::move(tree)});
        return status.ok() ? std::string{} : status.error().what;
    };
    CHECK(said({{-1, 0}, {0, 0}, {-1, 15}}).empty());
    CHECK(said({{0, 0}}) == "exit: ahead_tree[0] = parent 0, must be before it");
    CHECK(said({{-2, 0}}) == "exit: ahead_tree[0] = parent -2, must be before it");
    CHECK(said({{-1, 16}}) == "exit: ahead_tree[0] = rank 16, must be 0 .. 15");
    CHECK(said({{-1, 3}, {-1, 3}}) == "exit: ahead_tree[1] = rank 3, is there already");
    CHECK(said({{-1, 0}, {0, 0}, {1, 0}}) ==
          "exit: ahead_tree[2] = depth 3, there are 2 heads that look ahead");
    std::vector<AheadNode> large;
    for (std::int16_t i = -1; i < 63; ++i) large.push_back({i, 0});
    CHECK(said(large, 64) == "exit: ahead_tree = 64 nodes, must have at most 63");
    large.pop_back();
    CHECK(said(large, 63).empty());
}

TEST_CASE("heads that are right with a fixed tree commit several tokens a verdict") {
    std::map<bool, std::size_t> verdicts;  // right?
    for (const bool right : {false, true}) {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            CAPTURE(seed);
            Request request = small_request(seed);
            if (seed % 2 == 0) make_sampled(request, seed);
            const Oracle oracle = plain_answer(request);
            PipelineOptions options{.segments = 1 + static_cast<int>(seed % 3), .seed = seed};
            options.exit_at = options.segments;
            options.exit = {.ahead = heads_of(3), .ahead_tree = toy_ahead_tree(3, 3)};
            options.exit.always_on = true;
            options.candidate_right = right ? 1.0 : 0.0;
            options.dispatch.start = StartRule::AtOnce;
            options.dispatch.shape = BatchShape::Tree;
            options.dispatch.batches_in_flight_max = 2;
            Pipeline pipeline{options, request, oracle};
            pipeline.open_and_begin(kOne, request);
            pipeline.run_until_finished();
            const auto answer = pipeline.conductor.log.answer(kOne);
            CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
            verdicts[right] += pipeline.conductor.verdicts;
        }
    }
    CHECK(verdicts[true] < verdicts[false]);
}
