// Candidates drawn from a q in a running pipeline: the distribution of the answers by exact
// enumeration, and a check that the enumeration finds errors.
#include <cmath>

#include "tests/unit/actors/rejection/drawn_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr double kExact = 1e-6;  // p and q are floats
constexpr double kSeen = 0.01;   // what a wrong rule is off, at least

DrawnCounts check_distribution(const DrawnOptions& options) {
    DrawnCounts counts;
    const Distribution distribution = pipeline_distribution(options, counts);
    CHECK(distance(distribution, plain_distribution(options)) < kExact);
    CHECK(counts.draws > 0);
    MESSAGE(counts.runs, " ways, ", counts.draws, " draws, ", counts.verdicts, " verdicts");
    return counts;
}

double off(const DrawnOptions& options) {
    DrawnCounts counts;
    return distance(pipeline_distribution(options, counts), plain_distribution(options));
}

/// Proposes the token after the last one, whatever the model says.
class Successor final : public DraftSource {
public:
    explicit Successor(TokenId last) : last_{last} {}
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override { last_ = tokens.back(); }
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken&) override {
        TokenId last = path.empty() ? last_ : path.back();
        std::vector<TokenId> tokens;
        for (std::int32_t i = 0; i < std::min(gamma, 1); ++i)
            tokens.push_back(last = (last + 1) % kTinyVocab);
        return tokens;
    }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

private:
    TokenId last_;
};

/// Draws the most probable token, and says it had been drawn.
class BestChance final : public Chance {
public:
    [[nodiscard]] bool happens(double /*probability*/) override { return false; }
    [[nodiscard]] std::size_t pick(std::span<const double> weights) override {
        return static_cast<std::size_t>(std::max_element(weights.begin(), weights.end()) -
                                        weights.begin());
    }
};

DrawnOptions siblings() {
    DrawnOptions options;
    options.growth.own_alternatives = 1;
    options.growth.width = 2;
    options.growth.gamma = 1;
    options.dispatch.shape = BatchShape::Tree;
    return options;
}

DrawnOptions ahead() {
    DrawnOptions options;
    options.segments = 2;
    options.growth.pace = DraftPace::Ahead;
    options.dispatch.start = StartRule::AtOnce;
    options.dispatch.batches_in_flight_max = 2;
    return options;
}

}  // namespace

TEST_CASE("a chain drawn from q leaves the target's distribution as it is") {
    for (std::uint64_t weights = 1; weights <= 3; ++weights) {
        CAPTURE(weights);
        DrawnOptions options;
        options.target = weights;
        options.segments = 1 + static_cast<int>(weights % 2);
        check_distribution(options);
    }
}

TEST_CASE("siblings drawn without putting back leave the target's distribution as it is") {
    check_distribution(siblings());
    DrawnOptions deep = siblings();
    deep.growth.gamma = 2;
    deep.growth.draw_top = 2;
    deep.request.sampling.top_k = 3;
    check_distribution(deep);
}

TEST_CASE("EAGLE-2's tree of drawn siblings leaves the target's distribution as it is") {
    for (const std::int32_t kept : {20, 2}) {  // all of them; two of six
        CAPTURE(kept);
        DrawnOptions options = siblings();
        options.growth.own_alternatives = 0;
        options.growth.gamma = 2;
        options.growth.tree = GrowthTree::Levels;
        options.growth.tree_nodes = kept;
        options.growth.draw_top = 2;
        options.request.sampling.top_k = 3;
        check_distribution(options);
    }
}

TEST_CASE("an EAGLE draft that draws its tree leaves the target's distribution as it is") {
    for (const std::size_t room : {8U, 1U}) {  // all features come; those of accepted rows in part
        CAPTURE(room);
        for (const std::int32_t kept : {20, 2}) {
            CAPTURE(kept);
            DrawnOptions options = siblings();
            options.feature_rows = room;
            options.segments = 2;
            options.growth.own_alternatives = 0;
            options.growth.gamma = 2;
            options.growth.tree = GrowthTree::Levels;
            options.growth.tree_nodes = kept;
            options.growth.draw_top = 2;
            options.request.sampling.top_k = 2;
            options.request.max_tokens = 4;
            const DrawnCounts counts = check_distribution(options);
            CHECK(counts.features > 0);
        }
    }
}

TEST_CASE(
    "a draft that runs ahead of two verify batches leaves the target's distribution as it is") {
    const DrawnCounts counts = check_distribution(ahead());
    CHECK(counts.in_flight > 0);
}

TEST_CASE("in any order of events a draft that is waited for leaves the distribution as it is") {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        CAPTURE(seed);
        DrawnOptions options;
        options.segments = 1 + static_cast<int>(seed % 2);
        options.shuffled = seed;
        check_distribution(options);
    }
}

TEST_CASE(
    "with the counter's own chance, in any order of events, answers have the target's "
    "distribution") {
    constexpr int kRuns = 6000;
    DrawnOptions options = ahead();
    options.growth.own_alternatives = 1;
    options.growth.width = 2;
    options.dispatch.shape = BatchShape::Tree;
    options.source = [](const Request& request) -> std::unique_ptr<DraftSource> {
        return std::make_unique<Successor>(request.text.back());
    };
    options.request.sampling.top_k = 3;
    std::map<std::vector<TokenId>, int> seen;
    DrawnCounts counts;
    for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
        options.request.sampling.seed = seed;
        options.shuffled = seed;
        ++seen[DrawnScene{options, nullptr, nullptr, counts}.run()];
    }
    const Distribution distribution = plain_distribution(options);
    double chi_square = 0.0;
    for (const auto& [text, probability] : distribution) {
        const double expected = probability * kRuns;
        const double difference = (seen.contains(text) ? seen[text] : 0) - expected;
        chi_square += difference * difference / expected;
    }
    for (const auto& [text, count] : seen) CHECK(distribution.contains(text));
    const auto freedom = static_cast<double>(distribution.size() - 1);
    MESSAGE("chi-square ", chi_square, " of ", freedom, " degrees, ", counts.draws, " draws");
    CHECK(chi_square < freedom + 4.0 * std::sqrt(2.0 * freedom));
    CHECK(counts.in_flight > 0);
    CHECK(counts.draws > kRuns);
}

TEST_CASE("filters and penalties are those of the request on both sides") {
    DrawnOptions options;
    options.request.sampling = {.temperature = 0.7F, .top_k = 4, .top_p = 0.95F};
    options.request.sampling.presence_penalty = 0.5F;
    check_distribution(options);
}

TEST_CASE("a drawn token that ends a chain or an answer is verified like any other") {
    DrawnOptions options;
    options.growth.confidence_min = 0.5F;
    options.request.end_tokens = {2};
    check_distribution(options);
}

TEST_CASE("siblings without a row of their own are verified with their parent") {
    DrawnOptions options = siblings();
    options.dispatch.rows_max = 2;  // the root and one of them
    check_distribution(options);
    options = siblings();
    options.dispatch.verify_reach_min = 0.4F;  // the improbable ones get no row
    check_distribution(options);
    options = siblings();
    options.dispatch.shape = BatchShape::Chain;
    check_distribution(options);
}

TEST_CASE("deterministic candidates beside drawn ones leave the target's distribution as it is") {
    for (const bool runs_ahead : {false, true}) {
        CAPTURE(runs_ahead);
        DrawnOptions options = runs_ahead ? ahead() : siblings();
        options.dispatch.shape = BatchShape::Tree;
        options.source = [](const Request& request) -> std::unique_ptr<DraftSource> {
            return std::make_unique<Successor>(request.text.back());
        };
        check_distribution(options);
    }
}

TEST_CASE(
    "an exit's candidates, and draws below them by a second stage, leave the distribution as it "
    "is") {
    for (const bool correct : {false, true}) {
        CAPTURE(correct);
        DrawnOptions options = ahead();
        options.correct = correct;
        options.growth.exit_alternatives = 1;
        options.growth.draw_top = 2;
        options.request.sampling.top_k = 3;
        options.dispatch.shape = BatchShape::Tree;
        options.exit_at = 1;
        options.exit.sends_candidates = true;
        options.exit.top = 2;
        const DrawnCounts counts = check_distribution(options);
        CHECK((counts.draws_of_correct > 0) == correct);
    }
}

TEST_CASE(
    "a draft with the target's own distribution is never rejected, however many segments there "
    "are") {
    for (int segments = 1; segments <= 3; ++segments) {
        DrawnOptions options;
        options.segments = segments;
        options.draft = options.target;
        options.growth.draw_top = kTinyVocab;
        const DrawnCounts counts = check_distribution(options);
        CHECK(counts.verdicts == counts.runs);  // three tokens of one batch
    }
    DrawnOptions options;
    options.draft = options.target;
    options.growth.draw_top = kTinyVocab;
    options.growth.draws = false;
    DrawnCounts deterministic;
    CHECK(distance(pipeline_distribution(options, deterministic), plain_distribution(options)) <
          kExact);
    CHECK(deterministic.draws == 0);
    CHECK(deterministic.verdicts > deterministic.runs);
}

TEST_CASE("a draw may be lost, or come twice, whatever the others do") {
    for (const int times : {0, 2}) {
        CAPTURE(times);
        DrawnOptions options;
        options.filter = [=](const msg::Draw& draw) { return draw.depth == 1 ? times : 1; };
        check_distribution(options);
    }
}

TEST_CASE("the enumeration sees the best candidate of a draft verified as if it had been drawn") {
    DrawnOptions options;
    BestChance best;
    DrawnCounts counts;
    const Distribution distribution = distribution_of([&](Chance& chance) {
        return DrawnScene{options, &best, &chance, counts}.run();
    });
    CHECK(distance(distribution, plain_distribution(options)) > kSeen);
    // The same candidates count as deterministic ones where the first segment does not learn of a
    // draw.
    options.filter = [](const msg::Draw&) { return 0; };
    const Distribution deterministic = distribution_of([&](Chance& chance) {
        return DrawnScene{options, &best, &chance, counts}.run();
    });
    CHECK(distance(deterministic, plain_distribution(options)) < kExact);
}

TEST_CASE("the enumeration sees draws that are lost because of what was drawn") {
    DrawnOptions options;
    options.filter = [](const msg::Draw& draw) { return draw.tokens[0].weight > 0.3F ? 1 : 0; };
    CHECK(off(options) > kSeen);
}

TEST_CASE("the enumeration sees a q that is not the one drawn from") {
    DrawnOptions options;
    options.growth.draw_top = kTinyVocab;
    // Drawn from the target's own distribution, verified by that of the draft.
    DrawnCounts counts;
    class Flat final : public Chance {
    public:
        explicit Flat(Chance& inner) : inner_{inner} {}
        [[nodiscard]] bool happens(double probability) override {
            return inner_.happens(probability);
        }
        [[nodiscard]] std::size_t pick(std::span<const double> weights) override {
            return inner_.pick(std::vector<double>(weights.size(), 1.0));
        }

    private:
        Chance& inner_;
    };
    const Distribution distribution = distribution_of([&](Chance& chance) {
        Flat flat{chance};
        return DrawnScene{options, &flat, &chance, counts}.run();
    });
    CHECK(distance(distribution, plain_distribution(options)) > kSeen);
}

TEST_CASE("greedy requests and other rules have no draws") {
    for (const bool greedy : {true, false}) {
        DrawnOptions options;
        if (greedy) {
            options.request.sampling.temperature = 0.0F;
        } else {
            options.request.acceptance = AcceptanceRule::Coupled;
        }
        DrawnCounts counts;
        const Distribution distribution = pipeline_distribution(options, counts);
        CHECK(distribution.size() == 1);
        CHECK(counts.draws == 0);
        if (greedy) CHECK(distance(distribution, plain_distribution(options)) < kExact);
    }
}
