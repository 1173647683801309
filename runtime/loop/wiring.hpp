// Wiring: the channels of a pipeline, made by the conductor and attached by the stages.
//
// One ring per directed edge, one tensor pool beside it where tensors travel, one doorbell per
// process. All of it lives in sealed memory files that are passed as descriptors, so a crash
// leaves nothing behind. A stage's Wiring is what its loop (stage_loop.hpp) works on. An edge is
// between two actors; actors that share a process talk without one. The pool of an edge with a link
// (EdgeSpec::transport) has states only; its slots are opened by the loops (edge_links.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/transport/shm_region.hpp"
#include "ipc/transport/spsc_ring.hpp"
#include "ipc/transport/tensor_link.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/data_kinds.hpp"
#include "runtime/loop/process_spec.hpp"
#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {

/// One directed channel of the pipeline, between two actors.
struct EdgeSpec {
    StageId from;
    StageId to;
    std::uint32_t ring_slots = 64;  // a power of two; the last `urgent_slots` are reserved
    std::uint32_t urgent_slots = 16;
    std::uint32_t tensor_slots = 0;  // 0: no tensors travel here
    std::size_t tensor_bytes = 0;    // of one slot: rows of the largest batch x dim x 4
    /// Host for all that the conductor is an end of. Local is for edges within a process, Exported
    /// and Nccl for edges between two.
    Transport transport = Transport::Host;
    std::string name = {};  // "early -> final", for messages; empty: by numbers
    std::uint32_t frame_bytes = frame_bytes_for(kVerifyRowsMax);  // of the longest message
};

struct OutEdge {
    StageId from;  // an actor of this process
    StageId to;
    Epoch peer_epoch;
    RingProducer ring;
    std::optional<TensorProducer> pool;
    Doorbell bell;  // the consumer's
    Transport transport = Transport::Host;
    std::string name = {};
};
struct InEdge {
    StageId from;
    StageId to;  // an actor of this process
    Epoch peer_epoch;
    RingConsumer ring;
    std::optional<TensorConsumer> pool;
    Doorbell bell;  // the producer's: rung when it waits for room
    Transport transport = Transport::Host;
    std::string name = {};
};

/// What a process's loop works on. Move-only; owns its mappings.
struct Wiring {
    StageId self;                 // the process: its first actor
    std::vector<StageId> actors;  // hosted here
    Epoch epoch;
    std::uint32_t spin_micros = 0;
    Doorbell bell;
    std::uint32_t hang_limit_ms = 0;  // what takes longer than this hangs; 0: not limited
    std::uint32_t link_limit_ms = 0;  // a link must be open by then; 0: not limited
    std::vector<OutEdge> out;
    std::vector<InEdge> in;
    std::vector<StageId> absent;                // peers that are lost at the moment
    std::shared_ptr<StageTelemetry> telemetry;  // never nullptr
    std::shared_ptr<CancelBoard> board;         // nullptr where no other process cancels
};

struct AttachedEdges {
    std::vector<OutEdge> out;
    std::vector<InEdge> in;
    std::vector<StageId> absent;  // peers without a channel at the moment; may repeat
};

/// Attaches this process's ends of some channels to the files that came with a Wire or Rewire.
/// Every seal, size and header is checked; Errc::Protocol names the edge that is wrong.
[[nodiscard]] Result<AttachedEdges> attach_edges(Epoch own_epoch,
                                                 std::span<const control::EdgeWire> edges,
                                                 std::span<const OwnedFd> files);
[[nodiscard]] Result<Doorbell> attach_bell(std::span<const OwnedFd> files, std::uint32_t index);

/// All channels of a pipeline, held by the conductor: makes the memory, and says what to send
/// to each process. Neither copies nor maps a tensor.
///
/// On the conductor's machine the relay (runtime/cluster) takes the place of the processes of other
/// machines: they have one doorbell between them, the relay's.
///
/// A channel exists while both of its processes are wired. When one is lost, its channels are
/// removed (unwire()); its next incarnation gets new ones to all wired processes (wire()), in new
/// memory.
class WiringPlan {
public:
    enum class Checksums : std::uint8_t { HeadersOnly, Payloads };

    /// No process is wired yet. Errc::BadArgument names an edge to an unknown actor, one that is
    /// given twice, one whose transport is not possible, or an actor in two processes.
    [[nodiscard]] static Result<WiringPlan> create(std::vector<ProcessSpec> processes,
                                                   std::vector<EdgeSpec> edges,
                                                   Checksums checksums);

    /// Makes a doorbell for this incarnation, and channels to all that are wired already.
    [[nodiscard]] Status wire(StageId process, Epoch epoch);
    void unwire(StageId process);

    template <class M>
    struct WireMessage {
        M message;
        std::vector<int> files;  // borrowed from the plan, until its next wire() or unwire()
    };
    /// The Wire message for the process, once it is wired.
    [[nodiscard]] WireMessage<control::Wire> wire_message_for(StageId process) const;
    /// The Rewire message for `survivor` about `peer`. No edges if they share none.
    [[nodiscard]] WireMessage<control::Rewire> wire_message_about(StageId peer,
                                                                  StageId survivor) const;

    enum class Offer : std::uint8_t {
        Wanted,  // the first of this channel: to be passed on to home_of(offer.from)
        Stale,   // of an incarnation that was replaced, or not the first: dropped
        Wrong,   // there is no such edge with a link, or its consumer is another process
    };
    /// What to do with an offer that `sender` made.
    [[nodiscard]] Offer judge(const control::EdgeOffer& offer, StageId sender);

    /// The conductor's own ends, all or those with one peer.
    [[nodiscard]] Result<AttachedEdges> attach(StageId process,
                                               std::optional<StageId> peer = {}) const;
    [[nodiscard]] Result<Doorbell> bell_of(StageId process) const;
    [[nodiscard]] const ProcessSpec& process(StageId id) const;
    /// The process that hosts an actor. A bug if there is none.
    [[nodiscard]] StageId home_of(StageId actor) const;

private:
    struct Edge {
        EdgeSpec spec;
        StageId from_process;
        StageId to_process;
        ShmFile ring;  // empty while one end is not wired
        ShmFile pool;
        bool offered = false;  // the consumer's end was offered to the producer
    };
    struct Process {
        ProcessSpec spec;
        Epoch epoch;
        bool wired = false;
        ShmFile bell;
    };
    [[nodiscard]] const ShmFile& bell(const Process& process) const {
        return process.spec.node == 0 ? process.bell : relay_bell_;
    }
    [[nodiscard]] Process& find(StageId id);
    [[nodiscard]] const Process& find(StageId id) const;
    [[nodiscard]] const Process* home(StageId actor) const;
    [[nodiscard]] Status make_channel(Edge& edge);
    /// Appends the ends that `process` has (with `peer`, if given) and their files.
    void collect(StageId process,
                 std::optional<StageId> peer,
                 std::vector<control::EdgeWire>& edges,
                 std::vector<int>& files) const;

    std::vector<Process> processes_;
    std::vector<Edge> edges_;
    ShmFile relay_bell_;  // made with the first process of another machine
    Checksums checksums_ = Checksums::HeadersOnly;
};

}  // namespace paceline
