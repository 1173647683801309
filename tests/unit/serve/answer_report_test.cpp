#include "launch/api/answer_report.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;
using Micros = AnswerStats::Micros;

AnswerStats stats_of(Micros begun, Micros prefilled, Micros last) {
    AnswerStats stats;
    stats.begun = begun;
    stats.prefilled = prefilled;
    stats.first_token = prefilled;
    stats.last_token = last;
    return stats;
}

TEST_CASE("report: timings divide tokens by the time of their part") {
    AnswerReport report{{100}, 1, 1, "pearl", 4};
    AnswerStats stats = stats_of(Micros{1'000}, Micros{51'000}, Micros{151'000});
    stats.cached_tokens = 40;
    report.add_tokens(20);
    report.add(0, stats);
    const json timings = json::parse(report.timings().dump());
    CHECK(timings["cache_n"] == 40);
    CHECK(timings["prompt_n"] == 60);
    CHECK(timings["prompt_ms"] == 50.0);
    CHECK(timings["prompt_per_second"] == 1200.0);
    CHECK(timings["predicted_n"] == 20);
    CHECK(timings["predicted_ms"] == 100.0);
    CHECK(timings["predicted_per_second"] == 200.0);
    CHECK(timings["predicted_per_token_ms"] == 5.0);
}

TEST_CASE("report: an answer that never began has no rate") {
    AnswerReport report{{100}, 1, 1, "pearl", 4};
    report.add(0, AnswerStats{});
    const json timings = json::parse(report.timings().dump());
    CHECK(timings["prompt_per_second"] == 0.0);
    CHECK(timings["predicted_per_second"] == 0.0);
    CHECK(timings["predicted_per_token_ms"] == 0.0);
}

TEST_CASE("report: of two answers the slower one has the times, and the prompt counts once") {
    AnswerReport report{{10}, 2, 1, "pearl", 4};
    report.add(0, stats_of(Micros{0}, Micros{10'000}, Micros{20'000}));
    report.add(1, stats_of(Micros{0}, Micros{5'000}, Micros{45'000}));
    const json timings = json::parse(report.timings().dump());
    CHECK(timings["prompt_n"] == 10);
    CHECK(timings["prompt_ms"] == 10.0);
    CHECK(timings["predicted_ms"] == 40.0);
}

TEST_CASE("report: vLLM's histogram has the batches by their accepted candidates") {
    AnswerReport report{{10}, 1, 1, "pearl", 4};
    AnswerStats stats;
    stats.verdicts.drafts = 10;
    stats.verdicts.candidates = 40;
    stats.verdicts.accepted = 12;
    stats.verdicts.accepted_at[0] = 7;
    stats.verdicts.accepted_at[1] = 4;
    stats.verdicts.accepted_at[2] = 1;
    report.add(0, stats);
    const json spec = json::parse(report.metrics().dump())["speculative_decoding"];
    CHECK(spec["acceptance_histogram"] == json::array({3, 3, 3, 1, 0}));
    CHECK(spec["num_spec_steps"] == 10);
    CHECK(spec["num_spec_tokens"] == 4);
    CHECK(spec["num_accepted_draft_tokens"] == 12);
    CHECK(spec["num_draft_tokens"] == 40);
    CHECK(spec["mean_acceptance_length"] == 2.2);
    CHECK(spec["draft_acceptance_rate"] == 0.3);
}

TEST_CASE("report: a method without candidates has one bucket") {
    AnswerReport report{{10}, 1, 1, "autoregressive", 0};
    report.add(0, AnswerStats{});
    const json spec = json::parse(report.metrics().dump())["speculative_decoding"];
    CHECK(spec["acceptance_histogram"] == json::array({0}));
    CHECK(spec["draft_acceptance_rate"] == 0.0);
    CHECK(spec["mean_acceptance_length"] == 1.0);
}

}  // namespace
}  // namespace paceline::serve
