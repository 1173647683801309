// Lookahead with many requests: their windows share the rows of a batch and advance all the same.
#include <map>

#include "actors/draft/lookahead_source.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// How often the window of a request has changed, by the request's seed.
using Moves = std::map<std::uint64_t, int>;

/// Lookahead, whose window is looked at after each verdict.
class WatchedWindow final : public DraftSource {
public:
    WatchedWindow(LookaheadOptions options, int& moves) : source_{options}, moves_{moves} {}
    [[nodiscard]] DraftCost cost() const override { return source_.cost(); }
    void commit(std::span<const TokenId> tokens) override {
        const auto before = source_.window();
        source_.commit(tokens);
        if (!before.empty() && source_.window() != before) ++moves_;
    }
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t depth,
                                               const CancelToken& cancel) override {
        return source_.grow(path, depth, cancel);
    }
    void observe(std::span<const msg::OwnToken> own) override { source_.observe(own); }
    [[nodiscard]] msg::Origin origin() const override { return source_.origin(); }

private:
    LookaheadSource source_;
    int& moves_;
};

Moves moves_of(std::size_t requests, LookaheadOptions lookahead, std::int32_t gamma) {
    Moves moves;
    std::vector<Request> all;
    for (std::uint64_t i = 0; i < requests; ++i) {
        all.push_back(small_request(100 + i));
        all.back().sampling.seed = i;
        moves[i] = 0;
    }
    PipelineOptions options{.segments = 2, .drafting = Drafting::Lookup, .seed = 3};
    options.dispatch.shape = BatchShape::Tree;
    options.dispatch.rows_max = kVerifyRowsMax;
    options.kv_slots = 8192;
    options.gamma = gamma;
    options.sources = [&moves, lookahead](const Request& request) {
        return std::make_unique<WatchedWindow>(lookahead, moves.at(request.sampling.seed));
    };
    (void)check_exact(options, all);
    return moves;
}

}  // namespace

TEST_CASE("the windows of eight requests whose rows do not fit a batch all advance") {
    const LookaheadOptions options{
        .window = 4, .ngram = 4, .guesses = 2, .pool_from_prompt = false};
    REQUIRE(8 * options.rows() > static_cast<std::int32_t>(kVerifyRowsMax));
    for (const auto& [request, moved] : moves_of(8, options, options.depth())) {
        CAPTURE(request);
        CHECK(moved >= 3);
    }
}

TEST_CASE("a window is verified to its end where chains are shorter and paths must be probable") {
    // Chains of two tokens, and the usual limit of a path's probability.
    const LookaheadOptions options{
        .window = 5, .ngram = 5, .guesses = 2, .pool_from_prompt = false};
    for (const auto& [request, moved] : moves_of(1, options, 2)) CHECK(moved >= 10);
}
