#include "launch/tool_calls/reply_reader.hpp"

namespace paceline::serve {

void ReplyReader::read_text(std::string_view text, ReplyEvents& events) {
    if (format_.tools == ToolFormat::None) {
        events.add(ReplyPart::Text, text);
    } else {
        calls_.push(text, events);
    }
}

void ReplyReader::push(std::string_view text, ReplyEvents& events) {
    if (!format_.thoughts) return read_text(text, events);
    std::string behind;
    for (const char c : text) thoughts_.push(c, events, behind);
    read_text(behind, events);
}

void ReplyReader::finish(ReplyEvents& events) {
    std::string behind;
    if (format_.thoughts) thoughts_.finish(events, behind);
    read_text(behind, events);
    if (format_.tools != ToolFormat::None) calls_.finish(events);
}

}  // namespace paceline::serve
