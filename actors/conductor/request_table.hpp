// RequestTable: the requests of the conductor, with the commit log that has their texts.
//
//   accept() --> [Waiting] <--> [Running] --> [Ended] -- close() --> forgotten
//
// The table holds records and answers questions about them; request_lifecycle.hpp changes their
// phases. The tokens of a request are in the log alone: order.request.text of a record is empty.
// Ids of requests are never used twice.
// References to a record are valid until close() of its request.
// Bounded by kRequestsMax. Threads: the conductor's loop, or between two runs of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "actors/conductor/answer_order.hpp"
#include "actors/conductor/commit_log.hpp"
#include "actors/conductor/score_log.hpp"
#include "actors/decoding/begin_payload.hpp"

namespace paceline {

enum class RequestPhase : std::uint8_t { Waiting, Running, Ended };

struct RequestRecord {
    RequestPhase phase = RequestPhase::Waiting;
    std::uint64_t turn = 0;  // counts all orders: the longest wait, and the order of a timer
    AnswerOrder order{};
    Attempt attempt{};
    bool begun = false;              // a Begin was sent: the next one is a replay
    bool preempted = false;          // it waits because pages ran short
    std::uint64_t ended_before = 0;  // ends of others when it was preempted: it waits for one more
    ScoreLog scores = {};
    std::size_t length = 0;  // tokens of the log's text that count: none after a Stop
    bool answered = false;   // a verdict of this attempt has come
    bool voided = false;     // its last attempt was cancelled because verdicts did not come
    AnswerStats stats{};
};

/// "request 7".
[[nodiscard]] std::string name_of(RequestId request);

class RequestTable {
public:
    /// What a request is checked against, the acceptance rule of all, and the context of one that
    /// sets none.
    RequestTable(int vocab_size, std::int32_t kv_slots, AcceptanceRule acceptance, Position context)
        : vocab_size_{vocab_size},
          kv_slots_{kv_slots},
          acceptance_{acceptance},
          context_{context} {}

    /// Takes an order. Errors: those of validate(Request); BadArgument with too many requests
    /// (those not closed count).
    [[nodiscard]] Result<RequestId> accept(AnswerOrder order);
    /// Forgets an ended request. Unknown or open: nothing happens.
    void close(RequestId request);

    [[nodiscard]] RequestRecord& at(RequestId request) { return records_.at(request); }
    [[nodiscard]] RequestRecord* find(RequestId request);                           // in any phase
    [[nodiscard]] RequestRecord* find_open(RequestId request, std::uint64_t turn);  // of this turn
    [[nodiscard]] RequestRecord* find_running(RequestId request);

    [[nodiscard]] std::vector<RequestId> in_phase(RequestPhase phase) const;  // longest first
    [[nodiscard]] std::size_t open_count() const;                             // waiting or running
    /// Whether the KV caches have room for its text, and a page more, beside those that run.
    [[nodiscard]] bool fits(RequestId request) const;
    /// Segments have lost keys. Later Begins say so.
    void lose_keys(const LostKeys& lost);

    /// The payload of a Begin: prompt and committed tokens, and how many of them are the answer's.
    [[nodiscard]] BeginPayload begin_of(RequestId request, const RequestRecord& record);
    /// Prompt and answer, as passed to the client. Empty if it is unknown. Valid until it is
    /// closed.
    [[nodiscard]] std::span<const TokenId> text(RequestId request) const;
    [[nodiscard]] CommitLog& log() { return log_; }
    [[nodiscard]] const CommitLog& log() const { return log_; }

private:
    [[nodiscard]] std::int32_t pages_of(RequestId request, const RequestRecord& record) const;

    int vocab_size_;
    std::int32_t kv_slots_;
    AcceptanceRule acceptance_;
    Position context_;
    CommitLog log_;
    std::map<RequestId, RequestRecord> records_;
    RequestId newest_;
    std::uint64_t turns_ = 0;
    std::uint32_t cache_generation_ = 0;
    LostKeys keys_lost_;           // of this generation
    bool generation_told_ = true;  // a Begin has said it
};

}  // namespace paceline
