// The table at the end of a run: acceptance figures against a plain count, and the papers'
// metrics.
#include "launch/session/pipeline_stats.hpp"

#include <map>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "actors/protocol/counters.hpp"
#include "launch/config/methods.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

msg::Verdict verdict_of(std::uint32_t rows, std::uint32_t accepted) {
    msg::Verdict verdict{};
    verdict.batch_rows = rows;
    verdict.count = accepted + 1;
    return verdict;
}

}  // namespace

TEST_CASE("acceptance figures are those of a plain count, over random verdicts") {
    std::mt19937 random{5};
    VerdictTally tally;
    std::vector<int> lengths;  // accepted tokens per draft
    int emitted = 0;
    for (int i = 0; i < 500; ++i) {
        const std::uint32_t rows = 1 + random() % 9;
        const std::uint32_t accepted = random() % rows;
        tally.add(verdict_of(rows, accepted));
        emitted += static_cast<int>(accepted) + 1;
        if (rows > 1) lengths.push_back(static_cast<int>(accepted));
    }
    double sum = 0;
    std::vector<double> at(8, 0.0);
    for (const int length : lengths) {
        sum += length;
        for (std::size_t i = 0; i < at.size(); ++i) at[i] += length > static_cast<int>(i) ? 1 : 0;
    }
    const auto drafts = static_cast<double>(lengths.size());
    CHECK(tally.batches == 500);
    CHECK(tally.alone == 500 - static_cast<int>(lengths.size()));
    CHECK(tally.emitted == emitted);
    CHECK(tally.mean_acceptance_length() == doctest::Approx(1.0 + sum / drafts));
    const std::vector<double> rates = tally.rate_by_position();
    REQUIRE(rates.size() == at.size());
    for (std::size_t i = 0; i < at.size(); ++i) CHECK(rates[i] == doctest::Approx(at[i] / drafts));
}

TEST_CASE("the tallies of two answers added are that of all their verdicts") {
    VerdictTally all;
    std::array<VerdictTally, 2> answers;
    for (std::uint32_t i = 0; i < 20; ++i) {
        const msg::Verdict verdict = verdict_of(1 + i % 7, i % (1 + i % 7));
        all.add(verdict);
        answers[i % 2].add(verdict);
    }
    VerdictTally sum = answers[0];
    sum.add(answers[1]);
    CHECK(sum.batches == all.batches);
    CHECK(sum.alone == all.alone);
    CHECK(sum.drafts == all.drafts);
    CHECK(sum.candidates == all.candidates);
    CHECK(sum.accepted == all.accepted);
    CHECK(sum.emitted == all.emitted);
    CHECK(sum.accepted_at == all.accepted_at);
    CHECK(sum.by_rows == all.by_rows);
}

TEST_CASE("a draft that is always rejected has a mean acceptance length of one and no positions") {
    VerdictTally tally;
    CHECK(tally.mean_acceptance_length() == 1.0);
    for (int i = 0; i < 3; ++i) tally.add(verdict_of(5, 0));
    CHECK(tally.mean_acceptance_length() == 1.0);
    CHECK(tally.rate_by_position().empty());
}

TEST_CASE("rounds of full length fulfil the paper's equations exactly") {
    PipelineStats stats;
    stats.metrics = metrics_of(method_config("fold-lockstep").value());
    REQUIRE(stats.metrics.gamma == 8);
    REQUIRE(stats.metrics.gamma_late == 4);
    // Post-verify takes gamma rows, a repaired round gamma2 and its root, pre-verify one.
    for (int i = 0; i < 11; ++i) stats.verdicts.add(verdict_of(8, 3));
    for (int i = 0; i < 5; ++i) stats.verdicts.add(verdict_of(5, 1));
    for (int i = 0; i < 7; ++i) stats.verdicts.add(verdict_of(1, 0));
    stats.counters[static_cast<std::size_t>(counters::kOutcomeExit)] = 5;
    const FoldMetrics fold = fold_metrics(stats);
    CHECK(fold.total == 23);
    CHECK(fold.post == 11);
    CHECK(fold.early == 5);
    CHECK(fold.pre == 7);
    REQUIRE(fold.predicted_total.has_value());
    CHECK(*fold.predicted_total == doctest::Approx(23));
    CHECK(to_json(stats)["batches_by_rows"] == nlohmann::json{{"1", 7}, {"5", 5}, {"8", 11}});
    CHECK(stats_table(stats).find("23 = C_post 11 + C_early 5 + C_pre 7; 23.0 by equation 10") !=
          std::string::npos);
    // A round of one row less shows at once.
    stats.verdicts.add(verdict_of(7, 1));
    CHECK(*fold_metrics(stats).predicted_total == doctest::Approx(24.0 - 1.0 / 8));

    PipelineStats pearl;
    pearl.metrics = metrics_of(method_config("pearl-lockstep").value());
    for (int i = 0; i < 6; ++i) pearl.verdicts.add(verdict_of(4, 3));
    for (int i = 0; i < 9; ++i) pearl.verdicts.add(verdict_of(1, 0));
    CHECK(fold_metrics(pearl).early == 0);
    CHECK(*fold_metrics(pearl).predicted_total == doctest::Approx(15));
    CHECK(stats_table(pearl).find("15 = C_post 6 + C_pre 9; 15.0 by equation 4") !=
          std::string::npos);
}

TEST_CASE("what never happened is left out of the table, or said in words") {
    PipelineStats stats;
    stats.metrics = metrics_of(method_config("fold").value());
    stats.counters[static_cast<std::size_t>(counters::kOutcomeTrunk)] = 3;
    CHECK(stats_table(stats).find("exit hit rate") == std::string::npos);
    CHECK(!to_json(stats).contains("exit_hit_rate"));
    stats.counters[static_cast<std::size_t>(counters::kOutcomeNone)] = 3;
    stats.counters[static_cast<std::size_t>(counters::kOutcomeExit)] = 1;
    CHECK(stats_table(stats).find("0.25: 1 of the 4 roots off the trunk") != std::string::npos);
    CHECK(stats_table(stats).find("trunk 3, exit 1, none 3") != std::string::npos);

    PipelineStats ada;
    ada.metrics = metrics_of(method_config("adadecode").value());
    ada.counters[static_cast<std::size_t>(counters::kOutcomeNone)] = 3;
    const std::string table = stats_table(ada);
    CHECK(table.find("none: no exit was sure enough") != std::string::npos);
    CHECK(table.find("outcomes") == std::string::npos);
}

TEST_CASE("the table and the JSON say the metrics of the parts that a pipeline has, no others") {
    const auto stats_of = [](const char* method) {
        const PipelineConfig config = method_config(method).value();
        PipelineStats stats;
        stats.method = config.name;
        stats.metrics = metrics_of(config);
        stats.verdicts.add(verdict_of(5, 2));
        stats.rate = 50.0;
        stats.baseline_rate = 40.0;
        stats.processes = {{"target", 0.5, 0.25}};
        return stats;
    };
    PipelineStats pairs = stats_of("pearl");
    pairs.times_plain = {0.75, 1.5, 0.5};
    CHECK(stats_table(pairs).find("0.75 [0.50..1.50] in 3 pairs (plain: 40.0") !=
          std::string::npos);
    CHECK(to_json(pairs)["times_plain"] == doctest::Approx(0.75));
    PipelineStats ada = stats_of("adadecode");
    ada.counters[static_cast<std::size_t>(counters::kEarlyProposed)] = 2;
    ada.counters[static_cast<std::size_t>(counters::kEarlyRight)] = 1;
    const nlohmann::json json = to_json(ada);
    CHECK(json["adadecode"]["early_prediction_rate"] == doctest::Approx(2.0 / 3.0));
    CHECK(json["adadecode"]["rejection_rate"] == doctest::Approx(0.5));
    CHECK(!json.contains("fold"));
    CHECK(json["times_plain"] == doctest::Approx(1.25));
    const std::string table = stats_table(ada);
    CHECK(table.find("early predictions") != std::string::npos);
    CHECK(table.find("1.25 (plain: 40.0 tokens/s)") != std::string::npos);
    CHECK(table.find("busy  50%, waiting  25%") != std::string::npos);
    CHECK(table.find("C_total") == std::string::npos);
    CHECK(stats_table(stats_of("fold")).find("C_total") != std::string::npos);
    CHECK(to_json(stats_of("pearl")).contains("fold") == false);
}
