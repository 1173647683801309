// The producer of a link in a process of its own: this program, started again.
//
// main() of the programs that use it calls run_as_peer() first. CUDA does not survive fork(), so
// the child begins anew; the line to it and the offer go over one socket.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "link_fixture.hpp"

namespace paceline::test {

enum class Role : int {
    Whole,    // sends all tensors of the plan
    Mute,     // opens its end, and never sends
    Silent,   // announces a tensor, and never sends it
    Unready,  // takes the offer, and opens nothing
};

class PeerProcess {
public:
    PeerProcess(const Plan& plan, Role role);
    PeerProcess(const PeerProcess&) = delete;
    PeerProcess& operator=(const PeerProcess&) = delete;
    ~PeerProcess();

    [[nodiscard]] int line() const { return line_.consumer.get(); }
    void give(LinkOffer offer);
    void kill();
    /// Its exit code: 0 if all was well.
    [[nodiscard]] int wait();

private:
    Line line_;
    pid_t process_ = -1;
};

[[nodiscard]] bool is_peer(int argc, char** argv);
/// The exit code, if this process was started as a peer.
[[nodiscard]] std::optional<int> run_as_peer(int argc, char** argv);

/// The producer's device where both ends are in one process: another one if there is one.
[[nodiscard]] int other_device();
/// Whether links of `transport` cannot be tested within one process here; says so once.
[[nodiscard]] bool skipped(Transport transport);
[[nodiscard]] bool skipped_between_processes(Transport transport);

}  // namespace paceline::test
