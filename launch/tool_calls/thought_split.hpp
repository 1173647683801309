// ThoughtSplit: an answer as a thought and the text behind it, byte by byte.
//
//     <think>\n...\n</think>\n\n text      the tag that opens may be the prompt's
//
// Only an answer that begins with the tag has a thought. Blanks at both ends of the thought and in
// front of the text behind it are dropped. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launch/tool_calls/reply_event.hpp"

namespace paceline::serve {

inline constexpr std::string_view kThoughtOpens = "<think>";
inline constexpr std::string_view kThoughtCloses = "</think>";

class ThoughtSplit {
public:
    explicit ThoughtSplit(bool begins_in_thought)
        : state_{begins_in_thought ? State::Thought : State::Start} {}

    /// Thoughts are added to `events`, text to `text`.
    void push(char c, ReplyEvents& events, std::string& text);
    void finish(ReplyEvents& events, std::string& text);
    [[nodiscard]] bool thinks() const { return state_ == State::Thought; }

private:
    enum class State : std::uint8_t { Start, Thought, Behind, Text };

    void start(char c, std::string& text);
    void thought(char c, ReplyEvents& events);

    State state_;
    bool has_thought_ = false;
    std::string space_ = {};
    std::string tag_ = {};
};

}  // namespace paceline::serve
