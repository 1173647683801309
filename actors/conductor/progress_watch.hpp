// ProgressWatch: finds running requests that get no verdicts although no stage is known to be lost.
//
// The supervisor detects stages that die, hang or stop. This class detects faults after which every
// loop still runs: a message that was lost or dropped by mistake, or a wait that never ends.
//
//   begun() ---> [prefill] ---verdict()---> [decoding] ---verdict()---+
//                    |                       |     ^                  |
//                    |                       |     +------------------+
//                    +-------- limit --------+--> overdue() returns it; its owner
//                                                 ends it or begins it again
//
// The limit is `slack` times the longest wait between two verdicts so far (which decays with later
// ones), at least `floor`. It is extended by:
// - Prompt rows, its own or another's. With `rows_done` (a number that changes while the stages
//   process prompts) the limit counts from its last change; each row of the prompts in front is
//   worth `row_limit` at most. Without it each row is worth `row_limit`.
// - A pause of this process or of the whole machine: if two calls of overdue() are more than two
//   periods apart, all waits are extended by the excess.
// During recovery no request is watched: the owner calls ended() when a stage is lost.
//
// Pure: time is the caller's. Threads: the conductor's loop. Bounded by the requests that run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

struct ProgressRules {
    /// More than the supervisor takes to notice and kill a stage that hangs or stops. 0: no limit.
    Micros floor{60'000'000};
    int slack = 10;
    Micros row_limit{1'000'000};
};

class ProgressWatch {
public:
    struct Overdue {
        RequestId request;
        Micros waited;
        Micros limit;  // that applied
    };

    explicit ProgressWatch(const ProgressRules& rules) : rules_{rules} {}

    /// An attempt of `request` was begun, whose prompt has `rows` rows to be processed.
    void begun(RequestId request, std::int32_t rows, Micros now);
    /// A verdict of the current attempt was committed. Unknown: nothing happens.
    void verdict(RequestId request, Micros now);
    /// It is no longer watched. Unknown: nothing happens.
    void ended(RequestId request) { waits_.erase(request); }

    /// No request is watched, or there is no limit: overdue() need not be called.
    [[nodiscard]] bool idle() const { return waits_.empty() || rules_.floor.count() == 0; }
    /// How often overdue() is to be called.
    [[nodiscard]] Micros period() const;
    /// Those that have waited for too long, in the order of their ids.
    [[nodiscard]] std::vector<Overdue> overdue(Micros now, std::optional<std::uint64_t> rows_done);

private:
    struct Wait {
        Micros since{0};        // the last verdict, or the Begin
        Micros quiet_since{0};  // the same, or the last change of rows_done
        std::int32_t rows = 0;  // of its prompt; 0 once a verdict has come
        Micros allowance{0};    // for prompt rows in front, the most since `since`
        bool answered = false;  // a verdict of this attempt has come
    };
    void excuse_pause(Micros now);
    void restart(Wait& wait, Micros now) const;

    ProgressRules rules_;
    std::map<RequestId, Wait> waits_;
    Micros longest_{0};    // between two verdicts of an attempt
    Micros looked_at_{0};  // by overdue()
    std::uint64_t rows_done_ = 0;
};

}  // namespace paceline
