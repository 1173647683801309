// Wiring: the channels of a pipeline, made by the conductor and attached by the stages.
//
// One ring per directed edge, one tensor pool beside it where tensors travel, one doorbell per
// process. All of it lives in sealed memory files that are passed as descriptors, so a crash
// leaves nothing behind. A stage's Wiring is what its loop (stage_loop.hpp) works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/control.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/owned_fd.hpp"
#include "ipc/shm_region.hpp"
#include "ipc/spsc_ring.hpp"
#include "ipc/tensor_pool.hpp"

namespace paceline {

/// One directed channel of the pipeline.
struct EdgeSpec {
    StageId from;
    StageId to;
    std::uint32_t ring_slots = 64;  // a power of two; the last `urgent_slots` are reserved
    std::uint32_t urgent_slots = 16;
    std::uint32_t tensor_slots = 0;  // 0: no tensors travel here
    std::size_t tensor_bytes = 0;    // of one slot: rows of the largest wave x dim x 4
};

/// One process of the pipeline, as far as its channels are concerned.
struct StageSpec {
    StageId id;
    Epoch epoch{1};
    std::uint32_t spin_micros = 0;  // see choose_spin() in affinity.hpp
};

struct OutEdge {
    StageId to;
    RingProducer ring;
    std::optional<TensorProducer> pool;
    Doorbell bell;  // the consumer's
};
struct InEdge {
    StageId from;
    RingConsumer ring;
    std::optional<TensorConsumer> pool;
    Doorbell bell;  // the producer's: rung when it waits for room
};

/// The channels of one process. Move-only; owns its mappings.
struct Wiring {
    StageId self;
    Epoch epoch;
    std::uint32_t spin_micros = 0;
    Doorbell bell;
    std::vector<OutEdge> out;
    std::vector<InEdge> in;
};

/// Attaches one process's channels to the files that came with a Wire message.
/// Every seal, size and header is checked; Errc::Protocol names the edge that is wrong.
[[nodiscard]] Result<Wiring> attach_wiring(StageId self,
                                           Epoch epoch,
                                           const control::Wire& wire,
                                           std::span<const OwnedFd> files);

/// All channels of a pipeline, held by the conductor: makes the memory, and says what to send
/// to each stage. Neither copies nor maps a tensor.
class WiringPlan {
public:
    /// Errc::BadArgument names an edge to an unknown stage, or one that is given twice.
    [[nodiscard]] static Result<WiringPlan> create(std::span<const StageSpec> stages,
                                                   std::span<const EdgeSpec> edges);

    struct Letter {
        control::Wire wire;
        std::vector<int> files;  // borrowed from the plan
    };
    /// What stage `id` must be sent.
    [[nodiscard]] Letter letter_for(StageId id) const;
    /// The doorbell of stage `id`, for the conductor to announce cold messages with.
    [[nodiscard]] Result<Doorbell> bell_of(StageId id) const;
    /// The conductor's own end (any process that holds the plan may attach for itself).
    [[nodiscard]] Result<Wiring> attach(StageId id) const;

private:
    struct Edge {
        EdgeSpec spec;
        ShmFile ring;
        ShmFile pool;
    };
    struct Stage {
        StageSpec spec;
        ShmFile bell;
    };
    [[nodiscard]] const Stage* find(StageId id) const;
    std::vector<Stage> stages_;
    std::vector<Edge> edges_;
};

}  // namespace paceline
