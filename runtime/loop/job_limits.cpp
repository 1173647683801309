#include "runtime/loop/job_limits.hpp"

#include <algorithm>
#include <limits>

#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

std::uint32_t saturated(Micros time) {
    const std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(time.count(), 0, most));
}

}  // namespace

Micros expected_time(JobRecord record, const JobLabel& label, Micros row) {
    if (record.most_rows == 0) {  // none has ended yet
        record.most_rows = 1;
        record.longest_of_most_us = planted(PlantedBug::RowTimeForgotten) ? 0 : saturated(row);
    }
    Micros longest{record.longest_us};
    if (label.rows > record.most_rows || longest.count() == 0) {
        const std::int64_t rows = std::max(label.rows, 1U);
        longest = std::max(longest, Micros{record.longest_of_most_us} * rows / record.most_rows);
    }
    return kJobSlack * longest;
}

JobRecord noted(JobRecord record, const JobLabel& label, Micros took, JobOutcome outcome) {
    record.longest_us = std::max(record.longest_us, saturated(took));
    const std::uint32_t rows = std::max(label.rows, 1U);
    if (outcome == JobOutcome::Done && rows >= record.most_rows) {
        const bool more = rows > record.most_rows;
        record.longest_of_most_us = std::max(more ? 0 : record.longest_of_most_us, saturated(took));
        record.most_rows = rows;
    }
    return record;
}

Micros JobLimits::expected(const JobLabel& label) const {
    return expected_time(telemetry_.job_record(job_name_index(label.name)), label, row_);
}

void JobLimits::note(const JobLabel& label, Micros took, JobOutcome outcome) {
    const std::uint32_t job = job_name_index(label.name);
    telemetry_.set_job_record(job, noted(telemetry_.job_record(job), label, took, outcome));
}

}  // namespace paceline
