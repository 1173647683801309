// RelayOut and RelayIn: the two ends of an edge between machines.
//
//   stage -> ring, pool -> [RelayOut] == frames ==> [RelayIn] -> ring, pool -> stage
//                                     <== EdgeRoom, TensorFree ==
//
// Each is the missing end of a local ring, and of the pool beside it: the stages at both ends see
// local channels. Frames stay in order; relay_window.hpp bounds them and keeps the reserve of
// urgent ones. The tensor that a message announces follows it in parts, into the slot of the same
// number and generation at the other end: the two pools are copies of each other, and a slot is
// free for the producer when the consumer at the other end has released it. So the edge holds as
// many tensors as on one machine.
//
// What is wrong in the local memory is the local stage's doing: pump() returns it. What is wrong in
// a frame is the other machine's: the on_...() return it, and the connection is closed.
// Own their mappings. Threads: one, the relay's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/shm_region.hpp"
#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "runtime/cluster/frame_port.hpp"
#include "runtime/cluster/relay_window.hpp"

namespace paceline {

/// The memory of one local channel.
struct ChannelMemory {
    ShmRegion ring;
    std::optional<ShmRegion> pool;
    Doorbell bell;  // of the local stage
};

class RelayOut {
public:
    /// `epoch`: the producer's. Errc::Protocol for memory that is no such channel.
    [[nodiscard]] static Result<RelayOut> attach(std::uint32_t edge,
                                                 Epoch epoch,
                                                 ChannelMemory memory);

    /// Takes the next frame out of the ring, if none is held and the window has room.
    [[nodiscard]] Status fill();
    /// Sends what is held, as far as window and connection have room. Whether all of a frame went.
    [[nodiscard]] bool flush(FramePort& port);
    [[nodiscard]] Status on_room(std::uint64_t taken) { return window_.note_taken(taken); }
    void on_free(PoolRef slot);
    [[nodiscard]] bool has_input() const { return held_.has_value() || ring_.has_frame(); }

private:
    /// A frame that was taken out of the ring, and what of it is still to be sent.
    struct Held {
        std::uint16_t kind = 0;
        std::size_t bytes = 0;  // of it, in buffer_
        Urgency urgency = Urgency::Normal;
        bool sent = false;  // its tensor may not have been
        std::optional<PoolRef> tensor{};
        std::span<const std::byte> data{};  // of the tensor; empty: it is not published
        std::size_t offset = 0;
    };
    RelayOut(std::uint32_t edge, RingConsumer ring, WindowSize size, Doorbell bell);
    void hold(const Popped& popped);
    [[nodiscard]] bool send_held(FramePort& port);
    [[nodiscard]] bool send_tensor(FramePort& port);

    std::uint32_t edge_;
    RingConsumer ring_;
    std::optional<TensorConsumer> pool_;
    Doorbell bell_;
    SendWindow window_;
    std::vector<std::byte> buffer_;
    std::vector<std::uint32_t> sent_;  // the generation of each slot that was sent last
    std::optional<Held> held_;
};

class RelayIn {
public:
    [[nodiscard]] static Result<RelayIn> attach(std::uint32_t edge,
                                                Epoch epoch,
                                                ChannelMemory memory);

    [[nodiscard]] Status on_frame(std::uint16_t kind, std::span<const std::byte> payload);
    [[nodiscard]] Status on_part(const remote::TensorPart& part);
    /// Puts what has come into the ring, and tells the sender of room and free slots.
    [[nodiscard]] Status pump(FramePort& port);

private:
    struct Waiting {
        std::uint16_t kind = 0;
        std::vector<std::byte> payload;
        std::optional<PoolRef> tensor;  // is to come first
    };
    struct Slot {
        std::uint32_t wanted = 0;  // the generation that was announced last
        std::uint32_t complete = 0;
        bool lent = false;  // published here and not yet free
        std::uint64_t received = 0;
    };
    RelayIn(std::uint32_t edge, RingProducer ring, WindowSize size, Doorbell bell);
    [[nodiscard]] bool is_complete(PoolRef slot) const {
        return slots_[slot.index].complete == slot.generation;
    }
    [[nodiscard]] Status finish(PoolRef slot, std::uint64_t bytes);
    void tell_free(FramePort& port);

    std::uint32_t edge_;
    RingProducer ring_;
    ShmRegion pool_memory_;
    std::optional<PoolView> pool_;
    Doorbell bell_;
    ReceiveWindow window_;
    std::uint32_t payload_bytes_ = 0;
    std::deque<Waiting> queue_;
    std::vector<Slot> slots_;
    bool broken_ = false;  // the local consumer wrote a slot that was not its own
};

}  // namespace paceline
