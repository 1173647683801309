// Relay processes under a supervisor: the pipeline A -> B of the process tests, and what such a
// test must not leave behind. One thread.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <optional>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline::test {

using namespace std::
    chrono_literals;  // NOLINT(google-build-using-namespace): a test reads like prose

inline constexpr StageId kA{1};
inline constexpr StageId kB{2};

inline ProcessSpec child(StageId id, std::string name, std::string_view order) {
    ProcessSpec spec;
    spec.id = id;
    spec.name = std::move(name);
    spec.payload.resize(order.size());
    std::memcpy(spec.payload.data(), order.data(), order.size());
    return spec;
}

inline SupervisorOptions options() {
    SupervisorOptions options;
    options.command = {PACELINE_STAGE_FIXTURE};
    options.start_limit = 10s;
    options.catch_signals = false;
    return options;
}

inline std::vector<EdgeSpec> edges() {
    return {{kConductor, kA, 8, 2, 0, 0}, {kA, kB, 8, 2, 2, 64}, {kB, kConductor, 8, 2, 0, 0}};
}

/// Those whose names begin with `prefix`: other programs use some folders too.
inline int entries_of(const char* path, std::string_view prefix = "") {
    int count = 0;
    DIR* folder = ::opendir(path);
    while (const dirent* entry = folder != nullptr ? ::readdir(folder) : nullptr)
        count += std::string_view{entry->d_name}.starts_with(prefix) ? 1 : 0;
    if (folder != nullptr) ::closedir(folder);
    return count;
}

/// Kills these processes once the pipeline is at work.
inline std::jthread kill_soon(std::vector<pid_t> pids) {
    return std::jthread{[pids = std::move(pids)] {
        std::this_thread::sleep_for(30ms);
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    }};
}

/// What must be the same after a run as before it.
struct Leftovers {
    int descriptors = entries_of("/proc/self/fd");
    int shm = entries_of("/dev/shm", "paceline");
    ~Leftovers() {
        CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child, dead or alive
        CHECK(errno == ECHILD);
        CHECK(entries_of("/proc/self/fd") == descriptors);
        CHECK(entries_of("/dev/shm", "paceline") <= shm);
    }
};

/// Starts A -> B and gives the conductor's wiring.
inline Result<Wiring> start_relays(Supervisor& supervisor, std::string_view order_b = "relay 0") {
    const std::vector<ProcessSpec> children{child(kA, "segment-1", "relay 2"),
                                            child(kB, "segment-2", order_b)};
    const Status started = supervisor.start(children);
    if (!started.ok()) return started.error();
    const Result<std::vector<control::Hello>> hellos = supervisor.await_hellos();
    if (!hellos.ok()) return hellos.error();
    return supervisor.wire(edges(), 0);
}

inline bool has(const std::string& text, std::string_view part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE(text);
    return found;
}

inline std::vector<ProcessSpec> restartable(std::string_view order_b) {
    std::vector<ProcessSpec> children{child(kA, "segment-1", "relay 2"),
                                      child(kB, "segment-2", order_b)};
    for (ProcessSpec& spec : children) spec.on_death = OnDeath::RebuildChain;
    return children;
}

struct Pipeline {
    explicit Pipeline(SupervisorOptions chosen, std::string_view order_b = "relay 0") {
        chosen.on_news = [this](const std::string& sentence) { news.push_back(sentence); };
        supervisor = Supervisor::create(std::move(chosen)).value();
        REQUIRE(supervisor->start(restartable(order_b)).ok());
        REQUIRE(supervisor->await_hellos().ok());
        wiring = supervisor->wire(edges(), 0).value();
    }
    Status run(Actor& conductor) {
        StageLoop loop{std::move(*wiring), *supervisor, {}};
        loop.add(kConductor, conductor);
        return loop.run();
    }
    std::vector<std::string> news;
    std::unique_ptr<Supervisor> supervisor;
    std::optional<Wiring> wiring;
};

}  // namespace paceline::test
