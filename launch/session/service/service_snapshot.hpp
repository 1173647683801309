// ServiceSnapshot: what a service shows of itself; ShownSnapshot: the newest one, for any thread.
//
// The loop shows a new snapshot and readers share it; the lock is held while a pointer is copied.
// Threads: ShownSnapshot from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/pipeline_usage.hpp"

namespace paceline {

enum class ServiceState : std::uint8_t {
    Ok,
    Degraded,    // a stage is lost that decoding does not need: slower
    Recovering,  // one is lost that it needs: answers pause
    Changing,    // another pipeline is started: orders wait
    Draining,    // nothing more is taken
    Failed,      // the pipeline cannot continue, or has been shut down
};

struct ServiceSnapshot {
    ServiceState state = ServiceState::Ok;
    std::string why = {};  // names of lost stages, or the error
    std::vector<SessionProcess> stages = {};
    std::size_t waiting = 0;
    std::size_t running = 0;
    std::uint64_t answers = 0;    // that ended by themselves
    std::uint64_t cancelled = 0;  // by clients
    std::uint64_t failed = 0;     // with an error, deadlines among them
    std::uint64_t prompt_tokens = 0;
    std::uint64_t cached_tokens = 0;  // of prompts, found in the KV cache
    std::uint64_t tokens = 0;         // of answers
    VerdictTally verdicts = {};       // of answers that are over
    std::uint64_t replays = 0;
    std::uint64_t preemptions = 0;
    PipelineUsage usage = {};  // at most some ServiceFigures::kUsagePeriod old
    /// Of Recovering: since when.
    std::chrono::steady_clock::time_point recovering_since = {};
    /// When the loop was last seen to run. A busy pipeline is alive; one that is old is not.
    std::chrono::steady_clock::time_point heartbeat = {};
};

class ShownSnapshot {
public:
    void show(ServiceSnapshot next) {
        auto made = std::make_shared<const ServiceSnapshot>(std::move(next));
        const std::lock_guard lock{mutex_};
        snapshot_.swap(made);  // the old one is freed without the lock
    }
    /// Never nullptr.
    [[nodiscard]] std::shared_ptr<const ServiceSnapshot> shown() const {
        const std::lock_guard lock{mutex_};
        return snapshot_;
    }

private:
    mutable std::mutex mutex_;  // held for the copy of a pointer
    std::shared_ptr<const ServiceSnapshot> snapshot_ = std::make_shared<const ServiceSnapshot>();
};

}  // namespace paceline
