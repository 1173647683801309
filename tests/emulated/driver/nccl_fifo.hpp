// Fifo: the data between two ranks of an emulated pair that were sent and not yet received: eight
// steps.
//
//   sender --> [step][step][step] . . . . . --> receiver    written, read: steps in all
//
// A send ends when its last step is in, so small ones end unreceived and large ones wait. Counts
// are not compared: a receiver takes as many steps as its own size has. Lines are 8 bytes, as in
// NCCL's protocol for small messages: a receiver that wants more lines than a step has never sees
// them.
//
// In shared memory, one writer, one reader. A step is written before `written` is raised (release),
// read after `written` was read (acquire); taken before `read` is raised (release), overwritten
// after it was read (acquire).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline::emulated {

struct Fifo {
    static constexpr std::size_t kSteps = 8;
    static constexpr std::size_t kStepBytes = std::size_t{512} << 10U;
    static constexpr std::size_t kLineBytes = 8;

    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    alignas(64) std::atomic<std::uint32_t> sender_connected;
    alignas(64) std::atomic<std::uint32_t> receiver_connected;
    std::array<std::uint64_t, kSteps> lines;
    alignas(64) std::array<std::array<std::byte, kStepBytes>, kSteps> steps;

    /// The next piece of a send, if there is room.
    [[nodiscard]] bool put(const std::byte* from, std::size_t bytes) {
        const std::uint64_t at = written.load(std::memory_order_relaxed);
        if (at - read.load(std::memory_order_acquire) >= kSteps) return false;
        std::memcpy(steps[at % kSteps].data(), from, bytes);
        lines[at % kSteps] = (bytes + kLineBytes - 1) / kLineBytes;
        written.store(at + 1, std::memory_order_release);
        return true;
    }
    /// The next piece of a receive, if it is there.
    [[nodiscard]] bool take(std::byte* to, std::size_t bytes) {
        const std::uint64_t at = read.load(std::memory_order_relaxed);
        if (at == written.load(std::memory_order_acquire)) return false;
        if (lines[at % kSteps] < (bytes + kLineBytes - 1) / kLineBytes) return false;
        std::memcpy(to, steps[at % kSteps].data(), bytes);
        read.store(at + 1, std::memory_order_release);
        return true;
    }
};

/// The memory file of a communicator: by the sending rank. Zeros are its first state.
struct Pair {
    std::array<Fifo, 2> from;
};

}  // namespace paceline::emulated
