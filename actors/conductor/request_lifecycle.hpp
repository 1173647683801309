// RequestLifecycle: takes the conductor's requests from their submission to their end, with
// everything that the stages have to be told of it.
//
//                pipeline whole, cache has room
//   [Waiting] ----------------------------------> [Running]
//       ^  |                                        |   |
//       |  |       an essential stage is lost, no   |   |
//       +--+------ verdict comes, or preempted: ----+   |
//          |       next attempt                         |
//          |                                            |
//          |  no recovery in time,                      |  complete, cancelled, no progress
//          |  poison, cancelled                         |
//          v                                            v
//       [Ended] <---------------------------------------+   on_end; the text stays until close()
//
// A request begins when its text fits beside those of the running ones: their pages are taken as
// they grow. When none is free (PagesWanted), the youngest running request is preempted; the oldest
// never is. A preempted one keeps its place and computes its text again. That is no loss: it counts
// for neither poison nor drafts nor progress. Which waiting requests others may pass, and for how
// long: waiting_order.hpp.
// Each way out of [Running] sends a Stop to all stages, so that their work for the request ends
// even if a stage has missed the final verdict.
// The loss of a stage that is not essential (draft, correct) changes no attempt: the stage gets its
// Begin again when it is back (draft_begins.hpp).
// A request that was present at `poison_limit` losses in a row without a token committed between
// them, isolated at two of them and alone at the last one, is ended as poison, so that one prompt
// cannot cause a crash loop or end other requests (poison_quarantine.hpp). Its losses do not count
// in the restart intensity, nor do those of stages that are not essential while it ran.
// A running request that gets no verdicts although no stage is lost (progress_watch.hpp) is
// replayed once, with the next attempt; if that gets none either, the request ends with an error.
// on_end of an order may submit, cancel and close: after end() a record may be gone.
// Threads: the conductor's loop, or between two runs of it.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/conductor/conductor_plan.hpp"
#include "actors/conductor/draft_begins.hpp"
#include "actors/conductor/poison_quarantine.hpp"
#include "actors/conductor/progress_timer.hpp"
#include "actors/conductor/recovery_deadlines.hpp"
#include "actors/conductor/request_table.hpp"
#include "actors/conductor/stage_table.hpp"
#include "actors/conductor/stop_outbox.hpp"
#include "actors/conductor/waiting_order.hpp"
#include "actors/decoding/grammar/grammar_store.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

class RequestLifecycle {
public:
    RequestLifecycle(const ConductorPlan& plan, int vocab_size, std::int32_t kv_slots);
    RequestLifecycle(const RequestLifecycle&) = delete;
    RequestLifecycle& operator=(const RequestLifecycle&) = delete;

    [[nodiscard]] RequestTable& requests() { return requests_; }
    [[nodiscard]] const RequestTable& requests() const { return requests_; }
    [[nodiscard]] const StageTable& stages() const { return stages_; }
    [[nodiscard]] DraftBegins& drafts() { return drafts_; }

    /// From now on messages can be sent. `context` outlives this object.
    void start(StageContext& context);
    /// Begins the requests that may run now, in the order of submission. Before start(): nothing
    /// happens.
    void begin_waiting();
    /// A request was accepted after start().
    void accepted(RequestId request);
    /// `verdict` was added to the log of a running request. True: the request was quarantined and
    /// is cleared, so others may begin.
    [[nodiscard]] bool committed(RequestRecord& record, const msg::Verdict& verdict);
    /// Precondition: it is open.
    void end(RequestId request, FinishReason finish, const Status& status);

    void stage_lost(StageId peer);
    void stage_joined(StageId peer);
    /// From the first segment.
    void pages_wanted(const control::PagesWanted& wanted);
    void stage_has_room(StageId to) { stops_.flush(*context_, to); }

private:
    void begin(RequestId request, RequestRecord& record);
    void post_begin(RequestId request, const RequestRecord& record, StageId to);
    void lose_essential(const StageTable::Stage& lost);
    void replay_later(RequestId request, const StageTable::Stage& lost, bool alone);
    void end_poison(RequestId request, const StageTable::Stage& lost);
    void to_next_attempt(RequestId request, RequestRecord& record);
    void preempt(RequestId request);
    void give_up_attempt(const ProgressWatch::Overdue& overdue);
    void end_unrecovered(RequestId request);
    void send_stop(RequestId request, Attempt attempt);
    void show_gauges();

    StageContext* context_ = nullptr;
    StageId verifier_;
    Micros recovery_limit_;
    StageTable stages_;
    RequestTable requests_;
    PoisonQuarantine quarantine_;
    DraftBegins drafts_;
    RecoveryDeadlines deadlines_;
    ProgressTimer progress_;
    StopOutbox stops_;
    SentGrammars grammars_;
    WaitingOrder order_;
};

}  // namespace paceline
