// Service: a pipeline that takes orders from any thread for as long as it lives.
//
//     Service service{std::move(session), {.running = 8, .waiting = 64}};
//     Submitted taken = service.submit({.request = ..., .text = AnswerText{...}});
//     AnswerReader reader{taken.stream};  ...  service.cancel(taken.id);
//
//            submit()              a place is free            the last token, cancel(), a deadline
//   client ----------> [Waiting] --------------> [Running] -------------------------> [Over]
//            inbox         |                                                             ^
//                          +-------------------------------------------------------------+
//
// A grammar is compiled first, by helper processes, while its order waits (GrammarHelpers); one
// that cannot be compiled ends its answer with that error.
// submit() answers at once: an order is refused if it is invalid, if too many wait, or while
// draining. An order waits by priority and age (waiting_line.hpp) and takes nothing of the pipeline
// until it runs. Its answer so far is in its AnswerStream (answer_stream.hpp): no code of a client
// runs on the pipeline's loop, and no reader can delay it. Tokens become text, and stop strings or
// a rule of the order's text end an answer, before they are appended.
// A deadline ends its answer with an error. The time in which an essential stage is lost does not
// count for any.
// A conversation's next turn is a new order with the whole text: what the caches have of it is not
// computed again.
// change() replaces the pipeline by another one between two answers (service_change.cpp). Orders
// that come meanwhile wait, as behind others; streams of earlier answers stay readable, because
// they belong to no session. What is lost are the KV caches, and with them the cached prompts.
// Owns the session. Threads: all members from any, but change() from one at a time, and session()
// from the same; the constructor and destructor from one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"
#include "launch/grammar/grammar_helpers.hpp"
#include "launch/session/answer_stream.hpp"
#include "launch/session/answer_text.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/waiting_line.hpp"

namespace paceline {

/// Of an order, never used twice.
struct AnswerId {
    std::uint64_t value = 0;
    friend auto operator<=>(const AnswerId&, const AnswerId&) = default;
};

/// Milliseconds of time in which the pipeline was whole; nothing: no limit.
struct AnswerDeadlines {
    using Limit = std::optional<std::chrono::milliseconds>;
    Limit queue = {};        // from submit() to the beginning
    Limit first_token = {};  // from the beginning
    Limit gap = {};          // between two tokens
    Limit answer = {};       // from submit() to the last token
};

struct ServiceOrder {
    Request request = {};
    std::optional<AnswerText> text = {};  // nothing: the stream has tokens alone
    int priority = 0;                     // lower goes first
    AnswerDeadlines deadlines = {};
    /// The prompt alone is wanted, for its scores or its cache: max_tokens is 1, and the token that
    /// says that the prompt was processed is not given to the stream.
    bool prompt_only = false;
    bool counted = true;  // among the answers and tokens of the snapshot
};

enum class SubmitOutcome : std::uint8_t { Accepted, QueueFull, Draining, Invalid, Failed };

struct Submitted {
    SubmitOutcome outcome = SubmitOutcome::Accepted;
    Status why = {};  // of all but Accepted
    AnswerId id = {};
    std::shared_ptr<AnswerStream> stream = {};  // never nullptr of Accepted
};

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
    PipelineUsage usage = {};  // at most some kUsagePeriod old
    /// Of Recovering: since when.
    std::chrono::steady_clock::time_point recovering_since = {};
    /// When the loop was last seen to run. A busy pipeline is alive; one that is old is not.
    std::chrono::steady_clock::time_point heartbeat = {};
};

/// Another pipeline for a service.
struct PipelineChange {
    using Open = std::function<Result<std::unique_ptr<PipelineSession>>()>;
    Open open;            // the other one
    Open again;           // the present one, if it has ended and the other cannot be started
    bool beside = false;  // there is memory for both: the present one ends when the other has
                          // loaded, else before
};

enum class ChangeOutcome : std::uint8_t {
    Changed,
    Busy,    // an answer runs or waits, a stage is lost, or nothing is taken any more
    Kept,    // the other one cannot be started: the present one goes on
    Failed,  // nor can the present one again: the service has ended
};

struct ChangeResult {
    ChangeOutcome outcome = ChangeOutcome::Changed;
    Status why = {};  // of Kept and Failed
};

struct ServiceOptions {
    std::size_t running = 1;   // as many as the session has contexts
    std::size_t waiting = 64;  // beside those
};

class Service {
public:
    static constexpr std::chrono::milliseconds kTick{50};
    static constexpr std::chrono::milliseconds kUsagePeriod{500};

    /// Without `grammars` requests that have one are refused, unless it is compiled.
    Service(std::unique_ptr<PipelineSession> session,
            const ServiceOptions& options,
            std::unique_ptr<GrammarHelpers> grammars = nullptr);
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;
    /// Open answers end with an error.
    ~Service();

    [[nodiscard]] Submitted submit(ServiceOrder order);
    /// Calls `done` once, on any thread, with the compiled grammar for Request::compiled. Errors:
    /// those of GrammarHelpers::compile(); Unsupported in a build without grammars.
    void compile(const GrammarSpec& grammar,
                 GrammarHelpers::Done done,
                 GrammarHelpers::Waiter waiter = {});
    /// Ends the answer within the running batch; returns at once. Unknown or over: nothing happens.
    void cancel(AnswerId id);
    /// From now on orders are refused; those that were taken may finish within `limit`, then they
    /// end with an error.
    void drain(std::chrono::milliseconds limit);
    /// Until no answer is open. False: the time is over.
    [[nodiscard]] bool wait_idle(std::chrono::milliseconds limit);

    /// Decodes with another pipeline from now on, if no answer is open; blocks while it loads. Its
    /// contexts are as many and as long as those of the present one.
    [[nodiscard]] ChangeResult change(const PipelineChange& wanted);

    /// A copy that is at most some kTick old while the loop runs.
    [[nodiscard]] ServiceSnapshot snapshot() const;
    [[nodiscard]] PipelineSession& session() { return *session_; }
    [[nodiscard]] const PipelineSession& session() const { return *session_; }

private:
    [[nodiscard]] Status check(const Request& request) const;
    [[nodiscard]] Status check_with_session(const Request& request) const;
    /// On the loop's thread; once there is one, while the pipeline changes.
    void post(std::function<void()> call);
    void watch_session();
    // Of change(), on its thread.
    [[nodiscard]] ChangeResult stay(const Error& why);
    [[nodiscard]] bool let_go();
    void lose(const Error& why);
    void attach(std::unique_ptr<PipelineSession> fresh);
    void release();
    using Micros = std::chrono::microseconds;

    struct Open {
        ServiceOrder order;
        std::shared_ptr<AnswerStream> stream;
        std::optional<RequestId> request = {};  // once it runs
        Micros submitted{0};                    // in whole time, and the next two
        Micros begun{0};
        Micros last_token{0};
        Position prompt = 0;                      // its tokens
        std::deque<msg::Origin> candidates = {};  // the next tokens that were accepted
        // Its grammar is being compiled, and it is in no line; gone with the order if that ends.
        std::shared_ptr<const char> compiling = {};
        Status why = {};  // it was ended by this class
    };
    struct Ordered {
        AnswerId id;
        Open open;
    };

    // All of these on the loop's thread.
    [[nodiscard]] bool pause();  // whether no answer is open; none is begun from then on
    void take_inbox();
    void compiled(AnswerId id, const Result<CompiledGrammarPtr>& made);
    void begin_next();
    void begin(AnswerId id, Open& open);
    Go take(AnswerId id, TokenId token);
    void take_scores(AnswerId id, Position position, const TokenScores& scores);
    void ended(AnswerId id, const AnswerStats& stats, const Status& status);
    void finish(std::map<AnswerId, Open>::iterator at,
                const AnswerStats& stats,
                const Status& status);
    void count(const AnswerStats& stats, const Status& status);
    void stop(AnswerId id, const Status& why);
    void tick();
    void check_deadlines();
    void over(const Status& ended);
    void publish();
    void show(ServiceSnapshot next);
    [[nodiscard]] std::shared_ptr<const ServiceSnapshot> shown() const;
    [[nodiscard]] Error gone() const;  // why the loop has ended

    ServiceOptions options_;
    std::atomic<std::uint64_t> newest_{0};
    std::atomic<bool> draining_{false};
    std::atomic<bool> over_{false};
    mutable std::mutex snapshot_mutex_;  // held for the copy of a pointer
    std::shared_ptr<const ServiceSnapshot> snapshot_;

    std::mutex inbox_mutex_;
    std::vector<Ordered> inbox_;

    mutable std::mutex idle_mutex_;
    std::condition_variable idle_;
    std::size_t unfinished_ = 0;  // orders taken and not over; guarded by idle_mutex_

    // The loop's.
    WaitingLine line_;
    std::map<AnswerId, Open> open_;
    std::size_t running_ = 0;
    Micros whole_time_{0};
    std::chrono::steady_clock::time_point last_tick_{};
    std::optional<Micros> drain_until_;  // in whole time
    ServiceSnapshot totals_;
    std::optional<std::chrono::steady_clock::time_point> recovering_since_;
    std::chrono::steady_clock::time_point usage_read_{};
    PipelineUsage earlier_;  // of the pipelines before this one
    bool changing_ = false;  // no order is begun
    bool leaving_ = false;   // the session's end is not the service's

    mutable std::shared_mutex session_mutex_;  // of the pointer, for threads that are not the
                                               // loop's, and of `holding_`
    bool holding_ = false;                     // there is no loop
    std::mutex held_mutex_;
    std::vector<std::function<void()>> held_;   // what was posted meanwhile
    std::unique_ptr<PipelineSession> session_;  // its loop uses the rest
    std::unique_ptr<GrammarHelpers> grammars_;  // last: they call the loop
};

}  // namespace paceline
