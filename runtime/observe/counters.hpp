// Counters and gauges of a process, in its telemetry block (stage_telemetry.hpp).
//
// The runtime has counters of its own. All other slots are free: the code that uses them names them
// at compile time (free_counter(), free_gauge()).
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

enum class Counter : std::uint8_t {
    FramesIn,     // data messages handled
    FramesOut,    // data messages sent to other processes
    FramesStale,  // dropped: of an old epoch, or for a peer that is gone
    ChannelFull,  // sends and tensor requests that found no room
    Jobs,         // jobs run
    JobMicros,    // time in them
    WaitMicros,   // time without anything to do
    Sleeps,       // waits that ended in the kernel
    Restarts,     // stages restarted (conductor)
    FirstFree,
};
inline constexpr std::size_t kCounters = 48;  // as many as a telemetry block has room for
inline constexpr std::size_t kFreeCounters =
    kCounters - static_cast<std::size_t>(Counter::FirstFree);

enum class Gauge : std::uint8_t {};  // all free
inline constexpr std::size_t kGauges = 16;

/// Free slot `slot`. One that does not exist does not compile.
[[nodiscard]] consteval Counter free_counter(std::size_t slot) {
    if (slot >= kFreeCounters) throw "there is no such counter";
    return static_cast<Counter>(static_cast<std::size_t>(Counter::FirstFree) + slot);
}
[[nodiscard]] consteval Gauge free_gauge(std::size_t slot) {
    if (slot >= kGauges) throw "there is no such gauge";
    return static_cast<Gauge>(slot);
}

}  // namespace paceline
