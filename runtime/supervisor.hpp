// Supervisor: the conductor's table of children, and everything that can happen to them.
//
//     auto supervisor = Supervisor::create(options);
//     supervisor->start(children)                // spawn all, hand out assignments
//     auto hellos = supervisor->await_hellos();  // all loaded; the caller compares them
//     auto wiring = supervisor->wire(edges, spin_micros);  // channels out, all Ready
//     StageLoop loop(std::move(wiring), *supervisor, {}); loop.add(kConductor, conductor); loop.run();
//     supervisor->shutdown();                    // or the destructor, at once
//
// Every wait is on all of {each child's pidfd, each control socket, the deadline, SIGINT and
// SIGTERM} at once. A child that dies, reports Failed, closes its socket or misses the start
// deadline ends the run with an error that names it, says how it ended and repeats its last log
// lines. The rest is killed with its process groups and reaped: nothing is left behind.
//
// Threads: create, use and destroy on one thread; that thread forks the children. It maps no
// channel but the conductor's own, so no crash of a child can reach it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/control.hpp"
#include "runtime/control_port.hpp"
#include "runtime/wiring.hpp"

namespace paceline {

/// What follows when a child dies. Only StopRun is implemented; start() refuses the others by
/// name.
enum class OnDeath : std::uint8_t {
    StopRun,       // the run ends with an error that names the child
    RestartAlone,  // a hint is lost, decoding goes on
    RebuildChain,  // the committed tokens are replayed
};
/// "stop-run", "restart-alone", "rebuild-chain": as written in a configuration.
[[nodiscard]] Result<OnDeath> parse_on_death(std::string_view text);
[[nodiscard]] const char* name_of(OnDeath policy);

struct ChildSpec {
    StageId id;                      // 1 or more; 0 is the conductor
    std::string name;                // "draft", "segment-1": for messages and log prefixes
    std::vector<int> cores;          // empty: not pinned
    std::vector<std::byte> payload;  // of its Assign
    OnDeath on_death = OnDeath::StopRun;
};

struct SupervisorOptions {
    std::chrono::milliseconds start_limit{120'000};  // from start() until all said Hello, and
                                                     // again from wire() until all are Ready
    std::chrono::milliseconds shutdown_grace{2'000};
    std::vector<std::string> command;  // of every child; empty: /proc/self/exe stage
    /// Called for each line that a child writes. Empty: the lines are only kept as last words.
    std::function<void(std::string_view child, std::string_view line)> on_log;
    std::size_t last_words = 12;  // lines kept per child
    bool catch_signals = true;    // SIGINT and SIGTERM end the run in good order
};

class Supervisor final : public ControlPort {
public:
    [[nodiscard]] static Result<std::unique_ptr<Supervisor>> create(SupervisorOptions options);
    ~Supervisor() override;  // kills and reaps whatever is left

    [[nodiscard]] Status start(std::span<const ChildSpec> children);
    /// In the order of the children given to start().
    [[nodiscard]] Result<std::vector<control::Hello>> await_hellos();
    /// Makes the channels, sends each stage its end, waits until all are Ready and returns the
    /// conductor's own end. `spin_micros` goes to every stage; the conductor itself never spins.
    [[nodiscard]] Result<Wiring> wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros);

    /// Orderly end: Shutdown to all, wait for them, kill what remains after the grace time.
    /// An error if one of them ended badly.
    [[nodiscard]] Status shutdown();

    /// ControlPort: cold messages of the conductor's actor. poll() reports a dead child (its
    /// error) and SIGINT or SIGTERM (Errc::Cancelled).
    [[nodiscard]] Status send(StageId to, const control::Message& message) override;
    [[nodiscard]] Status poll(const Deliver& deliver) override;

    [[nodiscard]] std::vector<pid_t> pids() const;

private:
    class Impl;
    explicit Supervisor(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
