#include "launch/session/pipeline_stats.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "actors/protocol/counters.hpp"
#include "launch/base/print.hpp"

namespace paceline {

namespace {

double ratio(double part, double whole) {
    return whole > 0.0 ? part / whole : 0.0;
}

double ratio(std::uint64_t part, std::uint64_t whole) {
    return ratio(static_cast<double>(part), static_cast<double>(whole));
}

struct OriginCounter {
    const char* name;
    Counter counter;
};
constexpr std::array<OriginCounter, 7> kOutcomes{{{"trunk", counters::kOutcomeTrunk},
                                                  {"runner-up", counters::kOutcomeRunnerUp},
                                                  {"exit", counters::kOutcomeExit},
                                                  {"lookup", counters::kOutcomeLookup},
                                                  {"heads", counters::kOutcomeHeads},
                                                  {"forced", counters::kOutcomeForced},
                                                  {"none", counters::kOutcomeNone}}};

/// Of the verdicts that the trunk had not foreseen, those that the exit had.
struct ExitHits {
    std::uint64_t hits = 0;
    std::uint64_t of = 0;
    [[nodiscard]] double rate() const { return ratio(hits, of); }
};

ExitHits exit_hits(const PipelineStats& f) {
    const std::uint64_t hits = f.counter(counters::kOutcomeExit);
    return {hits, hits + f.counter(counters::kOutcomeRunnerUp) + f.counter(counters::kOutcomeNone)};
}

double early_rejection_rate(const PipelineStats& f) {
    const std::uint64_t proposed = f.counter(counters::kEarlyProposed);
    const std::uint64_t right = std::min(proposed, f.counter(counters::kEarlyRight));
    return ratio(proposed - right, proposed);
}

/// Nothing where no stage prepares outcomes, or none was ever prepared.
std::string outcomes_text(const PipelineStats& f) {
    std::string text;
    bool any = false;
    for (const OriginCounter& origin : kOutcomes) {
        const auto count = static_cast<unsigned long long>(f.counter(origin.counter));
        if (count == 0) continue;
        any = any || origin.counter != counters::kOutcomeNone;
        text += print("%s%s %llu", text.empty() ? "" : ", ", origin.name, count);
    }
    return any ? text : std::string{};
}

/// "23 = C_post 1 + C_early 1 + C_pre 21", and what the paper's equation says beside it.
std::string total_text(const PipelineStats& f) {
    const FoldMetrics fold = fold_metrics(f);
    const auto number = [](std::int64_t value) { return static_cast<long long>(value); };
    std::string text = print("%lld = C_post %lld + ", number(fold.total), number(fold.post));
    if (f.metrics.sends_candidates) text += print("C_early %lld + ", number(fold.early));
    text += print("C_pre %lld", number(fold.pre));
    if (fold.predicted_total) {
        text += print("; %.1f by equation %d, of N_verified %lld", *fold.predicted_total,
                      f.metrics.sends_candidates ? 10 : 4, number(fold.verified));
    }
    return text;
}

/// The median of the pairs.
double times_plain(const PipelineStats& f) {
    if (f.times_plain.empty()) return f.rate / f.baseline_rate;
    std::vector<double> pairs = f.times_plain;
    const auto middle = pairs.begin() + static_cast<std::ptrdiff_t>(pairs.size() / 2);
    std::nth_element(pairs.begin(), middle, pairs.end());
    return *middle;
}

SelfDraftStats self_draft_of(const PipelineStats& f) {
    return self_draft_stats(*f.self_draft, f.verdicts, f.counters, f.seconds);
}

void add_self_draft(const PipelineStats& f,
                    std::vector<std::pair<std::string, std::string>>& lines) {
    const bool measured = f.rate > 0.0 && f.baseline_rate > 0.0;
    for (auto& line : self_draft_lines(self_draft_of(f), measured ? times_plain(f) : 0.0))
        lines.push_back(std::move(line));
}

std::string times_plain_text(const PipelineStats& f) {
    std::string text = print("%.2f", times_plain(f));
    if (f.times_plain.size() > 1) {
        const auto [low, high] = std::minmax_element(f.times_plain.begin(), f.times_plain.end());
        text += print(" [%.2f..%.2f] in %zu pairs", *low, *high, f.times_plain.size());
    }
    return text + print(" (plain: %.1f tokens/s)", f.baseline_rate);
}

/// Named, in the order of the table; whatever was not measured is left out.
std::vector<std::pair<std::string, std::string>> lines_of(const PipelineStats& f) {
    const VerdictTally& v = f.verdicts;
    std::vector<std::pair<std::string, std::string>> lines;
    const auto add = [&](const char* name, std::string value) {
        lines.emplace_back(name, std::move(value));
    };
    add("method", f.method);
    if (f.rate > 0.0) add("tokens/s", print("%.1f", f.rate));
    if (f.rate > 0.0 && f.baseline_rate > 0.0) add("times plain decoding", times_plain_text(f));
    if (v.drafts > 0) {
        add("mean acceptance length", print("%.2f", v.mean_acceptance_length()));
        std::string rates;
        for (const double rate : v.rate_by_position()) rates += print("%.2f ", rate);
        if (!rates.empty()) rates.pop_back();
        add("acceptance by position", rates.empty() ? "0" : rates);
    }
    add("batches", print("%lld verified, %lld without candidates; %lld tokens",
                         static_cast<long long>(v.batches), static_cast<long long>(v.alone),
                         static_cast<long long>(v.emitted)));
    add("target forwards", print("%llu", static_cast<unsigned long long>(f.target_forwards)));
    add("wasted rows",
        print("%llu", static_cast<unsigned long long>(f.counter(counters::kRowsWasted))));
    if (const std::string outcomes = outcomes_text(f); !outcomes.empty()) add("outcomes", outcomes);
    return lines;
}

void add_metrics(const PipelineStats& f, std::vector<std::pair<std::string, std::string>>& lines) {
    if (const std::uint64_t forwards = f.counter(counters::kDraftForwards); forwards > 0) {
        lines.emplace_back("draft forwards",
                           print("%llu, %llu rows", static_cast<unsigned long long>(forwards),
                                 static_cast<unsigned long long>(f.counter(counters::kDraftRows))));
    }
    if (const ExitHits exit = exit_hits(f); f.metrics.sends_candidates && exit.of > 0) {
        lines.emplace_back("exit hit rate",
                           print("%.2f: %llu of the %llu roots off the trunk", exit.rate(),
                                 static_cast<unsigned long long>(exit.hits),
                                 static_cast<unsigned long long>(exit.of)));
    }
    if (f.metrics.sends_candidates || f.metrics.gamma > 0)
        lines.emplace_back("C_total", total_text(f));
    if (!f.metrics.proposes) return;
    const auto proposed = static_cast<unsigned long long>(f.counter(counters::kEarlyProposed));
    if (proposed == 0) {
        lines.emplace_back("early predictions", "none: no exit was sure enough");
        return;
    }
    lines.emplace_back(
        "early predictions",
        print("%llu, %.2f of the tokens; %.2f of them rejected", proposed,
              ratio(static_cast<double>(proposed), static_cast<double>(f.verdicts.emitted)),
              early_rejection_rate(f)));
}

}  // namespace

PipelineMetrics metrics_of(const PipelineConfig& config) {
    PipelineMetrics metrics{.sends_candidates = config.exit_sends_candidates(),
                            .proposes = config.exit && config.exit->options.proposes};
    if (!config.draft || config.draft->growth.pace != DraftPace::Lockstep) return metrics;
    const GrowthRule& growth = config.draft->growth;
    metrics.gamma = growth.gamma;
    if (growth.gamma_early > 0) metrics.gamma_late = growth.gamma - growth.gamma_early;
    return metrics;
}

FoldMetrics fold_metrics(const PipelineStats& stats) {
    const VerdictTally& v = stats.verdicts;
    FoldMetrics fold{.total = v.batches, .pre = v.alone, .verified = v.candidates + v.batches};
    if (stats.metrics.sends_candidates) {
        // A last verdict may find an outcome that no batch follows any more.
        fold.early = std::min(static_cast<std::int64_t>(stats.counter(counters::kOutcomeExit)),
                              fold.total - fold.pre);
    }
    fold.post = fold.total - fold.pre - fold.early;
    if (stats.metrics.gamma == 0) return fold;
    // The paper's C_pre counts those that were avoided too: C_pre = C_early + the executed ones.
    const auto pre = static_cast<double>(fold.early + fold.pre);
    const double gain = (1.0 - stats.metrics.early_rows()) * static_cast<double>(fold.early);
    fold.predicted_total =
        (static_cast<double>(fold.verified) + gain - pre) / stats.metrics.gamma + pre;
    return fold;
}

std::string stats_table(const PipelineStats& stats) {
    auto lines = lines_of(stats);
    add_metrics(stats, lines);
    if (stats.self_draft) add_self_draft(stats, lines);
    if (stats.draft_skip) {
        for (auto& line : draft_skip_lines(*stats.draft_skip, stats.counters))
            lines.push_back(std::move(line));
    }
    for (const ProcessStats& process : stats.processes) {
        lines.emplace_back(process.name, print("busy %3.0f%%, waiting %3.0f%%", process.busy * 100,
                                               process.waiting * 100));
    }
    std::size_t width = 0;
    for (const auto& [name, value] : lines) width = std::max(width, name.size());
    std::string text;
    for (const auto& [name, value] : lines)
        text += name + std::string(width - name.size() + 2, ' ') + value + "\n";
    return text;
}

nlohmann::json to_json(const PipelineStats& f) {
    const VerdictTally& v = f.verdicts;
    nlohmann::json json{{"method", f.method},
                        {"seconds", f.seconds},
                        {"batches", v.batches},
                        {"batches_of_root_alone", v.alone},
                        {"drafts", v.drafts},
                        {"candidates", v.candidates},
                        {"accepted_tokens", v.accepted},
                        {"emitted_tokens", v.emitted},
                        {"mean_acceptance_length", v.mean_acceptance_length()},
                        {"acceptance_rate_by_position", v.rate_by_position()},
                        {"target_forwards", f.target_forwards},
                        {"wasted_rows", f.counter(counters::kRowsWasted)},
                        {"draft_forwards", f.counter(counters::kDraftForwards)},
                        {"draft_rows", f.counter(counters::kDraftRows)}};
    for (std::size_t rows = 0; rows < v.by_rows.size(); ++rows) {
        if (v.by_rows[rows] > 0) json["batches_by_rows"][std::to_string(rows)] = v.by_rows[rows];
    }
    for (const OriginCounter& origin : kOutcomes)
        json["outcomes"][origin.name] = f.counter(origin.counter);
    if (f.rate > 0.0) json["tokens_per_second"] = f.rate;
    if (f.baseline_rate > 0.0) {
        json["baseline_tokens_per_second"] = f.baseline_rate;
        json["times_plain"] = times_plain(f);
        if (!f.times_plain.empty()) json["times_plain_pairs"] = f.times_plain;
    }
    for (const ProcessStats& process : f.processes) {
        json["processes"].push_back(
            {{"name", process.name}, {"busy", process.busy}, {"waiting", process.waiting}});
    }
    if (const ExitHits exit = exit_hits(f); f.metrics.sends_candidates && exit.of > 0)
        json["exit_hit_rate"] = exit.rate();
    if (f.metrics.sends_candidates || f.metrics.gamma > 0) {
        const FoldMetrics fold = fold_metrics(f);
        json["fold"] = {{"c_total", fold.total},
                        {"c_post", fold.post},
                        {"c_early", fold.early},
                        {"c_pre", fold.pre},
                        {"n_verified", fold.verified}};
        if (fold.predicted_total) json["fold"]["c_total_by_equation"] = *fold.predicted_total;
    }
    if (f.self_draft) json["self_draft"] = to_json(self_draft_of(f));
    if (f.draft_skip) json["draft_skip"] = draft_skip_json(*f.draft_skip, f.counters);
    if (f.metrics.proposes) {
        json["adadecode"] = {{"early_proposed", f.counter(counters::kEarlyProposed)},
                             {"early_prediction_rate",
                              ratio(static_cast<double>(f.counter(counters::kEarlyProposed)),
                                    static_cast<double>(v.emitted))},
                             {"rejection_rate", early_rejection_rate(f)}};
    }
    return json;
}

}  // namespace paceline
