// DraftWait: whether a request's next batch waits for the draft's proposal, and until when.
//
//     Sequential   verdict ------ waits ------> the draft is Complete for the new root, or has
//                                               candidates below it and is not adding to them
//     Lockstep     batch ---- is held (*) ----> the draft is Halfway in the round of the batch
//                  verdict ------ waits ------> the draft is Complete in the round of the batch
//     AtOnce       never waits
//
// (*) with an exit: the Dispatcher passes the batch on at halfway().
// A wait ends after DraftWaitRule::wait at the latest. After kSilentWaitsMax waits in a row that
// timed out there is none until the draft is in time again, and none for a draft that is lost. None
// either where no candidate is useful or none comes: the client or the account wants none, the next
// token is the last one, the draft was told to rest, now or when the root came, or it had nothing
// to propose several times in a row.
// The draft's own position comes from its proposals (receive()); a proposal for an earlier root
// takes nothing back.
// Borrows the rule and the request's state. No clock: times come by calls. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/account/speculation_account.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/segment/scheduling/dispatch_options.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

/// Of all requests.
struct DraftWaitRule {
    StartRule start = StartRule::Sequential;
    Micros wait{0};
    bool draft_is_instant = false;                // as in DispatchOptions
    const SpeculationAccount* account = nullptr;  // borrowed; nullptr: candidates are always useful
    bool draft_present = true;
};

class DraftWait {
public:
    /// A draft that misses this many waits in a row counts as dead or too slow.
    static constexpr std::uint32_t kSilentWaitsMax = 3;
    /// A draft that had nothing to propose so many times in a row is not waited for.
    static constexpr std::uint32_t kEmptyAnswersMax = 3;

    /// The request has begun: a wait begins.
    DraftWait(const DraftWaitRule& rule, const RequestState& state, Micros now);

    /// DraftWaitRule::draft_present was set.
    void draft_changed();
    /// A proposal of the draft whose root is part of the text.
    void receive(const msg::Proposal& proposal, Micros now);
    /// Rows of the prompt were sent: the wait begins again.
    void prefill_sent(Micros now) { until_ = now + rule_.wait; }
    /// A verify batch was formed; `first`: no other one is without verdict. Whether it was formed
    /// because a wait has timed out.
    [[nodiscard]] bool verify_sent(bool first, Micros now);
    /// A verdict was applied: the wait for the new root begins.
    void decided(Micros now);

    /// Whether a wait that is not over by time keeps the next batch back.
    [[nodiscard]] bool waits() const;
    [[nodiscard]] bool may_start(Micros now) const { return !waits() || now >= until_; }
    /// Lockstep: no verify batch was sent yet.
    [[nodiscard]] bool in_first_round() const {
        return rule_.start == StartRule::Lockstep && round_root_ == kNoRoot;
    }
    /// Lockstep: whether the draft has sent Halfway (or Complete) since the batch of the current
    /// root was formed, or the wait has timed out.
    [[nodiscard]] bool halfway(Micros now);
    /// Ends the wait for Halfway if its time is over.
    void expire(Micros now) {
        if (half_until_ && now >= *half_until_) half_until_.reset();
    }
    /// When the time of a wait is over; `first`: no verify batch is without verdict.
    [[nodiscard]] std::optional<Micros> due(bool first) const;

private:
    static constexpr Position kNoRoot = -1;
    /// How far the draft has come: the newest root for which it sent each state.
    struct ReceivedRoots {
        Position anything = kNoRoot;
        Position halfway = kNoRoot;
        Position complete = kNoRoot;
    };

    [[nodiscard]] Position wanted_root() const;
    [[nodiscard]] bool draft_told_off() const;
    [[nodiscard]] bool nothing_comes() const;

    const DraftWaitRule& rule_;
    const RequestState& state_;
    ReceivedRoots received_;
    bool rests_ = false;  // the draft was told so when the root came: it says nothing of this root
    Position round_root_ = kNoRoot;     // of the last verify batch; kNoRoot: there was none
    std::uint32_t silent_ = 0;          // waits in a row that timed out
    std::uint32_t empty_ = 0;           // answers in a row without a candidate
    Micros until_;                      // the wait for the proposal before a batch
    std::optional<Micros> half_until_;  // the wait for Halfway, while a batch is held for it
};

}  // namespace paceline
