#include "launch/serve/serve_metrics.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "launch/api/health_report.hpp"

namespace paceline::serve {
namespace {

void print_head(std::string& text, const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class Value>
void print_one(
    std::string& text, const char* name, const char* type, const char* help, Value value) {
    print_head(text, name, type, help);
    text += fmt::format("{} {}\n", name, value);
}

void print_engine(std::string& text, const ServiceSnapshot& engine) {
    print_one(text, "paceline_requests_running", "gauge", "Answers that decode now.",
              engine.running);
    print_one(text, "paceline_requests_waiting", "gauge", "Answers that wait for a place.",
              engine.waiting);
    print_one(text, "paceline_answers_total", "counter", "Answers that ended by themselves.",
              engine.answers);
    print_one(text, "paceline_answers_cancelled_total", "counter",
              "Answers that clients ended by closing.", engine.cancelled);
    print_one(text, "paceline_answers_failed_total", "counter", "Answers that ended with an error.",
              engine.failed);
    print_one(text, "paceline_prompt_tokens_total", "counter",
              "Prompt tokens that were processed: not those found in the cache.",
              engine.prompt_tokens);
    print_one(text, "paceline_cached_tokens_total", "counter",
              "Prompt tokens that were found in the KV cache.", engine.cached_tokens);
    print_one(text, "paceline_generated_tokens_total", "counter", "Tokens of answers.",
              engine.tokens);
    print_one(text, "paceline_replays_total", "counter",
              "Answers that were continued after a stage was lost.", engine.replays);
    print_one(text, "paceline_preemptions_total", "counter",
              "Answers that were set back because KV pages ran short.", engine.preemptions);
    print_head(text, "paceline_engine_state", "gauge", "1 for the state that the engine is in.");
    for (const ServiceState state :
         {ServiceState::Ok, ServiceState::Degraded, ServiceState::Recovering,
          ServiceState::Changing, ServiceState::Draining, ServiceState::Failed})
        text += fmt::format("paceline_engine_state{{state=\"{}\"}} {}\n", name(state),
                            state == engine.state ? 1 : 0);
    print_head(text, "paceline_stage_up", "gauge", "1 while the process of the stage lives.");
    for (const SessionProcess& process : engine.stages)
        text += fmt::format("paceline_stage_up{{process=\"{}\"}} {}\n", process.name,
                            process.is_up ? 1 : 0);
}

/// Of the token that a verdict puts behind the accepted candidates: `none` if no stage had proposed
/// it.
constexpr std::pair<const char*, Counter> kSources[] = {
    {"draft", counters::kOutcomeTrunk},        {"draft_branch", counters::kOutcomeRunnerUp},
    {"early_exit", counters::kOutcomeExit},    {"prompt_lookup", counters::kOutcomeLookup},
    {"future_heads", counters::kOutcomeHeads}, {"forced", counters::kOutcomeForced},
    {"none", counters::kOutcomeNone}};

/// The counts of candidates under the names of `prefix`.
void print_speculation(std::string& text,
                       const VerdictTally& verdicts,
                       const std::string& prefix,
                       const std::string& label) {
    const auto print_counter = [&](const char* name, const char* help, std::int64_t value) {
        const std::string full = prefix + name;
        print_head(text, full.c_str(), "counter", help);
        text += fmt::format("{}{} {}\n", full, label.empty() ? "" : "{" + label + "}", value);
    };
    print_counter("num_drafts_total", "Verify batches that held candidates.", verdicts.drafts);
    print_counter("num_draft_tokens_total", "Candidates that were verified.", verdicts.candidates);
    print_counter("num_accepted_tokens_total", "Candidates that were accepted.", verdicts.accepted);
    const std::string by_position = prefix + "num_accepted_tokens_per_pos_total";
    print_head(text, by_position.c_str(), "counter", "Candidates that were accepted, by position.");
    for (std::size_t i = 0; i < verdicts.accepted_at.size(); ++i) {
        if (i > 0 && verdicts.accepted_at[i] == 0) continue;
        text += fmt::format("{}{{{}{}position=\"{}\"}} {}\n", by_position, label,
                            label.empty() ? "" : ",", i, verdicts.accepted_at[i]);
    }
}

/// A label's value: backslash, quote and newline are escaped.
std::string label_value(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '\\' || c == '"') escaped += '\\';
        if (c == '\n') {
            escaped += "\\n";
        } else {
            escaped += c;
        }
    }
    return escaped;
}

}  // namespace

void TimeHistogram::add(double seconds) {
    const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
    ++counts_[static_cast<std::size_t>(at - kBounds.begin())];
    sum_ += seconds;
}

void TimeHistogram::print(std::string& text, const char* name, const char* help) const {
    print_head(text, name, "histogram", help);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < kBounds.size(); ++i) {
        below += counts_[i];
        text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], below);
    }
    below += counts_.back();
    text += fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, below, name,
                        sum_, name, below);
}

void ServeMetrics::add_answer(const AnswerStats& stats, std::chrono::duration<double> waited) {
    request_.add(waited.count());
    if (stats.first_token.count() == 0) return;
    const double decoded = std::chrono::duration<double>(stats.decode_time()).count();
    // From the request: the engine's own time begins when the answer got its place.
    const double begun_to_end =
        std::chrono::duration<double>(stats.last_token - stats.begun).count();
    const double queued = std::max(0.0, waited.count() - begun_to_end);
    first_token_.add(queued + std::chrono::duration<double>(stats.time_to_first()).count());
    if (stats.generated_tokens > 1)
        per_token_.add(decoded / static_cast<double>(stats.generated_tokens - 1));
}

double ServeMetrics::risen(const std::string& name, double value) {
    double& highest = highest_[name];
    highest = std::max(highest, value);
    return highest;
}

void ServeMetrics::print_usage(std::string& text, const PipelineUsage& usage) {
    const auto print = [&](const char* name, const std::string& label, double value) {
        const std::string full = fmt::format("{}{{{}}}", name, label);
        text += fmt::format("{} {}\n", full, risen(full, value));
    };
    const char* busy = "paceline_stage_busy_seconds_total";
    print_head(text, busy, "counter", "Time that a process spent in jobs.");
    for (const PipelineUsage::Process& process : usage.processes)
        print(busy, "process=\"" + label_value(process.name) + "\"", process.busy_s);
    const char* restarts = "paceline_stage_restarts_total";
    print_head(text, restarts, "counter", "Times that a process was replaced.");
    for (const PipelineUsage::Process& process : usage.processes)
        print(restarts, "process=\"" + label_value(process.name) + "\"",
              static_cast<double>(process.restarts));
    const char* source = "paceline_verdicts_total";
    print_head(text, source, "counter",
               "Verdicts, by what had proposed the token behind the accepted ones.");
    for (const auto& [name, counter] : kSources)
        print(source, fmt::format("source=\"{}\"", name),
              static_cast<double>(usage.counter(counter)));
    print_one(text, "paceline_kv_pages", "gauge", "KV pages of the target.", usage.kv_pages);
    print_one(text, "paceline_kv_pages_used", "gauge", "Of them, held by answers that decode.",
              usage.kv_pages_used);
}

std::string ServeMetrics::text(const ServedModel* model) {
    std::string text;
    print_head(text, "paceline_http_responses_total", "counter", "Responses by status.");
    for (const auto& [status, count] : responses_)
        text += fmt::format("paceline_http_responses_total{{code=\"{}\"}} {}\n", status, count);
    print_one(text, "paceline_http_connections", "gauge", "Open connections.", connections_);
    print_one(text, "paceline_client_disconnects_total", "counter",
              "Clients that closed before the end of their answer.", disconnects_);
    first_token_.print(text, "paceline_time_to_first_token_seconds",
                       "From the request to its first token.");
    per_token_.print(text, "paceline_time_per_token_seconds",
                     "Mean time between the tokens of an answer.");
    request_.print(text, "paceline_request_seconds", "From the request to the end of an answer.");
    if (model == nullptr) return text;
    const MethodInUse method = model->method->get();
    print_head(text, "paceline_method", "gauge", "1 for the method that decodes.");
    text += fmt::format("paceline_method{{method=\"{}\"}} 1\n", label_value(method.name));
    print_one(text, "paceline_method_changes_total", "counter",
              "Times that --method auto has changed the method.", method.changes);
    const ServiceSnapshot engine = model->service->snapshot();
    print_engine(text, engine);
    print_usage(text, engine.usage);
    print_speculation(text, engine.verdicts, "paceline_spec_", {});
    print_speculation(text, engine.verdicts, "vllm:spec_decode_",
                      "model_name=\"" + label_value(model->name) + "\"");
    return text;
}

}  // namespace paceline::serve
