#include "runtime/simulation/sim_jobs.hpp"

#include <chrono>
#include <fmt/core.h>

#include "runtime/loop/job_limits.hpp"
#include "runtime/simulation/shared_device.hpp"

namespace paceline {
namespace {

Micros micros_of(SimTime time) {
    return std::chrono::duration_cast<Micros>(time);
}

}  // namespace

SimJobs::SimJobs(const SimIdentity& self, SimTelemetry& telemetry, const JobRecords& before)
    : self_{self}, telemetry_{telemetry} {
    if (!self.site.options.job_limits) return;
    row_ = micros_of(self.site.timing.timed_row(self.id()));
    telemetry_.block.jobs = before;
}

void SimJobs::begin(const JobLabel& label, SimTime takes) {
    TelemetrySnapshot& shown = telemetry_.block;
    const SimOptions& options = self_.site.options;
    label_ = label;
    busy_ = true;
    began_ = self_.now();
    ++shown.counters[static_cast<std::size_t>(Counter::Jobs)];
    self_.tell([&] {
        return fmt::format("begins a job: {}, {} rows, batch {}", label.name, label.rows, label.id);
    });
    const AllocationPause pause{self_.site};
    if (options.job_limits) {
        shown.activity = Activity::Computing;
        shown.job = job_name_index(label.name);
        shown.since = began_;
        shown.deadline =
            began_ + options.hang_limit + expected_time(shown.jobs[shown.job], label, row_);
    }
    set_end(began_ + takes);
    self_.site.devices.begin(self_, label, takes);
}

void SimJobs::set_end(SimTime at) {
    ends_ = at;
    self_.push(ends_, SimEventKind::JobDone, ++end_number_);
    // Few jobs are late, and an event for each would cost more than the others.
    const SimTime deadline = telemetry_.block.deadline;
    if (self_.site.options.job_limits && deadline < ends_)
        self_.push(deadline, SimEventKind::Overdue);
}

void SimJobs::stop() {
    self_.site.devices.end(self_);
    telemetry_.busy += self_.now() - began_;
    self_.tell([] { return std::string{"ends its job"}; });
}

void SimJobs::end(JobOutcome outcome) {
    TelemetrySnapshot& shown = telemetry_.block;
    const SimOptions& options = self_.site.options;
    const SimTime took = self_.now() - began_;
    busy_ = false;
    if (options.job_limits) {
        JobRecord& record = shown.jobs[job_name_index(label_.name)];
        record = noted(record, label_, micros_of(took), outcome);
        shown.activity = Activity::Waiting;
        shown.deadline = SimTime{0};
    }
    if (options.tracing) trace(took);
}

void SimJobs::trace(SimTime took) {
    TraceEvent event;
    event.time_us = micros_of(began_).count();
    event.duration_us = static_cast<std::uint32_t>(micros_of(took).count());
    event.kind = TraceKind::Job;
    event.request = label_.request;
    event.id = label_.id;
    event.count = label_.rows;
    event.position = label_.context;
    event.detail = label_.layers;
    event.label = job_name_index(label_.name);
    event.heads = heads_of(label_);
    telemetry_.trace.push_back(event);
}

}  // namespace paceline
