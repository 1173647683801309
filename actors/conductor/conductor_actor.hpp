// ConductorActor: the conductor's side of all answers: begins requests, logs the tokens that the verifier
// commits, passes them to the client, and replays requests after the loss of a stage.
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
// Each way out of [Running] sends a Stop to all stages, so that their work for the request ends even if a
// stage has missed the final verdict. Keys and values stay for a next turn.
// The loss of a stage that is not essential (draft, correct) changes no attempt: the stage gets its Begin
// again when it is back, and so does one that missed a verdict and asks for it (wanted_begins.hpp). A
// request that kills it repeatedly continues without it (draft_trials.hpp).
// A request that was running at `poison_limit` losses in a row without a token committed between them, and
// alone at two of them, is ended as poison, so that one prompt cannot cause a crash loop or end other
// requests (suspects.hpp). Its losses do not count in the restart intensity, nor do those of stages that
// are not essential while it ran.
// A running request that gets no verdicts although no stage is lost (progress_watch.hpp) is replayed once,
// with the next attempt; if that gets none either, the request ends with an error.
// Ids of requests are never used twice. A further turn of a request has the same id and a higher attempt.
// A stage that sends an invalid verdict (verdict_checks.hpp) is replaced; the verdict has no other effect.
// A token is passed to the client only after the log took it, so a replay can neither repeat nor skip one.
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
#include "actors/decoding/begin_payload.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// The stages of the pipeline, and the conductor's limits.
struct ConductorPlan {
    struct Stage {
        StageId id;
        bool essential = true;  // decoding is not possible without it
        bool apart = true;      // its process hosts no essential stage
        std::string name = {};  // for messages; empty: "stage <id>"
        StageId home = {};  // of its process, whose stages are lost together; 0: it is alone there
        bool proposes_alone = false;  // the only one that proposes: all candidates are its own
    };
    StageId verifier{};  // the last segment
    /// Every stage, in the order in which Begins are sent: essential stages before the others, and the
    /// one that acts first on a request last among the essential ones.
    std::vector<Stage> begin_to{};
    AcceptanceRule acceptance = AcceptanceRule::Coupled;  // of all requests
    Position context = 0;                                 // of a request that sets none
    Micros cancel_poll{20'000};                           // interval at which cancelled() is called
    /// A request that waits longer than this for a lost stage fails. Must be longer than a stage may load
    /// (RestartRules). Time in which this process or the machine is suspended does not count.
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
    /// Called once, at the end, in every case. The status is an error if the answer could not be completed.
    /// Times are of the context's clock.
    std::function<void(const AnswerFigures& figures, const Status& status)> on_end;
};

class ConductorActor final : public Actor {
public:
    /// `vocab_size` and `kv_slots` are the stages': what a request is checked against.
    ConductorActor(ConductorPlan plan, int vocab_size, std::int32_t kv_slots);

    /// Accepts an order: it runs as soon as the pipeline is complete and the KV caches have room for
    /// its context beside the running ones, in the order of submission. Call before the loop runs, between
    /// two runs, or from a callback. Errors: those of validate(Request); BadArgument while
    /// draining, with too many requests (those not closed count), or if the request that it continues is
    /// unknown or still open.
    Result<RequestId> submit(AnswerOrder order);
    /// Ends it as if its callback had said Stop; on_end is called before this returns. Unknown or
    /// ended: nothing happens.
    void cancel(RequestId request);
    /// From now on no order is accepted; open requests may finish within `limit` and are then stopped
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
        bool begun = false;       // a Begin was sent: the next one is a replay
        std::size_t length = 0;   // tokens of the log's text that count: none after a Stop
        std::int32_t held = 0;    // leading positions that the stages hold in their KV caches
        std::uint64_t timer = 0;  // the recovery timer that counts; 0: none
        bool answered = false;    // a verdict of this attempt has come
        bool voided = false;      // its last attempt was cancelled because verdicts did not come
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
    [[nodiscard]] BeginPayload spec_of(RequestId request, const Answer& answer) const;
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
