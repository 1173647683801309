// The papers' figures of a target that drafts for itself, from known counts.
#include "launch/session/self_draft_stats.hpp"

#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "actors/protocol/counters.hpp"
#include "launch/session/pipeline_stats.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

constexpr int kLayers = 10;

using Counts = std::array<std::uint64_t, kCounters>;

std::uint64_t& at(Counts& counts, Counter counter) {
    return counts[static_cast<std::size_t>(counter)];
}

/// 10 batches of a root and 4 candidates, 2 of them accepted: 30 tokens. A draft step runs 6 of 10
/// layers.
VerdictTally verdicts() {
    VerdictTally tally;
    for (int i = 0; i < 10; ++i) {
        msg::Verdict verdict{};
        verdict.batch_rows = 5;
        verdict.count = 3;
        tally.add(verdict);
    }
    return tally;
}

Counts counts() {
    Counts all{};
    at(all, counters::kDraftForwards) = 40;
    at(all, counters::kDraftRows) = 40;
    at(all, counters::kDraftSublayers) = 40 * 12;
    at(all, counters::kVerifySublayers) = 50 * 20 - 40 * 4;
    at(all, counters::kPrefillSublayers) = 7 * 20;
    at(all, counters::kOptimiseSublayers) = 60;
    at(all, counters::kDraftMicros) = 300'000;
    at(all, counters::kVerifyMicros) = 500'000;
    at(all, counters::kOptimiseMicros) = 10'000;
    at(all, counters::kOptimiseJobs) = 3;
    at(all, counters::kChainProposed) = 40;
    at(all, counters::kChainAccepted) = 18;
    at(all, counters::kAutoOffs) = 2;
    return all;
}

SelfDraftView view() {
    SelfDraftView made{.layers = kLayers, .head_share = 0.25, .auto_off = true};
    const auto set = [&](Gauge gauge, std::uint64_t value) {
        made.gauges[static_cast<std::size_t>(gauge)] = value;
    };
    set(gauges::kDraftPhase, 2);
    set(gauges::kDraftGain, 900);
    set(gauges::kDraftThreshold, 800'000);
    set(gauges::kMatchness, 750'000);
    set(gauges::kTrials, 34);
    set(gauges::kSkipped, 3);
    set(gauges::skipped_word(0), (1U << 2U) | (1U << 5U) | (1U << 8U));
    return made;
}

}  // namespace

TEST_CASE("M, alpha, layer-rows and shares of time are those of the counts") {
    const SelfDraftStats f = self_draft_stats(view(), verdicts(), counts(), 1.0);
    CHECK(f.steps == 40);
    CHECK(f.tokens_per_forward == doctest::Approx(3.0));
    CHECK(f.acceptance_per_step == doctest::Approx(20.0 / 40));
    CHECK(f.chain_acceptance == doctest::Approx(18.0 / 40));
    CHECK(f.drafted_rounds == doctest::Approx(1.0));
    CHECK(f.layer_rows.draft == doctest::Approx(40 * 6 / 30.0));
    CHECK(f.layer_rows.verify == doctest::Approx((50 * 10 - 40 * 2) / 30.0));
    CHECK(f.layer_rows.optimise == doctest::Approx(1.0));
    CHECK(f.layer_rows.all() == doctest::Approx((240 + 420 + 30) / 30.0));
    CHECK(f.prefill_layer_rows == doctest::Approx(70.0));
    CHECK(f.time.draft == doctest::Approx(0.3));
    CHECK(f.time.verify == doctest::Approx(0.5));
    CHECK(f.time.optimise == doctest::Approx(0.01));
}

TEST_CASE("the expected speed-up is SWIFT's formula of the M, alpha and c that are printed") {
    const SelfDraftStats f = self_draft_stats(view(), verdicts(), counts(), 1.0);
    const auto swift = [](double m, double alpha, double c) {
        return m * alpha / ((m - 1) * c + alpha);
    };
    CHECK(f.step_cost == doctest::Approx(0.6));
    CHECK(f.step_cost_with_head == doctest::Approx(0.7));
    CHECK(f.expected == doctest::Approx(swift(3.0, 0.5, 0.6)));
    CHECK(f.expected_with_head == doctest::Approx(swift(3.0, 0.5, 0.7)));
    // SWIFT's table 4, LLaMA-2-13B on CNN/DM: M 4.34, alpha 0.99, r 0.45; by equation 6 1.52 times.
    Counts all = counts();
    VerdictTally tally;
    tally.batches = tally.drafts = 1000;
    tally.emitted = 4340;
    tally.accepted = 3340;
    at(all, counters::kDraftRows) = 3374;
    at(all, counters::kDraftSublayers) = 3374 * 11;
    const SelfDraftStats paper = self_draft_stats(view(), tally, all, 1.0);
    CHECK(paper.acceptance_per_step == doctest::Approx(0.99).epsilon(0.001));
    CHECK(paper.expected == doctest::Approx(1.52).epsilon(0.001));
}

TEST_CASE("a draft of which nothing is accepted, and one that never ran, divide by nothing") {
    VerdictTally rejected;
    msg::Verdict verdict{};
    verdict.batch_rows = 5;
    verdict.count = 1;
    for (int i = 0; i < 10; ++i) rejected.add(verdict);
    const SelfDraftStats none = self_draft_stats(view(), rejected, counts(), 1.0);
    CHECK(none.tokens_per_forward == doctest::Approx(1.0));
    CHECK(none.acceptance_per_step == 0.0);
    CHECK(none.expected == doctest::Approx(1.0 / (1.0 + 4 * 0.6)));
    const SelfDraftStats idle = self_draft_stats({.layers = kLayers}, {}, {}, 0.0);
    CHECK(idle.expected == 0.0);
    CHECK(idle.layer_rows.all() == 0.0);
    CHECK(!idle.state.has_value());
    CHECK(self_draft_lines(idle, 0.0).size() == 4);
}

TEST_CASE(
    "a draft that changes its skip set shows set, trials and jobs; nothing before it has begun") {
    const DraftSkipView draft{.layers = kLayers, .gauges = view().gauges};
    const auto lines = draft_skip_lines(draft, counts());
    REQUIRE(lines.size() == 5);
    CHECK(lines[0] == std::pair<std::string, std::string>{"threshold", "0.800"});
    CHECK(lines[1].second == "3 of 20 sub-layers; matchness 0.75, 34 trials");
    CHECK(lines[2].second == "attention  .#..#.....");
    CHECK(lines[3].second == "MLP        ..#.......");
    CHECK(lines[4].second == "3 jobs");
    const nlohmann::json json = draft_skip_json(draft, counts());
    CHECK(json["optimise_jobs"] == 3);
    CHECK(json["state"]["trials"] == 34);
    CHECK(json["state"]["skipped_set"] == "attn:1,4 mlp:2");
    const DraftSkipView none{.layers = kLayers};
    CHECK(draft_skip_lines(none, counts()).empty());
    CHECK(!draft_skip_json(none, counts()).contains("state"));
}

TEST_CASE("the head's share is that of the multiply-adds of one token") {
    ModelConfig model;  // SmolLM2-135M
    model.layers = 30;
    model.dim = 576;
    model.heads = 9;
    model.kv_heads = 3;
    model.head_dim = 64;
    model.ffn_dim = 1536;
    model.vocab_size = 49152;
    CHECK(self_draft_view(model, true, 0).head_share ==
          doctest::Approx(28.31 / 134.48).epsilon(0.001));
    CHECK(self_draft_view(model, true, 0).drafted_head == 1.0);
    CHECK(self_draft_view(model, true, 16384).drafted_head == doctest::Approx(1.0 / 3.0));
    CHECK(self_draft_view(model, true, 100'000).drafted_head == 1.0);
}

TEST_CASE(
    "the table and the JSON show the skip set as a strip, only for a target that drafts for "
    "itself") {
    PipelineStats stats;
    stats.verdicts = verdicts();
    stats.counters = counts();
    stats.seconds = 1.0;
    CHECK(stats_table(stats).find("alpha") == std::string::npos);
    CHECK(!to_json(stats).contains("self_draft"));
    stats.self_draft = view();
    stats.rate = 12.0;
    stats.baseline_rate = 10.0;
    const std::string table = stats_table(stats);
    CAPTURE(table);
    CHECK(table.find("3.00 tokens per target forward, 2.00 of them accepted") != std::string::npos);
    CHECK(table.find("0.88 with c = 0.60, 0.79 with the head (c = 0.70)") != std::string::npos);
    CHECK(table.find("; measured 1.20") != std::string::npos);
    CHECK(table.find("attention  .#..#.....\n") != std::string::npos);
    CHECK(table.find("MLP        ..#.......\n") != std::string::npos);
    CHECK(table.find("turned off 2 times; gain of drafts 0.90") != std::string::npos);
    const nlohmann::json json = to_json(stats)["self_draft"];
    CHECK(json["state"]["strip"]["attention"] == ".#..#.....");
    CHECK(json["state"]["strip"]["mlp"] == "..#.......");
    CHECK(json["state"]["skipped_set"] == "attn:1,4 mlp:2");
    CHECK(json["draft_steps"] == 40);
}
