// JobRecord: how long the jobs of one name took in a stage, in its incarnation and in those before
// it.
//
// Kept in the telemetry block (stage_telemetry.hpp), so it outlives a stage that is killed. The
// deadlines of jobs are computed from it (runtime/loop/job_limits.hpp). Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace paceline {

/// Times saturate, at 71 minutes.
struct JobRecord {
    std::uint32_t longest_us = 0;
    std::uint32_t most_rows = 0;           // of a job
    std::uint32_t longest_of_most_us = 0;  // of the jobs with so many rows
    bool operator==(const JobRecord&) const = default;
};

/// By job_name_index().
inline constexpr std::size_t kJobNamesMax = 8;
using JobRecords = std::array<JobRecord, kJobNamesMax>;

}  // namespace paceline
