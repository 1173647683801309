// ReplyEvent: a piece of an answer after its text was read: text, thought, or part of a call.
//
//     Thought*  (Text | CallBegin Arguments* CallEnd)*
//
// Neighbouring pieces of one kind are one piece as far as their meaning goes: where a text is cut
// depends on how it came. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::serve {

enum class ReplyPart : std::uint8_t {
    Text,
    Thought,
    CallBegin,  // text: the name of the tool
    Arguments,  // text: bytes of a JSON object
    CallEnd,    // also where the answer ended within the call: its arguments are not complete then
};

struct ReplyEvent {
    ReplyPart part = ReplyPart::Text;
    std::string text = {};

    bool operator==(const ReplyEvent&) const = default;
};

/// A list of events whose neighbours of one kind, but for begins and ends, are joined.
class ReplyEvents {
public:
    void add(ReplyPart part, std::string_view text) {
        const bool joins = part != ReplyPart::CallBegin && part != ReplyPart::CallEnd;
        if (joins && text.empty()) return;
        if (joins && !events_.empty() && events_.back().part == part) {
            events_.back().text += text;
        } else {
            events_.push_back({part, std::string{text}});
        }
    }
    [[nodiscard]] const std::vector<ReplyEvent>& all() const { return events_; }
    void clear() { events_.clear(); }

private:
    std::vector<ReplyEvent> events_;
};

}  // namespace paceline::serve
