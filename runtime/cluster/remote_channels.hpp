// RemoteChannels: turns the memory files of control messages for the stages of another machine into
// descriptions, from which the agent there makes its own, and into the ends of the relay here.
//
// For each edge of a Wire or Rewire:
//   the peer is a stage of the same machine   the agent makes one ring for both, no relay
//   else                                      the agent makes a ring of the same size, and at both
//                                             rings a relay takes the place of the missing stage
//
// The message's file numbers are replaced: they number the ids that go with it. Threads: one, the
// supervisor's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/wire/control.hpp"
#include "runtime/cluster/relay.hpp"

namespace paceline {

class RemoteChannels {
public:
    /// The stage of the same machine that hosts an actor; nothing: it runs elsewhere.
    using Home = std::function<std::optional<remote::StageKey>(StageId actor)>;
    struct Plan {
        remote::MakeMemory make;
        std::vector<std::uint64_t> ids;  // what the message's file numbers mean
        std::vector<std::pair<std::uint32_t, Relay::End>> ends;
        std::vector<std::pair<std::uint32_t, control::EdgeWire>> relayed;  // as they were given
    };

    /// Errors: those of attaching to memory; Unsupported for tensors on a device.
    [[nodiscard]] Result<Plan> plan(remote::StageKey who,
                                    control::Wire& wire,
                                    std::span<const int> files,
                                    const Home& home);
    [[nodiscard]] Result<Plan> plan(remote::StageKey who,
                                    control::Rewire& rewire,
                                    std::span<const int> files,
                                    const Home& home);

    struct Dropped {
        remote::DropMemory memory;
        std::vector<std::uint32_t> edges;
    };
    /// The channels of `who` with these actors; all of them and its doorbell if `peers` is empty.
    [[nodiscard]] Dropped drop(remote::StageKey who, std::span<const StageId> peers);

private:
    struct Channel {
        StageId peer;
        std::uint64_t ring = 0;
        std::uint64_t pool = 0;  // 0: none
        std::uint32_t edge = 0;  // 0: not relayed
    };
    /// Of a memory file, as long as one holds it.
    using FileIdentity = std::pair<std::uint64_t, std::uint64_t>;  // device, inode
    struct Shared {
        OwnedFd held;
        std::uint64_t id = 0;
    };
    [[nodiscard]] Status add_edges(Plan& plan,
                                   remote::StageKey who,
                                   std::vector<control::EdgeWire>& edges,
                                   std::span<const int> files,
                                   const Home& home);
    [[nodiscard]] Status add_edge(Plan& plan,
                                  remote::StageKey who,
                                  control::EdgeWire& edge,
                                  std::span<const int> files,
                                  const Home& home);
    [[nodiscard]] Status add_relay(Plan& plan,
                                   std::uint32_t number,
                                   const control::EdgeWire& edge,
                                   Epoch producer,
                                   std::span<const int> files);
    [[nodiscard]] Result<std::pair<std::uint64_t, bool>> id_of(int file);
    [[nodiscard]] std::uint64_t bell_of(Plan& plan, remote::StageKey stage);

    std::uint64_t next_id_ = 16;  // NodeMemory's kFirstId
    std::uint32_t next_edge_ = 1;
    std::map<remote::StageKey, std::uint64_t> bells_;
    std::map<FileIdentity, Shared> shared_;  // rings and pools of both ends there
    std::map<remote::StageKey, std::vector<Channel>> channels_;
};

}  // namespace paceline
