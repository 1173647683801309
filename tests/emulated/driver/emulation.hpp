// Settings of the emulated driver and the emulated NCCL for tests, and the misuse that they detect.
//
// Misuse is a call that with the real libraries would lead to a hang, a crash or wrong bytes. It
// ends the process with a message, or is collected if a test asks for that.
//
// Threads: any. Settings hold for the whole process; set them while nothing runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace paceline::emulated {

/// How many devices there are (1). They are of no difference: their memory is the host's.
void set_devices(int count);
[[nodiscard]] int devices();

struct LinkRules {
    std::uint64_t seed = 1;  // of every delay
    // Writes to imported memory are lost for its exporter, as behind some IOMMUs.
    bool peer_writes_are_lost = false;
    int nccl_version = 22809;
    bool nccl_revokes = true;
    std::chrono::microseconds launch_max{60};     // of an operation
    std::chrono::microseconds connect_max{2000};  // more for the first one of a pair
    std::chrono::microseconds late_max{
        200};  // between an operation's turn in its stream and its bytes
    std::chrono::microseconds abort_max{2000};
    std::chrono::milliseconds refused_limit{59'500};  // of an id whose listener is gone
    bool abort_hangs = false;                         // until it is set back
    bool connect_fails = false;  // no memory for the first operation of a pair, at this end
};
void set_link_rules(const LinkRules& rules);
[[nodiscard]] LinkRules link_rules();

/// A duration from 0 to `most`, by the seed.
[[nodiscard]] std::chrono::microseconds draw_delay(std::chrono::microseconds most);

/// Called when memory becomes accessible or stops being so: the emulated runtime of model/ learns
/// from it what is device memory. Functions may be null.
using MemoryWatch = void (*)(const std::byte* at, std::size_t bytes);
void watch_memory(MemoryWatch appears, MemoryWatch goes);
void tell_memory(bool appears, const std::byte* at, std::size_t bytes);

void misuse(const std::string& what);
/// From now on misuse is kept, not fatal.
void collect_misuse();
/// What was collected since the last call.
[[nodiscard]] std::vector<std::string> take_misuse();

/// What exists in this process: handles, address ranges, streams, events, communicators, listeners.
void count_object(int change);
[[nodiscard]] int objects();

}  // namespace paceline::emulated
