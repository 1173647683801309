// ReplyReader: the text of one answer as thought, text and calls of tools.
//
//     ReplyEvents events;
//     reader.push("<think>Rain? ", events);       Thought "Rain?"
//     ...
//     reader.finish(events);                      once, at the end of the answer
//
// What was said after n bytes depends on these bytes alone, not on how they were divided: a stream
// can be read again from its beginning to continue it at any byte.
// One thread.
#pragma once

#include <string_view>

#include "launch/tool_calls/call_reader.hpp"
#include "launch/tool_calls/reply_event.hpp"
#include "launch/tool_calls/thought_split.hpp"
#include "launch/tool_calls/tool_format.hpp"

namespace paceline::serve {

class ReplyReader {
public:
    /// `format` outlives this object.
    explicit ReplyReader(const ReplyFormat& format)
        : format_{format}, thoughts_{format.begins_in_thought}, calls_{format} {}

    void push(std::string_view text, ReplyEvents& events);
    void finish(ReplyEvents& events);
    /// Bytes at the end of what was read that may be text, and are none yet; behind a text.
    [[nodiscard]] std::size_t held_bytes() const { return calls_.held_bytes(); }
    /// What comes next is part of a thought, or ends it.
    [[nodiscard]] bool thinks() const { return format_.thoughts && thoughts_.thinks(); }

private:
    void read_text(std::string_view text, ReplyEvents& events);

    const ReplyFormat& format_;
    ThoughtSplit thoughts_;
    CallReader calls_;
};

}  // namespace paceline::serve
