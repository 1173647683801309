#include "runtime/loop/loop_telemetry.hpp"

#include <chrono>

#include "runtime/loop/span_event.hpp"

namespace paceline {

Micros steady_now() {
    return std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch());
}

Micros LoopTelemetry::begin_job(const JobLabel& label) {
    enter(Activity::Computing, limits_.expected(label), job_name_index(label.name));
    return steady_now();
}

void LoopTelemetry::end_job(const JobLabel& label, Micros start, JobOutcome outcome) {
    const Micros took = steady_now() - start;
    limits_.note(label, took, outcome);
    begin_handling();
    count(Counter::Jobs);
    count(Counter::JobMicros, static_cast<std::uint64_t>(took.count()));
    trace_span(TraceKind::Job, start, label);
}

void LoopTelemetry::end_wait(Micros start, bool slept) {
    count(Counter::WaitMicros, static_cast<std::uint64_t>((steady_now() - start).count()));
    count(Counter::Sleeps, slept ? 1 : 0);
    trace_span(TraceKind::Wait, start, {});
}

void LoopTelemetry::trace(TraceEvent event) {
    if (!block_.traces()) return;
    event.time_us = steady_now().count();
    block_.trace(event);
}

void LoopTelemetry::trace_span(TraceKind kind, Micros start, const JobLabel& label) {
    if (block_.traces()) block_.trace(span_event(kind, start, steady_now(), label));
}

void LoopTelemetry::enter(Activity activity, Micros expected, std::uint32_t job) {
    block_.enter(activity, hang_limit_.count() == 0 ? Micros{0} : hang_limit_ + expected, job);
}

}  // namespace paceline
