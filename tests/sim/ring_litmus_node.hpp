// Node: one end of a litmus world, a small loop of the kind that a stage runs.
//
// It takes messages, looks at tensors, gives them back in any order, sends, and sleeps on its
// doorbell when there is nothing to do. It uses the real ring, pool and doorbell; between any two
// calls of them, and at every fault point inside, the other end may get turns.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ipc/transport/doorbell.hpp"
#include "tests/sim/ring_litmus_channel.hpp"

namespace paceline::test {

/// Thrown out of a fault point: the process that met it is dead.
struct Killed {};

class Node {
public:
    /// What a node needs of its world.
    struct Surroundings {
        Fibers& fibers;
        const Scenario& scenario;
        Doorbell& own;
        Doorbell& peer;
        Channel& in;
        Channel& out;
        std::function<void(const std::string&)> fail;  // does not return
        std::function<void(std::uint32_t)> die_in;     // fault points until death; 0: never
    };
    Node(std::uint32_t end, std::uint64_t seed, Surroundings around);

    /// The whole life of this end, with its deaths.
    void run();
    /// Whether something waits that it would act upon: if so it may not sleep unless another is
    /// going to ring.
    [[nodiscard]] bool has_reason();
    [[nodiscard]] std::uint64_t old_frames_published() const { return first_published_; }
    [[nodiscard]] std::uint64_t old_frames_dropped() const { return in_.stale_frames(); }

private:
    struct Held {
        PoolRef slot;
        std::uint32_t index;
        std::uint32_t bytes;
    };
    void haunt();
    void live();
    void attach_producer();
    [[nodiscard]] bool is_over() const;
    [[nodiscard]] bool take_messages();
    void take(std::span<const std::byte> frame, std::uint16_t kind);
    void hold(const Message& message);
    void look_at(const Held& held);
    [[nodiscard]] bool release_some(bool all);
    void try_old_reference();
    [[nodiscard]] bool send_messages();
    [[nodiscard]] Sort next_sort();
    [[nodiscard]] bool send_own(Sort sort);
    void send_answer();
    [[nodiscard]] std::optional<PoolRef> fill_tensor(std::uint32_t index);
    [[nodiscard]] bool put(Message message);
    void publish();
    void ring_peer();
    void sleep();
    void turn(std::uint32_t tag) { around_.fibers.turn(tag); }

    SeededRandom random_;
    Surroundings around_;
    std::uint32_t to_send_;
    std::uint32_t to_take_;
    RingConsumer in_;
    std::optional<RingProducer> out_;
    std::optional<TensorConsumer> tensors_in_;
    std::optional<TensorProducer> tensors_out_;
    std::vector<Held> held_;
    std::vector<PoolRef> released_;
    std::optional<Urgency> wants_room_;
    bool wants_slot_ = false;
    bool has_news_ = false;  // the peer is to be rung
    bool has_unpublished_ = false;
    std::uint64_t first_published_ = 0;
    std::uint32_t own_sent_ = 0;
    std::uint32_t own_taken_ = 0;  // what the peer sent of its own accord
    std::uint32_t questions_ = 0;  // without an answer yet
    std::uint32_t owed_ = 0;       // answers
};

}  // namespace paceline::test
