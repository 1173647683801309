// SimEnvironment: what the actors of one simulated incarnation reach through their host: channels,
// the conductor, counters, trace, the cancel board, and random numbers from the seed.
//
// A peer that breaks the rules of a channel may be found while a handler runs that still holds its
// tensors: it is only recorded, and the loop closes the channels when no handler runs. Borrows the
// process. One thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/loop/actor_host.hpp"
#include "runtime/simulation/sim_process.hpp"

namespace paceline {

[[nodiscard]] std::string describe_frame(std::uint16_t kind, std::span<const std::byte> bytes);

class SimEnvironment final : public HostEnvironment {
public:
    explicit SimEnvironment(SimProcess& process);

    [[nodiscard]] Micros now() const override { return process_.self.site.core.micros(); }
    [[nodiscard]] Push send(StageId from,
                            StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override;
    void post(StageId from, StageId to, const control::Message& message) override;
    [[nodiscard]] Epoch epoch_of(StageId /*self*/, StageId peer) const override {
        return process_.edges.epoch_of(peer);
    }
    void report_fault(StageId self, StageId peer, Error error) override;
    [[nodiscard]] TensorProducer* tensors_to(StageId self, StageId to) override;
    [[nodiscard]] TensorConsumer* tensors_from(StageId self, StageId from) override {
        return process_.edges.tensors_from(self, from);
    }
    [[nodiscard]] std::uint64_t random() override { return random_.next(); }
    void trace(TraceEvent event) override;
    void count(Counter counter, std::uint64_t add) override;
    void set(Gauge gauge, std::uint64_t value) override;
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override;
    void cancel_before(RequestId request, Attempt valid) override;
    /// A job's work takes no time of its own, so nothing can happen during it.
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId /*request*/) override {
        return nullptr;
    }
    void publish_watermark(RequestId /*request*/,
                           Attempt /*attempt*/,
                           Position /*position*/,
                           TokenId /*token*/) override {}
    void excuse_loss(StageId stage) override { process_.self.site.excuse_loss(stage); }

    /// The process's own choice, from the same numbers.
    [[nodiscard]] bool chance(std::uint32_t percent) { return random_.chance(percent); }
    /// Whether a fault of this peer was found since the last take_faulty().
    [[nodiscard]] bool is_faulty(StageId peer) const;
    [[nodiscard]] std::vector<SimEdgeFault> take_faulty() { return std::exchange(faulty_, {}); }

private:
    SimProcess& process_;
    SimRandom random_;
    std::vector<SimEdgeFault> faulty_;
};

}  // namespace paceline
