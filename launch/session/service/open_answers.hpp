// OpenAnswers: the answers of a service that are not over, from the order to the end of the stream.
//
//                compiled()           a place is free             the last token
//   [compiling] ----------> [waits] -----------------> [running] ---------------> over
//        |                     |                           |                        ^
//        +---------------------+---------------------------+------------------------+
//                                                  stop(), a deadline, close()
//
// An order without a grammar waits at once. Orders begin by priority and age (waiting_line.hpp).
// Tokens become text before they are appended to the answer's stream; a stop string or the rule of
// the order's text ends the answer.
// Borrows session, places, figures and clock. Threads: the loop's, on which the callbacks of the
// session's orders run too; after close() nothing of the session is used.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "actors/decoding/answer.hpp"
#include "ipc/wire/messages.hpp"
#include "launch/grammar/grammar_helpers.hpp"
#include "launch/session/service/answer_clock.hpp"
#include "launch/session/service/order_inbox.hpp"
#include "launch/session/service/order_places.hpp"
#include "launch/session/service/service_figures.hpp"
#include "launch/session/service/session_slot.hpp"
#include "launch/session/waiting_line.hpp"

namespace paceline {

class OpenAnswers {
public:
    /// At most `running_max` answers run at a time.
    OpenAnswers(std::size_t running_max,
                SessionSlot& slot,
                OrderPlaces& places,
                ServiceFigures& figures,
                const AnswerClock& clock)
        : running_max_{running_max},
          slot_{slot},
          places_{places},
          figures_{figures},
          clock_{clock} {}

    void add(TakenOrder taken);
    /// The grammar of an order is there, or is refused.
    void compiled(AnswerId id, const Result<CompiledGrammarPtr>& made);
    void begin_next();
    /// Ends an answer; with `why` as its error if that is one. Unknown or over: nothing happens.
    void stop(AnswerId id, const Status& why);
    /// Ends those whose deadline has passed, and all once the clock is past its end.
    void stop_late();

    /// While paused none begins. Once it goes on, begin_next() is to be called.
    void pause(bool paused) { paused_ = paused; }
    [[nodiscard]] bool paused() const { return paused_; }
    /// The loop has ended: none runs, none begins, and orders that are added end with `why`.
    void close(const Error& why);
    /// After close(): ends all.
    void end_all();
    /// There is another loop. Precondition: end_all() was called.
    void reopen() { closed_.reset(); }

    [[nodiscard]] bool empty() const { return open_.empty(); }
    [[nodiscard]] std::size_t running() const { return running_; }

private:
    using Micros = AnswerClock::Micros;
    struct Open {
        ServiceOrder order;
        std::shared_ptr<AnswerStream> stream;
        std::shared_ptr<const char> compiling;  // as of TakenOrder
        Micros submitted{0};                    // on the clock, and the next two
        Micros begun{0};
        Micros last_token{0};
        std::optional<RequestId> request = {};    // once it runs
        Position prompt = 0;                      // its tokens
        std::deque<msg::Origin> candidates = {};  // the next tokens that were accepted
        Status why = {};                          // it was ended by this class
    };
    using Place = std::map<AnswerId, Open>::iterator;

    void begin(AnswerId id, Open& open);
    Go take(AnswerId id, TokenId token);
    void take_scores(AnswerId id, Position position, const TokenScores& scores);
    void ended(AnswerId id, const AnswerStats& stats, const Status& status);
    void finish(Place at, const AnswerStats& given, const Status& status);
    [[nodiscard]] const char* missed_deadline(const Open& open) const;

    const std::size_t running_max_;
    SessionSlot& slot_;
    OrderPlaces& places_;
    ServiceFigures& figures_;
    const AnswerClock& clock_;
    WaitingLine line_;
    std::map<AnswerId, Open> open_;
    std::size_t running_ = 0;
    bool paused_ = false;
    std::optional<Error> closed_;
};

}  // namespace paceline
