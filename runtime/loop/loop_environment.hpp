// LoopEnvironment: what the actors of a real process reach beyond it: channels, control port,
// telemetry block, cancel board.
//
// A fault that an actor finds in its peer's messages is only recorded (peer_faults.hpp), because
// the actor may still hold tensors of the channel.
// Borrows all that it is given; shares the cancel board, which may be nullptr. Threads: the loop's.
#pragma once

#include <memory>
#include <random>
#include <utility>

#include "ipc/wire/cancel_board.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/loop_frames.hpp"
#include "runtime/loop/loop_telemetry.hpp"
#include "runtime/loop/stage_edges.hpp"

namespace paceline {

class LoopEnvironment final : public HostEnvironment {
public:
    LoopEnvironment(ActorHost& host,
                    StageEdges& edges,
                    LoopFrames& frames,
                    LoopTelemetry& telemetry,
                    ControlPort& port,
                    std::shared_ptr<CancelBoard> board)
        : host_{host},
          edges_{edges},
          frames_{frames},
          telemetry_{telemetry},
          port_{port},
          board_{std::move(board)} {}

    [[nodiscard]] Micros now() const override { return steady_now(); }
    [[nodiscard]] Push send(StageId from,
                            StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        return frames_.send(from, to, kind, bytes);
    }
    void post(StageId from, StageId to, const control::Message& message) override {
        host_.end_on_error(port_.send({from, to}, message));
    }
    [[nodiscard]] Epoch epoch_of(StageId /*self*/, StageId peer) const override {
        return edges_.epoch_of(peer);
    }
    void report_fault(StageId /*self*/, StageId peer, Error error) override {
        edges_.faults().add("from", peer, error);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId self, StageId to) override {
        return edges_.tensors_to(self, to);
    }
    [[nodiscard]] TensorConsumer* tensors_from(StageId self, StageId from) override {
        return edges_.tensors_from(self, from);
    }
    [[nodiscard]] std::uint64_t random() override { return random_(); }
    void trace(TraceEvent event) override { telemetry_.trace(event); }
    void count(Counter counter, std::uint64_t add) override { telemetry_.count(counter, add); }
    void set(Gauge gauge, std::uint64_t value) override { telemetry_.set(gauge, value); }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override {
        return board_ ? board_->word_of(request) : nullptr;
    }
    void cancel_before(RequestId request, Attempt valid) override {
        if (board_) board_->cancel_before(request, valid);
    }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId request) override {
        return board_ ? board_->watermark_of(request) : nullptr;
    }
    void publish_watermark(RequestId request,
                           Attempt attempt,
                           Position position,
                           TokenId token) override {
        if (board_) board_->publish_watermark(request, attempt, position, token);
    }
    void excuse_loss(StageId stage) override { port_.excuse_loss(stage); }

private:
    ActorHost& host_;
    StageEdges& edges_;
    LoopFrames& frames_;
    LoopTelemetry& telemetry_;
    ControlPort& port_;
    std::shared_ptr<CancelBoard> board_;
    std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace paceline
