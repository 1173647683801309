// Projections of models that are not here: an oracle's text, drafts and exits of a given accuracy.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launch/base/shapes.hpp"
#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/oracle_backend.hpp"
#include "launch/simulate/world.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr int kVocab = 512;
constexpr double kVerify = 0.020;
constexpr double kDraftPass = 0.002;

constexpr const char* kDraft =
    "[[stage]]\nname = \"draft\"\nrole = \"draft\"\n"
    "[draft]\nsource = \"first-layers\"\nlayers = 1\n";
constexpr const char* kSegment = "[[stage]]\nname = \"target\"\nrole = \"segment\"\n";
constexpr const char* kFold =
    "[[stage]]\nname = \"front\"\nrole = \"early-verify\"\n"
    "[[stage]]\nname = \"back\"\nrole = \"final-verify\"\n";

/// The tokens that plain decoding of the oracle gives after `prompt`.
std::vector<TokenId> text_after(const std::vector<TokenId>& prompt, int count, int vocab_size) {
    std::vector<TokenId> text;
    TokenId token = prompt.back();
    auto position = static_cast<Position>(prompt.size()) - 1;
    for (int i = 0; i < count; ++i) {
        token = oracle_next(token, position++, vocab_size);
        text.push_back(token);
    }
    return text;
}

struct Projection {
    Projection() : file{open_shape("tiny").value()} {
        model.random = "tiny";
        task.request.max_tokens = 300;
        task.prompts = {{1, 2, 3}};
        task.oracle = OracleAccuracy{};
    }
    [[nodiscard]] SimulatedRun run(const std::string& stages) const {
        const auto config = parse_pipeline_config("[pipeline]\nname = \"x\"\n" + stages, "x");
        REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.error().what));
        const std::string name = cost_name(file.path(), model.dtype, 0);
        const CostTable costs =
            CostTable::of({{.stage = "verify", .fingerprint = name, .seconds = kVerify},
                           {.stage = "exit", .fingerprint = name, .seconds = 0.0},
                           {.stage = "draft", .fingerprint = name, .seconds = kDraftPass}});
        Result<SimulatedRun> made =
            simulate(file, model, {config.value()}, costs, "costs.tsv", {.hop_seconds = 0.0}, task);
        REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().what));
        return std::move(made).value();
    }

    ModelFile file;
    ModelOptions model;
    SimulateTask task;
};

}  // namespace

TEST_CASE("an oracle's first choice is right as often as it says it is sure") {
    for (const double accuracy : {0.3, 0.6, 0.8, 1.0}) {
        CAPTURE(accuracy);
        constexpr int kCases = 20'000;
        int right = 0;
        double said = 0.0;
        int among_four = 0;
        for (Position position = 0; position < kCases; ++position) {
            const TokenId token = position % kVocab;
            const TokenId next = oracle_next(token, position, kVocab);
            const OracleSaying saying = oracle_saying(token, position, kVocab, accuracy, 11);
            said += std::exp(saying.log_probs[0]);
            if (saying.tokens[0] == next) ++right;
            among_four +=
                static_cast<int>(std::count(saying.tokens.begin(), saying.tokens.end(), next));
            // Four different tokens, the likeliest first.
            CHECK(std::is_sorted(saying.log_probs.rbegin(), saying.log_probs.rend()));
        }
        CHECK(right / double{kCases} == doctest::Approx(accuracy).epsilon(0.02));
        CHECK(said / kCases == doctest::Approx(accuracy).epsilon(0.02));
        CHECK(among_four / double{kCases} ==
              doctest::Approx(accuracy + (1 - accuracy) * 0.5).epsilon(0.02));
    }
}

TEST_CASE("an overconfident oracle says too much and is right as often as before") {
    constexpr int kCases = 20'000;
    constexpr double kAccuracy = 0.36;  // below kOracleUnsure: the same everywhere
    int right = 0;
    for (Position position = 0; position < kCases; ++position) {
        const TokenId token = position % kVocab;
        const OracleSaying saying =
            oracle_saying(token, position, kVocab, kAccuracy, 11, {}, {.overconfidence = 2.0});
        // The root of 0.36; the second had 0.3 of 0.64 and has 0.3 of the 0.40 that are left.
        CHECK(std::exp(saying.log_probs[0]) == doctest::Approx(0.6).epsilon(1e-4));
        CHECK(std::exp(saying.log_probs[1]) == doctest::Approx(0.12).epsilon(1e-4));
        right += saying.tokens[0] == oracle_next(token, position, kVocab) ? 1 : 0;
    }
    CHECK(right / double{kCases} == doctest::Approx(kAccuracy).epsilon(0.03));
    const OracleSaying sure = oracle_saying(1, 2, kVocab, 1.0, 11, {}, {.overconfidence = 3.0});
    CHECK(std::exp(sure.log_probs[0]) == doctest::Approx(1.0));
}

TEST_CASE("bad phases are as long and as frequent as asked, and all backends have the same") {
    constexpr Position kCases = 200'000;
    const OracleBadPhases wanted{.share = 0.25, .length = 8.0, .accuracy = 0.5};
    // 1/8 of bad positions turn good, so 1/24 of the three times as many good ones turn bad.
    CHECK(wanted.turns_bad() == doctest::Approx(1.0 / 24.0));
    OraclePhases phases{wanted};
    int bad = 0;
    int runs = 0;
    int alike = 0;
    for (Position position = 0; position < kCases; ++position) {
        const bool now = phases.bad(position);
        const bool before = position > 0 && phases.bad(position - 1);
        bad += now ? 1 : 0;
        runs += now && !before ? 1 : 0;
        alike += now && before ? 1 : 0;
    }
    CHECK(bad / double{kCases} == doctest::Approx(0.25).epsilon(0.05));
    CHECK(bad / static_cast<double>(runs) == doctest::Approx(8.0).epsilon(0.05));
    // Independent ones would be bad twice in a row in 1/16 of the cases, these in 1/4 x 7/8.
    CHECK(alike / double{kCases} == doctest::Approx(0.25 * 7 / 8).epsilon(0.05));
    OraclePhases later{wanted};
    CHECK(later.bad(777) == phases.bad(777));
    CHECK(later.accuracy(777) == (phases.bad(777) ? 0.5 : 1.0));
}

TEST_CASE("in a bad phase an oracle is right less often and says what it said before") {
    constexpr int kCases = 20'000;
    int right = 0;
    for (Position position = 0; position < kCases; ++position) {
        const TokenId token = position % kVocab;
        const OracleSaying saying =
            oracle_saying(token, position, kVocab, 0.36, 11, {}, {.accuracy = 0.5});
        CHECK(saying.log_probs[0] == oracle_saying(token, position, kVocab, 0.36, 11).log_probs[0]);
        right += saying.tokens[0] == oracle_next(token, position, kVocab) ? 1 : 0;
    }
    CHECK(right / double{kCases} == doctest::Approx(0.18).epsilon(0.05));
}

TEST_CASE_FIXTURE(Projection, "processes that take turns lose nothing by sharing a device") {
    const std::string turns = kSegment + std::string{kDraft} +
                              "gamma = 4\npace = \"sequential\"\n[schedule]\nmode = "
                              "\"sequential\"\ndraft_wait_us = 200000\ncontroller = \"off\"\n";
    const double apart = run(turns).stats.rate;
    task.shared_devices = {{"draft", "target"}};
    CHECK(run(turns).stats.rate == doctest::Approx(apart).epsilon(0.01));
}

TEST_CASE_FIXTURE(Projection, "a draft that works ahead slows the target on a device they share") {
    const std::string ahead = kSegment + std::string{kDraft} +
                              "gamma = 6\npace = \"ahead\"\n[schedule]\ncontroller = \"off\"\n";
    const double apart = run(ahead).stats.rate;
    task.shared_devices = {{"all"}};
    const SimulatedRun shared = run(ahead);
    CHECK(shared.stats.rate < 0.9 * apart);
    CHECK(shared.answers.at(0).ids == text_after(task.prompts[0], 300, file.config().vocab_size));
}

TEST_CASE_FIXTURE(Projection, "an overconfident draft with bad phases changes no token") {
    task.oracle = OracleAccuracy{
        .draft = 0.7,
        .overconfidence = 3.0,
        .bad_phases = OracleBadPhases{.share = 0.4, .length = 20.0, .accuracy = 0.0}};
    const std::string ahead = std::string{kDraft} + "gamma = 6\npace = \"ahead\"\n";
    CHECK(run(kSegment + ahead).answers.at(0).ids ==
          text_after(task.prompts[0], 300, file.config().vocab_size));
}

TEST_CASE_FIXTURE(Projection, "every pipeline decodes the oracle's text") {
    task.request.max_tokens = 200;
    const std::string ahead = std::string{kDraft} + "gamma = 6\npace = \"ahead\"\n";
    for (const std::string& stages :
         {std::string{kSegment}, kSegment + std::string{kDraft} + "gamma = 4\n", kSegment + ahead,
          kFold + ahead +
              "width = 4\nexit_alternatives = 4\n[exit]\nhead = \"logit-lens\"\ntop = 4\n"}) {
        CAPTURE(stages);
        const SimulatedRun made = run(stages);
        CHECK(made.answers.at(0).ids == text_after(task.prompts[0], 200, file.config().vocab_size));
    }
}

TEST_CASE_FIXTURE(Projection,
                  "taking turns with an oracle's draft is as fast as the formula says") {
    for (const double right : {0.4, 0.6, 0.8}) {
        for (const int gamma : {2, 6}) {
            CAPTURE(right);
            CAPTURE(gamma);
            task.oracle->draft = right;
            task.request.max_tokens = 300;
            task.prompts.clear();
            for (TokenId i = 0; i < 12; ++i) task.prompts.push_back({i, 5});
            const SimulatedRun made =
                run(kSegment + std::string{kDraft} +
                    fmt::format("gamma = {}\npace = \"sequential\"\n[schedule]\nmode = "
                                "\"sequential\"\ndraft_wait_us = 200000\ncontroller = \"off\"\n",
                                gamma));
            const double tokens = (1 - std::pow(right, gamma + 1)) / (1 - right);
            const double round = kVerify + gamma * kDraftPass;
            CHECK(made.stats.rate == doctest::Approx(tokens / round).epsilon(0.08));
        }
    }
}

TEST_CASE_FIXTURE(Projection, "an exit that is right more often makes FOLD faster") {
    const std::string fold = kFold + std::string{kDraft} +
                             "gamma = 6\npace = \"ahead\"\nwidth = 4\nexit_alternatives = 4\n"
                             "[exit]\nhead = \"logit-lens\"\ntop = 4\n";
    task.oracle = OracleAccuracy{.draft = 0.6, .exit = 0.1};
    const double poor = run(fold).stats.rate;
    task.oracle->exit = 0.9;
    CHECK(run(fold).stats.rate > 1.1 * poor);
}
