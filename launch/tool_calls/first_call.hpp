// FirstCall: where the first call in the text of an answer ends, for requests that allow one call.
//
// A grammar of calls does not always hold the model to one: formats without a tag have none, and
// schemas beyond a limit do without. The end is the last byte of the call's arguments; what the
// format writes behind them belongs to no part of the answer. It depends on the bytes alone, not on
// how they were divided. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "launch/tool_calls/reply_reader.hpp"

namespace paceline::serve {

class FirstCall {
public:
    explicit FirstCall(ReplyFormat format);
    FirstCall(const FirstCall&) = delete;
    FirstCall& operator=(const FirstCall&) = delete;

    /// The text goes on with `piece`: how many bytes of it belong to the answer, if the call ends
    /// in it. Not after that.
    [[nodiscard]] std::optional<std::size_t> push(std::string_view piece);

private:
    ReplyFormat format_;
    ReplyReader reader_;
};

/// FirstCall::push() of an object of its own, for AnswerText::end_by().
[[nodiscard]] std::function<std::optional<std::size_t>(std::string_view)> end_of_first_call(
    const ReplyFormat& format);

}  // namespace paceline::serve
