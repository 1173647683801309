// AnswerStream: what one answer has come to so far: a log that grows at its end alone, from the
// loop of a pipeline to any number of readers.
//
//     loop      append(token, text) ... end(stats, status)       never waits for a reader
//     reader    AnswerReader reader{stream};
//               while (...) { wait for reader.descriptor(), or reader.wait(); reader.read(); }
//
// Each reader has a place of its own in the log and may begin at any token, also after the end. The
// log is bounded by the request: max_tokens and the context. A lock is held for the time of a copy
// of at most kReadTokensMax tokens. Waking a thread costs the pipeline time where both share cores:
// a reader with a pause is woken for the first token and the end, and else at most once in a pause.
// Shared ownership. Threads: append() and end() from one, all else from any; a reader from one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/wire/messages.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline {

/// Whose candidate a token was before the target accepted it.
enum class TokenOrigin : std::uint8_t {
    Target,  // of none: drawn by the target alone
    Draft,   // of a draft, or of the target's own first layers
    Exit,    // of an early exit
    Lookup,  // found earlier in the text
    Heads,   // of look-ahead heads
    Forced,  // by the grammar of the answer
};

[[nodiscard]] TokenOrigin token_origin(msg::Origin origin);
/// "target", "draft", ...
[[nodiscard]] const char* name_of(TokenOrigin origin);

/// A piece of an answer, whole tokens with the text that they made certain.
struct AnswerPiece {
    std::size_t begin = 0;  // index of its first token in the answer
    std::vector<TokenId> ids = {};
    std::vector<TokenOrigin> origins = {};    // of each
    std::vector<TokenScores> scores = {};     // of each, if the request wants them; else empty
    std::vector<std::size_t> text_ends = {};  // [i]: bytes of `text` up to and including token i
    std::string text = {};                    // the last piece may have more, of no token
    bool over = false;                        // nothing follows: stats and status are valid
    AnswerStats stats = {};                   // of the whole answer
    Status status = {};                       // an error: the answer is not complete
};

class AnswerStream {
public:
    static constexpr std::size_t kReadTokensMax = 4096;

    AnswerStream() = default;
    AnswerStream(const AnswerStream&) = delete;
    AnswerStream& operator=(const AnswerStream&) = delete;

    void append(TokenId token, std::string_view text, TokenOrigin origin = TokenOrigin::Target);
    /// Of the prompt's next token, the second one first; of the token that is appended next.
    void add_prompt_scores(TokenScores scores);
    void add_scores(TokenScores scores);
    /// `rest`: text that belongs to no further token. Once; nothing may be appended afterwards.
    void end(std::string_view rest, const AnswerStats& stats, const Status& status);

    /// From token `begin` on; empty if there is no more yet.
    [[nodiscard]] AnswerPiece piece(std::size_t begin) const;
    /// One for each of the prompt's tokens so far, the first is not scored; empty if they are not
    /// wanted. All are there before the first token of the answer.
    [[nodiscard]] std::vector<TokenScores> prompt_scores() const;
    [[nodiscard]] std::size_t size() const;  // tokens
    [[nodiscard]] bool over() const;
    [[nodiscard]] std::size_t bytes() const;  // of memory that it takes

private:
    friend class AnswerReader;
    using Clock = std::chrono::steady_clock;
    struct Bell {
        int descriptor = -1;  // an eventfd of a reader
        std::chrono::milliseconds pause{0};
        Clock::time_point quiet_until = {};
    };
    void watch(const Bell& bell);
    void unwatch(int descriptor);
    void quieten(int descriptor);
    void ring() const;  // with the lock held

    mutable std::mutex mutex_;
    std::vector<TokenId> ids_;
    std::vector<TokenOrigin> origins_;
    std::vector<TokenScores> prompt_scores_;
    std::vector<TokenScores> scores_;     // of each token, or empty; may be one ahead
    std::vector<std::size_t> text_ends_;  // [i]: bytes of text up to and including token i
    std::string text_;
    bool over_ = false;
    AnswerStats stats_;
    Status status_;
    std::vector<Bell> bells_;
};

class AnswerReader {
public:
    /// Begins at token `begin`. After a read() with tokens the descriptor stays silent for `pause`,
    /// unless the answer ends. Errors of the system (no descriptors left) make wait() poll.
    explicit AnswerReader(std::shared_ptr<AnswerStream> stream,
                          std::size_t begin = 0,
                          std::chrono::milliseconds pause = {});
    AnswerReader(const AnswerReader&) = delete;
    AnswerReader& operator=(const AnswerReader&) = delete;
    ~AnswerReader();

    /// What has come since the last call; its `over` is true once all was read.
    [[nodiscard]] AnswerPiece read();
    /// Until there is something to read, at most so long. False: the time is over.
    bool wait(std::chrono::milliseconds limit);
    /// Readable when there may be something to read; -1: there was no descriptor left.
    [[nodiscard]] int descriptor() const { return bell_.get(); }

private:
    [[nodiscard]] bool ready() const;

    std::shared_ptr<AnswerStream> stream_;
    OwnedFd bell_;
    std::chrono::milliseconds pause_;
    std::size_t next_;
    bool told_over_ = false;
};

}  // namespace paceline
