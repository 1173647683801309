// ReplyTracker: one answer as thought, text and calls, from the pieces of its stream.
//
//     const ReplyEvents events = tracker.add(piece);     the end of the answer is part of its last
//
// A stream that is continued is read again from its beginning: skip() drops what the client has.
// One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/session/answer_stream.hpp"
#include "launch/tool_calls/reply_reader.hpp"

namespace paceline::serve {

/// A call as APIs write it.
struct ReplyCall {
    std::string id = {};
    std::string name = {};
    std::string arguments = {};
};

/// An answer as a whole.
struct WholeReply {
    std::string text = {};
    std::string thought = {};
    std::vector<ReplyCall> calls = {};
};

class ReplyTracker {
public:
    /// `format` outlives this object.
    explicit ReplyTracker(const ReplyFormat& format) : format_{format}, reader_{format} {}

    /// The client has what the first `tokens` of the answer said. Before the first piece.
    void skip(std::size_t tokens) { skipped_ = tokens; }
    [[nodiscard]] ReplyEvents add(const AnswerPiece& piece);
    /// Calls that began in what was skipped.
    [[nodiscard]] std::size_t skipped_calls() const { return skipped_calls_; }
    /// Of the answer, that belong to a thought; its tag counts from its last token on.
    [[nodiscard]] std::size_t thought_tokens() const { return thought_tokens_; }
    /// As ReplyReader::held_bytes().
    [[nodiscard]] std::size_t held_bytes() const { return reader_.held_bytes(); }

private:
    void drop(ReplyEvents& events);

    const ReplyFormat& format_;
    ReplyReader reader_;
    std::size_t skipped_ = 0;
    std::size_t skipped_calls_ = 0;
    std::size_t thought_tokens_ = 0;
};

/// Of call `index` of answer `choice`: the same whenever it is asked for. Nine letters and digits
/// where the template wants that, else `prefix` and some more.
[[nodiscard]] std::string call_id(const std::string& prefix,
                                  const std::string& response,
                                  std::size_t choice,
                                  std::size_t index,
                                  ToolFormat format);

}  // namespace paceline::serve
