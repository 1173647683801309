// KeptStreams: answers whose clients asked for resumption, from their acceptance until they are
// forgotten.
//
//     add() -> [read by a client] --last reader leaves--> [unread] --keep is over--> forgotten
//                      ^                                      |
//                      +------- GET /v1/streams/ID -----------+
//
// An unread answer goes on decoding; it is cancelled when it is forgotten. At most `streams` unread
// answers of at most `bytes` bytes in all are kept: beyond that the one that has been unread for
// the longest time is forgotten. An answer that is read is bounded by its request.
// A stream is found by its ID and the key that its request named. IDs are random, 128 bits.
// Times come by calls. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launch/api/answer_events.hpp"
#include "launch/session/answer_stream.hpp"

namespace paceline::serve {

struct KeepLimits {
    std::chrono::milliseconds keep{60'000};  // after the last reader; 0: nothing is kept
    std::size_t streams = 256;
    std::size_t bytes = std::size_t{64} << 20U;
};

struct KeptStream {
    const AnswerDialect* dialect = nullptr;
    ResponseHead head = {};
    PreparedAnswers prepared = {};  // without its orders
    std::string owner = {};         // AccessRules::owner_of() its request
    std::shared_ptr<AnswerStream> answer = {};
    std::function<void()> cancel = {};
};

class KeptStreams {
public:
    using Clock = std::chrono::steady_clock;

    explicit KeptStreams(const KeepLimits& limits = {}) : limits_{limits} {}
    KeptStreams(const KeptStreams&) = delete;
    KeptStreams& operator=(const KeptStreams&) = delete;
    ~KeptStreams() = default;

    void set_keep(std::chrono::milliseconds keep) { limits_.keep = keep; }
    [[nodiscard]] std::chrono::milliseconds keep() const { return limits_.keep; }

    /// Unread from `now` on.
    void add(const std::string& id, KeptStream stream, Clock::time_point now);
    /// nullptr: there is none of that ID, or it belongs to another key.
    [[nodiscard]] std::shared_ptr<const KeptStream> find(const std::string& id,
                                                         const std::string& owner) const;
    /// Nothing happens if the stream has been forgotten.
    void begin_reading(const std::string& id);
    void end_reading(const std::string& id, Clock::time_point now);
    /// Forgets what has been unread for too long, or is too much.
    void sweep(Clock::time_point now);

    [[nodiscard]] std::size_t size() const { return streams_.size(); }

private:
    struct Entry {
        std::shared_ptr<const KeptStream> stream;
        int readers = 0;
        Clock::time_point unread_since = {};
    };
    using Entries = std::map<std::string, Entry>;

    void forget(Entries::iterator at);
    void forget_surplus();

    KeepLimits limits_;
    Entries streams_;
};

/// A client reads the stream for as long as this object lives.
class StreamReading {
public:
    StreamReading(KeptStreams& streams, std::string id) : streams_{streams}, id_{std::move(id)} {
        streams_.begin_reading(id_);
    }
    StreamReading(const StreamReading&) = delete;
    StreamReading& operator=(const StreamReading&) = delete;
    ~StreamReading() { streams_.end_reading(id_, KeptStreams::Clock::now()); }

private:
    KeptStreams& streams_;
    std::string id_;
};

/// 32 hexadecimal digits, from the system's source of random bits.
[[nodiscard]] std::string random_stream_id();

}  // namespace paceline::serve
