#include "launch/check/report.hpp"

#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "actors/protocol/counters.hpp"
#include "launch/base/print.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

std::string verdict_on(const CheckResult& result, std::size_t prompt) {
    const Answer& answer = result.answers[prompt];
    if (!answer.status.ok())
        return "no answer: " + visible(answer.status.error().what, kLineShownBytesMax);
    if (!result.equal(prompt) && !first_difference(answer.ids, result.plain[prompt].ids))
        return "the same tokens instead of the same log probabilities";
    return difference_text(answer.ids, result.plain[prompt].ids);
}

std::uint32_t replays_of(const CheckResult& result) {
    std::uint32_t replays = 0;
    for (const Answer& answer : result.answers) replays += answer.stats.replays;
    return replays;
}

std::uint32_t preemptions_of(const CheckResult& result) {
    std::uint32_t preemptions = 0;
    for (const Answer& answer : result.answers) preemptions += answer.stats.preemptions;
    return preemptions;
}

double milliseconds(std::chrono::microseconds time) {
    return static_cast<double>(time.count()) / 1000.0;
}

std::size_t differing(const CheckResult& result) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < result.answers.size(); ++i) count += result.equal(i) ? 0 : 1;
    return count;
}

double percent_of(std::uint64_t part, std::uint64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string line(const char* what, const std::string& value) {
    char text[160];
    std::snprintf(text, sizeof text, "%-26s %s\n", what, value.c_str());
    return text;
}

std::string summary(const CheckResult& result) {
    const PipelineStats& stats = result.stats;
    const auto count = [&stats](Counter counter) {
        return static_cast<unsigned long long>(stats.counter(counter));
    };
    const std::size_t wrong = differing(result);
    std::string text =
        line("equality", wrong == 0
                             ? print("all %zu answers equal plain decoding", result.answers.size())
                             : print("%zu of %zu answers DIFFER", wrong, result.answers.size()));
    text += line("faults", print("%d kills, %d stalls", result.kills, result.stalls));
    text += line("recoveries", print("%llu restarts, %u answers begun anew",
                                     count(Counter::Restarts), replays_of(result)));
    text +=
        line("prompts", print("%llu rows computed, %llu found in the cache; %u answers preempted",
                              count(counters::kPrefillRows), count(counters::kCachedRows),
                              preemptions_of(result)));
    text += line("tokens/s",
                 print("%.2f, plain decoding %.2f (%.2f times)", stats.rate, stats.baseline_rate,
                       stats.baseline_rate > 0 ? stats.rate / stats.baseline_rate : 0.0));
    text += line("overlap", print("draft and target both busy %.1f %% of the time",
                                  100 * result.overlap.both));
    const std::uint64_t proposed = count(counters::kTokensProposed);
    const std::uint64_t accepted = count(counters::kTokensAccepted);
    text += line("candidates",
                 print("%llu of %llu accepted (%.1f %%)", static_cast<unsigned long long>(accepted),
                       static_cast<unsigned long long>(proposed), percent_of(accepted, proposed)));
    return text;
}

}  // namespace

std::string check_table(const CheckResult& result, const CheckTask& task) {
    std::string text =
        print("%-24s %7s %10s %10s  %s\n", "prompt", "tokens", "tokens/s", "plain", "text");
    for (std::size_t i = 0; i < result.answers.size(); ++i) {
        const Answer& answer = result.answers[i];
        const bool loops = first_loop(result.plain[i].ids).has_value();
        text += print("%-24.24s %7zu %10.2f %10.2f  ",
                      visible(visible(task.prompts[i].id), 21).c_str(), answer.ids.size(),
                      answer.stats.decode_rate(), result.plain[i].stats.decode_rate());
        text += verdict_on(result, i);
        if (answer.stats.replays > 0) text += print(", begun anew %u times", answer.stats.replays);
        text += loops ? ", repeats itself\n" : "\n";
    }
    PipelineStats stats = result.stats;
    stats.rate = 0.0;  // the summary has it
    return text + "\n" + summary(result) + "\n" + stats_table(stats);
}

nlohmann::json to_json(const CheckResult& result, const CheckTask& task) {
    nlohmann::json prompts = nlohmann::json::array();
    for (std::size_t i = 0; i < result.answers.size(); ++i) {
        const Answer& answer = result.answers[i];
        nlohmann::json row{{"id", task.prompts[i].id},
                           {"equal", result.equal(i)},
                           {"tokens", answer.ids.size()},
                           {"tokens_per_second", answer.stats.decode_rate()},
                           {"plain_tokens_per_second", result.plain[i].stats.decode_rate()},
                           {"replays", answer.stats.replays},
                           {"preemptions", answer.stats.preemptions},
                           {"prompt_rows", answer.stats.prompt_tokens},
                           {"cached_tokens", answer.stats.cached_tokens},
                           {"begun_ms", milliseconds(answer.stats.begun)},
                           {"first_token_ms", milliseconds(answer.stats.first_token)},
                           {"last_token_ms", milliseconds(answer.stats.last_token)},
                           {"batches", answer.stats.verdicts.batches},
                           {"loops", first_loop(result.plain[i].ids).has_value()}};
        if (!answer.status.ok()) row["error"] = answer.status.error().what;
        const auto place = first_difference(answer.ids, result.plain[i].ids);
        if (place) row["first_difference"] = *place;
        prompts.push_back(std::move(row));
    }
    return {{"equal", result.all_equal()},
            {"differing", differing(result)},
            {"kills", result.kills},
            {"stalls", result.stalls},
            {"replays", replays_of(result)},
            {"preemptions", preemptions_of(result)},
            {"features_dropped", result.stats.counter(counters::kFeaturesDropped)},
            {"prefill_rows", result.stats.counter(counters::kPrefillRows)},
            {"cached_rows", result.stats.counter(counters::kCachedRows)},
            {"prefixes_broken", result.stats.counter(counters::kPrefixesBroken)},
            {"tokens_per_second", result.stats.rate},
            {"plain_tokens_per_second", result.stats.baseline_rate},
            {"overlap",
             {{"seconds", result.overlap.seconds},
              {"draft", result.overlap.draft},
              {"target", result.overlap.target},
              {"both", result.overlap.both}}},
            {"figures", to_json(result.stats)},
            {"prompts", std::move(prompts)}};
}

}  // namespace paceline
