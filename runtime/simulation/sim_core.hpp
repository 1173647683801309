// SimCore: what all parts of a simulated world share: the clock, the queue of events, the seed's
// choices, the hash of everything that happened, the first violation of an oracle, and why the run
// ended before its time.
//
// Events of equal time happen in the order in which they were asked for. The hash covers every
// event with its time, so two runs with the same hash did the same.
#pragma once

#include <cstdint>
#include <fmt/core.h>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "runtime/loop/context.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

enum class SimEventKind : std::uint8_t {
    Step,       // process `who` runs an iteration of its loop
    JobDone,    // its job `data` ends
    Thaw,       // it continues after a freeze
    Die,        // a kill reaches it
    Loaded,     // it has loaded
    ControlUp,  // its connection brings the conductor something
    Overdue,    // its job should have ended
    Hung,       // its freeze `data` has lasted longer than the hang limit
    Gone,       // the supervisor learns that it has ended
    Suspicion,  // the supervisor suspects it, rightly or not
    Tick,       // the supervisor's recovery has something to do
    Fault,      // fault `data` of the plan
    Call,       // the test's call `data`
    Machine,    // call `data` of the other machines
};

struct SimEvent {
    SimTime at{0};
    std::uint64_t order = 0;
    SimEventKind kind = SimEventKind::Step;
    std::uint32_t who = 0;  // an incarnation's serial number
    std::uint64_t data = 0;
    bool operator>(const SimEvent& other) const {
        return at != other.at ? at > other.at : order > other.order;
    }
};

class SimCore {
public:
    explicit SimCore(std::uint64_t seed) : random{seed} {}

    void push(SimTime at, SimEventKind kind, std::uint32_t who, std::uint64_t data = 0) {
        queue_.push({at < now ? now : at, order_++, kind, who, data});
    }
    /// The next event; sets the clock to its time. Nothing: no event is left.
    [[nodiscard]] std::optional<SimEvent> pop() {
        if (queue_.empty()) return std::nullopt;
        const SimEvent event = queue_.top();
        queue_.pop();
        now = event.at;
        ++events;
        note(static_cast<std::uint64_t>(event.kind) << 32U | event.who, event.data);
        return event;
    }
    [[nodiscard]] std::optional<SimTime> next_at() const {
        if (queue_.empty()) return std::nullopt;
        return queue_.top().at;
    }
    [[nodiscard]] Micros micros() const { return std::chrono::duration_cast<Micros>(now); }

    /// Something happened: into the hash.
    void note(std::uint64_t what, std::uint64_t data) {
        for (const std::uint64_t word : {static_cast<std::uint64_t>(now.count()), what, data}) {
            hash = (hash ^ word) * 0x9fb21c651e98df25ULL;
            hash ^= hash >> 29U;
        }
    }
    /// An oracle is violated; the first one is kept.
    void violate(std::string what) {
        if (!violation) violation = std::move(what);
    }
    /// The run ends; the first reason is kept.
    void give_up(Error why) {
        if (!gave_up) gave_up = std::move(why);
    }
    /// One line for the observer. Costs nothing without one.
    template <class Text>
    void tell(Text text) {
        if (on_line) on_line(fmt::format("{} us: {}", now.count() / 1'000, text()));
    }

    SimTime now{0};
    SimRandom random;
    std::uint64_t events = 0;
    std::uint64_t hash = 0x243f6a8885a308d3ULL;
    std::optional<std::string> violation;
    std::optional<Error> gave_up;
    std::function<void(const std::string& line)> on_line;

private:
    std::priority_queue<SimEvent, std::vector<SimEvent>, std::greater<>> queue_;
    std::uint64_t order_ = 0;
};

}  // namespace paceline
