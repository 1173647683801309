#include "launch/tool_calls/first_call.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace paceline::serve {

FirstCall::FirstCall(ReplyFormat format) : format_{std::move(format)}, reader_{format_} {}

std::optional<std::size_t> FirstCall::push(std::string_view piece) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
        ReplyEvents events;
        reader_.push(piece.substr(i, 1), events);
        const std::vector<ReplyEvent>& said = events.all();
        for (const ReplyEvent& event : said) {
            if (event.part != ReplyPart::CallEnd) continue;
            // Broken JSON ends a call before the byte that breaks it.
            return said.front().part == ReplyPart::CallEnd ? i : i + 1;
        }
    }
    return {};
}

std::function<std::optional<std::size_t>(std::string_view)> end_of_first_call(
    const ReplyFormat& format) {
    return [call = std::make_shared<FirstCall>(format)](std::string_view piece) {
        return call->push(piece);
    };
}

}  // namespace paceline::serve
