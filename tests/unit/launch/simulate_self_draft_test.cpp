// Targets that draft for themselves, in simulated time: an oracle's drafts of a given accuracy and
// reliability, against what can be computed by hand.
#include <cmath>
#include <fmt/core.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"
#include "launch/base/shapes.hpp"
#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/oracle_backend.hpp"
#include "launch/simulate/world.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr int kLayers = 30;
constexpr double kPass = 0.030;  // of all layers, for any number of rows

/// A chain of at most `gamma` candidates that ends after one that is not sure.
struct Chain {
    double right;     // the draft's accuracy
    double reliable;  // its probability tells right from wrong
    int gamma;

    [[nodiscard]] double drafted() const {
        const double sure = right * reliable + (1 - right) * (1 - reliable);
        return (1 - std::pow(sure, gamma)) / (1 - sure);
    }
    [[nodiscard]] double accepted() const {
        const double goes_on = right * reliable;
        return right * (1 - std::pow(goes_on, gamma)) / (1 - goes_on);
    }
};

/// The smallest shape with many layers; layers take the same time each, heads and messages none.
struct SelfDrafting {
    SelfDrafting() : file{open_shape("smollm2-135m").value()} {
        model.random = "smollm2-135m";
        task.request.max_tokens = 250;
        for (TokenId i = 0; i < 6; ++i) task.prompts.push_back({i, 5});
        task.oracle = OracleAccuracy{};
    }
    [[nodiscard]] Result<SimulatedRun> attempt(const std::string& self_draft) const {
        const auto config = parse_pipeline_config(
            "[pipeline]\nname = \"x\"\n[[stage]]\nname = \"target\"\nrole = \"segment\"\n"
            "[schedule]\nmode = \"at-once\"\n" +
                self_draft,
            "x");
        REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error().what));
        const std::string name = cost_name(file.path(), model.dtype, 0);
        const CostTable costs = CostTable::of(
            {{.stage = "layers", .fingerprint = name, .layers = kLayers, .seconds = kPass},
             {.stage = "head", .fingerprint = name, .seconds = 0.0}});
        return simulate(file, model, {config.value()}, costs, "costs.tsv", {.hop_seconds = 0.0},
                        task);
    }
    [[nodiscard]] SimulatedRun run(const std::string& self_draft) const {
        Result<SimulatedRun> made = attempt(self_draft);
        REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().what));
        return std::move(made).value();
    }

    /// Tokens of a verification, and accepted tokens of a draft step: the papers' M and alpha.
    [[nodiscard]] static double tokens(const SimulatedRun& run) {
        return run.stats.verdicts.mean_acceptance_length();
    }
    [[nodiscard]] static double rate(const SimulatedRun& run) {
        return static_cast<double>(run.stats.verdicts.accepted) /
               static_cast<double>(run.stats.counter(counters::kDraftRows));
    }

    ModelFile file;
    ModelOptions model;
    SimulateTask task;
};

}  // namespace

TEST_CASE("an oracle's probability tells right from wrong as often as it is reliable") {
    constexpr int kVocab = 512;
    constexpr int kCases = 20'000;
    for (const double reliable : {0.5, 0.75, 1.0}) {
        CAPTURE(reliable);
        int right = 0;
        int told = 0;
        for (Position position = 0; position < kCases; ++position) {
            const TokenId token = position % kVocab;
            const OracleSaying saying = oracle_saying(token, position, kVocab, 0.7, 11, reliable);
            const bool is_right = saying.tokens[0] == oracle_next(token, position, kVocab);
            const double said = std::exp(saying.log_probs[0]);
            const bool sure = said > 0.9;
            CHECK(said == doctest::Approx(sure ? kOracleSure : kOracleUnsure));
            right += static_cast<int>(is_right);
            told += static_cast<int>(is_right == sure);
        }
        CHECK(right / double{kCases} == doctest::Approx(0.7).epsilon(0.02));
        CHECK(told / double{kCases} == doctest::Approx(reliable).epsilon(0.02));
    }
}

TEST_CASE_FIXTURE(SelfDrafting,
                  "an early exit is as fast as the formula says, and changes no token") {
    for (const double right : {0.5, 0.8}) {
        CAPTURE(right);
        task.oracle->draft = right;
        const SimulatedRun made =
            run("[self_draft]\nsource = \"exit\"\nexit = 10\ngamma = 4\nauto_off = false\n");
        const double tokens_of_round = (1 - std::pow(right, 5)) / (1 - right);
        CHECK(tokens(made) == doctest::Approx(tokens_of_round).epsilon(0.06));
        const double round = kPass * (1.0 + 4 * 10.0 / kLayers);
        CHECK(made.stats.rate == doctest::Approx(tokens_of_round / round).epsilon(0.07));
        TokenId token = 5;
        Position position = 1;
        for (const TokenId said : made.answers.at(0).ids) {
            token = oracle_next(token, position++, file.config().vocab_size);
            CHECK(said == token);
        }
    }
}

TEST_CASE_FIXTURE(SelfDrafting,
                  "skipped sub-layers are worth what the formula of M and alpha says") {
    for (const Chain& chain : {Chain{0.99, 0.7, 25}, Chain{0.85, 0.8, 25}, Chain{0.7, 0.9, 3}}) {
        CAPTURE(chain.right);
        task.oracle->draft = chain.right;
        task.oracle->reliability = chain.reliable;
        const SimulatedRun made = run(fmt::format(
            "[self_draft]\nsource = \"skip\"\nskip = \"attn:4-15 mlp:4-15\"\ngamma = {}\n"
            "confidence_min = 0.8\nauto_off = false\n",
            chain.gamma));
        CHECK(tokens(made) == doctest::Approx(1 + chain.accepted()).epsilon(0.08));
        CHECK(rate(made) == doctest::Approx(chain.accepted() / chain.drafted()).epsilon(0.05));
        const double m = tokens(made);
        const double alpha = rate(made);
        const double c = 18.0 / kLayers;
        const double expected = m * alpha / ((m - 1) * c + alpha);  // SWIFT, equation 6
        CHECK(made.stats.rate * kPass == doctest::Approx(expected).epsilon(0.02));
    }
}

TEST_CASE_FIXTURE(SelfDrafting, "CLaSp's programme takes no more than its share of the time") {
    task.oracle->draft = 0.9;
    task.oracle->reliability = 0.9;
    const std::string fixed =
        "[self_draft]\nsource = \"skip\"\nskip_ratio = 0.5\ngamma = 8\nconfidence_min = 0.7\n"
        "auto_off = false\n";
    const double without = run(fixed + "skip = \"attn:2-15 mlp:2-15\"\n").stats.rate;
    const double with =
        run(fixed + "choose = \"programme\"\ninterval = 4\noptimise_share = 0.05\n").stats.rate;
    CHECK(with < 0.99 * without);
    CHECK(with > 0.94 * without);
}

TEST_CASE_FIXTURE(SelfDrafting, "a short list of an oracle's head is refused by name") {
    const Result<SimulatedRun> made =
        attempt("[self_draft]\nsource = \"exit\"\nexit = 10\nshort_list = 4096\n");
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().what.find("[self_draft] short_list") == 0);
}
