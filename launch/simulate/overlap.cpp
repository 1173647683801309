#include "launch/simulate/overlap.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace paceline {
namespace {

void add_job(std::string_view name, Span span, BusySpans& spans) {
    const auto is = [name](std::string_view job) { return name.substr(0, job.size()) == job; };
    if (is("draft")) spans.draft.push_back(span);
    if (is("verify") || is("prefill") || is("exit")) spans.target.push_back(span);
}

/// Sorted, and without overlaps among themselves.
std::vector<Span> merged(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.begin_us < b.begin_us; });
    std::vector<Span> whole;
    for (const Span& span : spans) {
        if (!whole.empty() && span.begin_us <= whole.back().end_us) {
            whole.back().end_us = std::max(whole.back().end_us, span.end_us);
        } else {
            whole.push_back(span);
        }
    }
    return whole;
}

std::int64_t length_within(const std::vector<Span>& spans, Span window) {
    std::int64_t sum = 0;
    for (const Span& span : spans) {
        const std::int64_t begin = std::max(span.begin_us, window.begin_us);
        const std::int64_t end = std::min(span.end_us, window.end_us);
        sum += std::max<std::int64_t>(0, end - begin);
    }
    return sum;
}

/// What two lists of merged spans have in common.
std::vector<Span> common(const std::vector<Span>& a, const std::vector<Span>& b) {
    std::vector<Span> both;
    for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
        const Span part{std::max(a[i].begin_us, b[k].begin_us), std::min(a[i].end_us, b[k].end_us)};
        if (part.begin_us < part.end_us) both.push_back(part);
        ++(a[i].end_us < b[k].end_us ? i : k);
    }
    return both;
}

}  // namespace

void add_spans(std::span<const TraceEvent> events, BusySpans& spans) {
    for (const TraceEvent& event : events) {
        if (event.kind != TraceKind::Job) continue;
        add_job(job_name(event.label), {event.time_us, event.time_us + event.duration_us}, spans);
    }
}

Result<BusySpans> spans_of_trace(std::string_view text) {
    const nlohmann::json trace = nlohmann::json::parse(text, nullptr, false);
    const nlohmann::json* events = &trace;
    if (trace.is_object() && trace.contains("traceEvents")) events = &trace["traceEvents"];
    if (!events->is_array()) return Error{Errc::BadFile, "not a trace: no list of events"};
    BusySpans spans;
    for (const auto& event : *events) {
        if (!event.is_object() || event.value("ph", "") != "X") continue;
        const std::int64_t begin = event.value("ts", std::int64_t{0});
        add_job(event.value("name", ""), {begin, begin + event.value("dur", std::int64_t{0})},
                spans);
    }
    return spans;
}

Overlap overlap_of(const BusySpans& spans) {
    const std::vector<Span> draft = merged(spans.draft);
    const std::vector<Span> target = merged(spans.target);
    Overlap overlap;
    if (draft.empty() && target.empty()) return overlap;
    const std::vector<Span>& one = draft.empty() ? target : draft;
    const std::vector<Span>& other = target.empty() ? draft : target;
    const Span window{std::max(one.front().begin_us, other.front().begin_us),
                      std::min(one.back().end_us, other.back().end_us)};
    const auto length = static_cast<double>(window.end_us - window.begin_us);
    if (length <= 0) return overlap;
    overlap.seconds = length / 1e6;
    overlap.draft = static_cast<double>(length_within(draft, window)) / length;
    overlap.target = static_cast<double>(length_within(target, window)) / length;
    overlap.both = static_cast<double>(length_within(common(draft, target), window)) / length;
    return overlap;
}

}  // namespace paceline
