// ConductorActor: the conductor's side of all answers: begins them, logs what the verifier commits,
// hands the tokens on, and begins again what a dead stage held.
// Receives: Verdict (from the verifier), BeginWanted (cold, from drafts).   Sends: Begin (cold), Stop.
//
// One request:
//
//   submit()   pipeline whole, cache has room    Verdict: commit counts, tokens go on
//   [Waiting] ----------------------> [Running] -----------------------------------+
//       ^                              |  |  ^                                      |
//       |  an essential stage is lost: |  |  +--------------------------------------+
//       +------- next attempt ---------+  |
//       |                                 |  Verdict that ends it; the callback says Stop;
//       |  no recovery in time, poison,   |  cancel(), cancelled()
//       |  cancelled                      v
//       +----------------------------> [Ended]   on_end; the text stays for a next turn
//
// Each way out of [Running] sends a Stop to all stages: what they do for it ends, also where the verdict
// that says so was lost. Keys and values stay for a next turn.
// A lost stage that is not essential (draft, correct) changes no attempt: it gets its Begin again when
// it is back, and so does one that missed a verdict and asks for it (wanted_begins.hpp). But a request that
// kills it again and again goes on without it (draft_trials.hpp).
// A request that was running at `poison_limit` losses in a row without a token committed between them, and
// alone at two of them, is ended as poison: one bad prompt must not become a crash loop, and takes no other
// request along (suspects.hpp). Its losses do not count against the stages, nor do those of stages that are
// not essential while it ran.
// A running request whose verdicts stay away although no stage is lost (progress_watch.hpp) goes the way
// of a lost stage once: next attempt, begun anew. If that one does not go on either, it is ended with an error.
// Ids of requests are never used twice, also not by another turn of the same one: that has a
// higher attempt.
// What a stage says that it must not (verdict_checks.hpp) makes it a lost stage, and changes nothing else.
// The text is what the log holds: a token is handed on only after the log took it, so a replay
// can neither repeat nor skip one.
// Threads: all calls come from its loop, or between two runs of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/conductor/commit_log.hpp"
#include "actors/conductor/draft_trials.hpp"
#include "actors/conductor/progress_watch.hpp"
#include "actors/conductor/stop_outbox.hpp"
#include "actors/conductor/suspects.hpp"
#include "actors/conductor/wanted_begins.hpp"
#include "actors/decoding/answer_figures.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "actors/decoding/request.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// Whom the conductor talks to.
struct ConductorPlan {
    struct Stage {
        StageId id;
        bool essential = true;  // without it nothing can be decoded
        bool apart = true;      // its process hosts no essential one: its loss is its own
        std::string name = {};  // for messages; empty: "stage <id>"
        StageId home = {};  // of its process, whose stages are lost together; 0: it is alone there
        bool proposes_alone = false;  // no other one proposes: candidates in a verdict are its own
    };
    StageId verifier{};  // the last segment
    /// Every stage; of the essential ones, which hear of a request before all others, those that act
    /// on it first stand last.
    std::vector<Stage> begin_to{};
    Micros cancel_poll{20'000};  // how often cancelled() is asked
    /// A request that waits longer for its pipeline fails. Longer than a stage may load (RestartRules).
    /// Time in which this process, or the whole machine, stands still does not count.
    Micros recovery_limit{180'000'000};
    std::uint32_t poison_limit = 3;
    DraftTrialRules draft_trials{};
    ProgressRules progress{};  // of a request that runs
    /// A number that changes while the stages process prompts; empty: unknown.
    std::function<std::uint64_t()> rows_done{};
};

/// One answer to be given.
struct AnswerOrder {
    using OnToken = PlainDecoder::OnToken;
    /// A further turn of this request: request.text is what is appended to its text, and what the
    /// stages still hold of it in their KV caches is reused. Nothing: a new request.
    std::optional<RequestId> continues;
    Request request;
    OnToken on_token;                 // for each committed token, in order
    std::function<bool()> cancelled;  // asked at each verdict and now and then; may be empty
    /// Once, at the end, whatever it is. The status is an error if the answer could not be given.
    /// Times are of the context's clock.
    std::function<void(const AnswerFigures& figures, const Status& status)> on_end;
};

class ConductorActor final : public Actor {
public:
    /// `vocab_size` and `kv_slots` are the stages': what a request is checked against.
    ConductorActor(ConductorPlan plan, int vocab_size, std::int32_t kv_slots);

    /// Takes an order: it runs as soon as the pipeline is whole and the KV caches have room for
    /// its context beside those that run; first come, first served. Before the loop runs, between
    /// two runs, or from a callback. Errors: those of validate(Request); BadArgument while
    /// draining, with too many requests (those not closed count), or if what it continues is
    /// unknown or not at its end.
    Result<RequestId> submit(AnswerOrder order);
    /// Ends it as if its callback had said Stop; on_end is called before this returns. Unknown or
    /// ended: nothing happens.
    void cancel(RequestId request);
    /// From now on nothing is taken; what is open may finish within `limit`, then it is stopped
    /// with an error.
    void drain(Micros limit);
    /// Forgets an ended request's text. Unknown or open: nothing happens.
    void close(RequestId request);
    /// Ends the loop after the current handler.
    void leave();

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_room(StageId to) override;
    void on_peer(StageId peer, PeerChange change) override;

    /// Prompt and answer of a request, as handed on. Empty if it is unknown. Valid until it is
    /// continued or closed.
    [[nodiscard]] std::span<const TokenId> text(RequestId request) const;
    [[nodiscard]] std::size_t open_requests() const;  // waiting or running
    [[nodiscard]] bool pipeline_whole() const;
    [[nodiscard]] std::uint64_t fenced() const;  // verdicts of old attempts

private:
    enum class Phase : std::uint8_t { Waiting, Running, Ended };
    struct Answer {
        Phase phase = Phase::Waiting;
        std::uint64_t turn = 0;  // counts all orders: who waits longest, and whose a timer is
        AnswerOrder order{};     // its text is empty: the log has it
        Attempt attempt{};
        bool begun = false;       // the stages were told of it once: the next Begin is a replay
        std::size_t length = 0;   // tokens of the log's text that count: none after a Stop
        std::int32_t held = 0;    // leading positions that the stages hold in their KV caches
        std::uint64_t timer = 0;  // the recovery timer that counts; 0: none
        bool answered = false;    // a verdict of this attempt has come
        bool voided = false;      // its last attempt was given up for want of verdicts
        AnswerFigures figures{};
    };

    [[nodiscard]] static std::string name_of(RequestId request);
    [[nodiscard]] static std::string name_of(const ConductorPlan::Stage& stage);
    [[nodiscard]] Result<std::vector<TokenId>> text_of(const AnswerOrder& order) const;
    [[nodiscard]] Answer* find(RequestId request, std::uint64_t turn);  // if it is still open
    [[nodiscard]] const ConductorPlan::Stage* stage(StageId id) const;
    [[nodiscard]] std::vector<RequestId> in_phase(Phase phase) const;  // longest first
    [[nodiscard]] bool fits(const Answer& answer) const;
    void begin_waiting();
    void begin(RequestId request, Answer& answer);
    void post_begin(RequestId request, const Answer& answer, StageId to);
    void want_begin(StageId from, const control::BeginWanted& wanted);
    void tell_wanting(RequestId request, const Answer& answer);
    [[nodiscard]] static StageId home_of(const ConductorPlan::Stage& stage);
    [[nodiscard]] bool is_home_whole(StageId home, const ConductorPlan::Stage* but = nullptr) const;
    void lose_draft(const ConductorPlan::Stage& lost);
    void tell_drafts();
    void note_in_trials(const msg::Verdict& verdict);
    void end_trials(RequestId request, bool by_itself);
    [[nodiscard]] Request spec_of(RequestId request, const Answer& answer) const;
    void lose_essential(const ConductorPlan::Stage& lost);
    void replay_later(RequestId request, const ConductorPlan::Stage& lost, bool alone);
    void end_poison(RequestId request, const ConductorPlan::Stage& lost);
    void to_next_attempt(RequestId request, Answer& answer);
    [[nodiscard]] Status check(const msg::Verdict& verdict, const Answer& answer) const;
    void follow(const msg::Verdict& verdict);
    void hand_on(RequestId request, std::uint64_t turn, const msg::Verdict& verdict);
    void send_stop(RequestId request, Attempt attempt);
    void end(RequestId request, FinishReason finish, const Status& status);
    void stop_all(const Status& status);
    void watch_for_cancel(RequestId request, std::uint64_t turn);
    [[nodiscard]] bool is_cancelled(RequestId request, std::uint64_t turn);
    void watch_recovery(RequestId request, Answer& answer);
    struct Wait {
        std::uint64_t timer = 0;
        Micros left{0};
        bool is_last = false;  // granted once a pause was over, beyond the limit
    };
    void wait_for_recovery(RequestId request, Wait wait);
    void end_unrecovered(RequestId request);
    void watch_progress();
    void look_for_overdue();
    void give_up_attempt(const ProgressWatch::Overdue& overdue);
    void note_verdict(RequestId request, Answer& answer);
    void show_gauges();

    StageContext* context_ = nullptr;
    ConductorPlan plan_;
    int vocab_size_;
    std::int32_t kv_slots_;
    CommitLog log_;
    Suspects suspects_;
    std::map<StageId, DraftTrials> trials_;  // by process, of the stages that are not essential
    std::map<RequestId, Answer> answers_;
    ProgressWatch watch_;
    bool watching_ = false;  // its timer is set
    StopOutbox stops_;
    WantedBegins wanted_;
    std::set<StageId> lost_;
    RequestId newest_;
    std::uint64_t turns_ = 0;
    std::uint64_t timers_ = 0;
    std::uint64_t fenced_ = 0;
    bool draining_ = false;
};

}  // namespace paceline
