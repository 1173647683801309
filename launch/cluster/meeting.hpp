// Meeting: how the machines of a run find each other, from the options and the environment of each.
//
// The conductor listens where `meet` says and waits for the agents (open_cluster()); an agent is
// agent.hpp. Reads the key file and asks the system for its name.
// Threads: that of the command.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_key.hpp"
#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/starter.hpp"
#include "launch/config/supervision_config.hpp"

namespace paceline {

/// The options that a conductor and an agent have in common.
struct MeetingOptions {
    std::string node;  // --node: "K/N"
    std::string meet;  // --meet: "HOST:PORT"
    std::string key;   // --key: a file; empty: PACELINE_KEY
    std::string name;  // --node-name; empty: the host's
};
void add_meeting_options(Command& command, MeetingOptions& options);

/// Of the conductor: how many machines, at least two, and where they meet. Nothing: this machine
/// alone. Errors: those of read_starter(); BadArgument on a rank that is not 0.
[[nodiscard]] Result<std::optional<StarterPlace>> conductor_place(const MeetingOptions& options,
                                                                  const Environment& environment);

/// The key of --key or PACELINE_KEY. Errors: BadArgument if there is neither; those of NodeKey.
[[nodiscard]] Result<remote::NodeKey> meeting_key(const MeetingOptions& options,
                                                  const Environment& environment);

/// Whether a conductor can decode on the machines that it is told of: with stages that its command
/// names (`names_stages`), and with a key. Errors: those of conductor_place() and meeting_key();
/// BadArgument.
[[nodiscard]] Status check_meeting(const MeetingOptions& options,
                                   const Environment& environment,
                                   bool names_stages);

/// What this machine says of itself. `name` empty: the host's.
[[nodiscard]] Result<remote::Hello> hello_of_here(const std::string& name);

/// What the wait for the other machines tells; each may be empty.
struct MeetingNews {
    /// Sentences for the log, from any thread; `is_news`: a machine is lost or back.
    std::function<void(const std::string& sentence, bool is_news)> say;
    ConductorHub::OnMissing missing = {};
};

/// Waits until the other machines are there. Errors: those of ConductorHub, meeting_key() and
/// hello_of_here().
[[nodiscard]] Result<std::unique_ptr<Cluster>> open_cluster(const StarterPlace& place,
                                                            const MeetingOptions& options,
                                                            const Environment& environment,
                                                            const SupervisionConfig& supervision,
                                                            MeetingNews news);

}  // namespace paceline
