// NodeMemory: the memory that the stages of an agent's machine share: telemetry blocks, cancel
// board, doorbells, rings, pools.
//
// On the conductor's machine the conductor makes it (runtime/loop/wiring); here the agent does, as
// MakeMemory describes it, and control messages name it by its id instead of a descriptor. Ids
// below kFirstId are the agent's own. An edge to another machine gets a relay at the end that is
// missing here. Threads: one, the agent's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"
#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/shm_region.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "runtime/cluster/relay.hpp"

namespace paceline {

inline constexpr std::uint64_t kRelayBellId = 1;     // the agent's relay sleeps on it
inline constexpr std::uint64_t kBoardId = 2;         // its cancel board
inline constexpr std::uint64_t kOwnTelemetryId = 3;  // the telemetry block of the stage at hand
inline constexpr std::uint64_t kFirstId = 16;

class NodeMemory {
public:
    /// Makes the relay's doorbell and the board.
    [[nodiscard]] Status open();
    [[nodiscard]] Result<Doorbell> relay_bell() const;
    [[nodiscard]] Result<std::shared_ptr<CancelBoard>> board() const;

    /// Makes these, and the relays of edges among them. Errors: OutOfMemory, System; Protocol for a
    /// description that makes no sense.
    [[nodiscard]] Status make(const remote::MakeMemory& wanted, Relay& relay);
    void drop(const remote::DropMemory& ids, Relay& relay);
    /// The descriptors for a control message, borrowed. Errc::Protocol names an id that is not
    /// there. `telemetry`: of the stage, -1 where there is none.
    [[nodiscard]] Result<std::vector<int>> files(std::span<const std::uint64_t> ids,
                                                 int telemetry) const;
    /// The stage of this machine at a relayed edge.
    [[nodiscard]] std::optional<remote::StageKey> stage_at(std::uint32_t edge) const;
    /// To announce control messages to a stage; nullptr before its doorbell was made.
    [[nodiscard]] Doorbell* bell_of(remote::StageKey stage);

private:
    struct Made {
        ShmFile file;
        remote::MemorySpec spec;
    };
    [[nodiscard]] Result<ShmFile> create(const remote::MemorySpec& spec) const;
    [[nodiscard]] Status add_relay(const remote::MemorySpec& ring, Relay& relay);
    [[nodiscard]] Result<ShmRegion> map(std::uint64_t id) const;
    [[nodiscard]] int fd_of(std::uint64_t id, int telemetry) const;

    ShmFile relay_bell_;
    ShmFile board_;
    std::map<std::uint64_t, Made> made_;
    std::map<remote::StageKey, Doorbell> bells_;
};

}  // namespace paceline
