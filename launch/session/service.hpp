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
// restart() replaces a pipeline that could not continue. Its answers have ended with an error, and
// orders are refused until the other one runs.
// Owns the session. Threads: all members from any, but change() and restart() from one at a time,
// and session() from the same; the constructor and destructor from one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"
#include "launch/grammar/grammar_helpers.hpp"
#include "launch/session/answer_stream.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/service/answer_clock.hpp"
#include "launch/session/service/open_answers.hpp"
#include "launch/session/service/order_inbox.hpp"
#include "launch/session/service/order_places.hpp"
#include "launch/session/service/service_figures.hpp"
#include "launch/session/service/service_order.hpp"
#include "launch/session/service/service_snapshot.hpp"
#include "launch/session/service/session_slot.hpp"

namespace paceline {

enum class SubmitOutcome : std::uint8_t { Accepted, QueueFull, Draining, Invalid, Failed };

struct Submitted {
    SubmitOutcome outcome = SubmitOutcome::Accepted;
    Status why = {};  // of all but Accepted
    AnswerId id = {};
    std::shared_ptr<AnswerStream> stream = {};  // never nullptr of Accepted
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
    Busy,    // an answer runs or waits, a stage is lost, or nothing is taken any more; of
             // restart(): the pipeline goes on
    Kept,    // the other one cannot be started: the present one goes on
    Failed,  // nor can the present one again: the service has ended; of restart(): still
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
    /// Decodes with the pipeline of `open` from now on, if the present one has failed; blocks while
    /// it loads. Its contexts are as of change().
    [[nodiscard]] ChangeResult restart(const PipelineChange::Open& open);

    /// A copy that is at most some kTick old while the loop runs.
    [[nodiscard]] ServiceSnapshot snapshot() const;
    [[nodiscard]] PipelineSession& session() { return slot_.session(); }
    [[nodiscard]] const PipelineSession& session() const { return slot_.session(); }

private:
    [[nodiscard]] Status check(const Request& request) const;
    void watch_session();
    // Of change(), on its thread.
    [[nodiscard]] ChangeResult stay(const Error& why);
    [[nodiscard]] bool let_go();
    void lose(const Error& why);
    void attach(std::unique_ptr<PipelineSession> fresh);
    void release();

    // All of these on the loop's thread.
    [[nodiscard]] bool pause();  // whether no answer is open; none is begun from then on
    void take_inbox();
    void tick();
    void over(const Status& ended);
    void publish();
    [[nodiscard]] Error gone() const;  // why the loop has ended

    // Of all threads.
    std::atomic<bool> draining_{false};
    std::atomic<bool> over_{false};
    ShownSnapshot shown_;
    OrderPlaces places_;
    OrderInbox inbox_;

    // The loop's.
    AnswerClock clock_{AnswerClock::Clock::now()};
    ServiceFigures figures_;
    OpenAnswers answers_;
    bool leaving_ = false;  // the session's end is not the service's

    SessionSlot slot_;                          // its loop uses the rest
    std::unique_ptr<GrammarHelpers> grammars_;  // last: they call the loop
};

}  // namespace paceline
