// StageTelemetry: the telemetry block of a process, in shared memory: its current activity with a
// deadline, its counters, and its trace ring.
//
// The conductor makes one per incarnation of a stage and keeps it, so it can be read after a
// crash; the stage writes it; `paceline top` finds it in the conductor's descriptors. A reader
// maps it read-only and validates what it reads: a stage that writes garbage here can only make
// figures wrong, or be replaced as hung itself.
//
//   offset 0       128        256      384        768      896
//   +--------------+----------+--------+----------+--------+----------------------------------+
//   | who: magic,  | activity,| gauges | counters | events | trace[capacity], 64 bytes each:  |
//   | id, epoch,   | deadline,|        |          | ever   | stamp, event                     |
//   | pid, name    | jobs     |        |          | traced |                                  |
//   +--------------+----------+--------+----------+--------+----------------------------------+
//
// Hangs are detected by deadlines: whenever the process starts an activity (loading, a job, a wait,
// which always has a limit) it publishes a deadline. The heartbeat of a helper thread would
// continue while the loop is stuck.
// Threads: one writer, the process's loop; any readers.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/shm_region.hpp"
#include "runtime/observe/counters.hpp"
#include "runtime/observe/job_record.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

enum class Activity : std::uint32_t {
    Starting,   // spawned, not yet at work: before Ready
    Loading,    // reads weights: has the time that the configuration gives it
    Handling,   // runs handlers
    Computing,  // runs a job
    Waiting,    // for input: is never late by itself, the wait has a limit
    Ended,
};
[[nodiscard]] const char* name_of(Activity activity);

/// How the names of the memory files begin, as /proc/PID/fd shows them after "/memfd:".
inline constexpr const char* kTelemetryFilePrefix = "paceline-telemetry";
inline constexpr std::uint32_t kTraceEventsDefault = 1U << 14;  // 1 MiB

/// A reader's copy of the block at one time.
struct TelemetrySnapshot {
    StageId stage{};
    Epoch epoch{};
    std::uint32_t pid = 0;
    std::string name;  // printable ASCII, whatever the telemetry block holds
    Activity activity = Activity::Starting;
    std::chrono::nanoseconds since{0};     // CLOCK_MONOTONIC; 0 or more
    std::chrono::nanoseconds deadline{0};  // when it must be over; 0: no limit
    std::uint64_t progress = 0;            // changes whenever something does
    std::uint32_t job = 0;                 // of Computing: its name's index, below kJobNamesMax
    JobRecords jobs{};
    std::array<std::uint64_t, kCounters> counters{};
    std::array<std::uint64_t, kGauges> gauges{};

    [[nodiscard]] std::uint64_t counter(Counter c) const {
        return counters[static_cast<std::size_t>(c)];
    }
    [[nodiscard]] std::uint64_t gauge(Gauge g) const { return gauges[static_cast<std::size_t>(g)]; }
};

struct TelemetryLayout;  // stage_telemetry.cpp

/// The block without its trace, as bytes for another machine (runtime/cluster).
inline constexpr std::size_t kTelemetryBlockBytes = 896;
using TelemetryBlock = std::array<std::byte, kTelemetryBlockBytes>;
/// Of a mapped block. Errc::Protocol if it is none.
[[nodiscard]] Result<TelemetryBlock> read_telemetry_block(std::span<const std::byte> memory);
/// Into a mapped block of the same stage and epoch: activity, jobs, gauges, counters. `shift` is
/// added to its times: what the clock here shows more than the sender's. The pid is not taken over,
/// which means another process here. Errc::Protocol if either is no block, or they are of two
/// incarnations. The caller is the only writer.
[[nodiscard]] Status write_telemetry_block(std::span<std::byte> memory,
                                           const TelemetryBlock& block,
                                           std::chrono::nanoseconds shift);

/// The writer's end.
class StageTelemetry {
public:
    /// The memory of a telemetry block. `trace_events` is rounded up to a power of two; 0: no
    /// trace. `jobs`: what is known of them from earlier incarnations.
    [[nodiscard]] static Result<ShmFile> create(StageId stage,
                                                Epoch epoch,
                                                std::string_view name,
                                                std::uint32_t trace_events,
                                                const JobRecords& jobs = {});
    /// Also writes the caller's pid into it. New trace events follow the existing ones.
    [[nodiscard]] static Result<StageTelemetry> attach(ShmRegion region);
    /// A telemetry block in private memory without a trace, for unwatched processes and for tests.
    [[nodiscard]] static StageTelemetry local(StageId stage, Epoch epoch, std::string_view name);

    /// Publishes an activity that must end within `limit` (0: not limited).
    /// `job`: of Computing, the index of its name.
    void enter(Activity activity, std::chrono::nanoseconds limit, std::uint32_t job = 0);
    [[nodiscard]] JobRecord job_record(std::uint32_t job) const;
    void set_job_record(std::uint32_t job, const JobRecord& record);
    void count(Counter counter, std::uint64_t add = 1);
    void set(Gauge gauge, std::uint64_t value);
    [[nodiscard]] bool traces() const { return trace_capacity_ != 0; }
    void trace(const TraceEvent& event);

private:
    StageTelemetry(ShmRegion region, std::shared_ptr<TelemetryLayout> own, TelemetryLayout* layout)
        : region_{std::move(region)}, own_{std::move(own)}, layout_{layout} {}
    ShmRegion region_;
    std::shared_ptr<TelemetryLayout> own_;  // of a local telemetry block
    TelemetryLayout* layout_;
    std::uint64_t trace_capacity_ = 0;  // as checked at attach; a power of two or 0
    std::uint64_t traced_ = 0;
};

/// A reader's end; keeps working after the writer died.
class StageTelemetryView {
public:
    /// Errc::Protocol if it is no telemetry block, or one that its writer could still shrink under
    /// the reader. The descriptor need only be readable, and is not kept.
    [[nodiscard]] static Result<StageTelemetryView> attach(int fd);

    [[nodiscard]] TelemetrySnapshot snapshot() const;
    /// The events that are still there, oldest first. One that is being overwritten is left out.
    [[nodiscard]] std::vector<TraceEvent> trace() const;
    [[nodiscard]] std::uint64_t traced() const;  // events ever recorded, overwritten ones too

private:
    struct Unmap {
        std::size_t bytes;
        void operator()(const std::byte* memory) const;
    };
    StageTelemetryView(std::shared_ptr<const std::byte> memory, std::uint64_t trace_capacity)
        : memory_{std::move(memory)}, trace_capacity_{trace_capacity} {}
    [[nodiscard]] const TelemetryLayout& layout() const;
    std::shared_ptr<const std::byte> memory_;
    std::uint64_t
        trace_capacity_;  // as checked at attach, never read from the telemetry block again
};

}  // namespace paceline
