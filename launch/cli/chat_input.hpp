// ChatInput: the messages of a chat, put together from lines of standard input.
//
//     a line                     is a message
//     a line that ends in \      goes on with the next one
//     """ ... """                everything between, over any number of lines
//
// On a terminal lines are edited (line_editor.hpp), and what is pasted is one line. Input that ends
// within a message ends the message. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/base/environment.hpp"
#include "launch/cli/line_editor.hpp"

namespace paceline {

class ChatInput {
public:
    /// `signalled`: whether a signal came since the last message().
    ChatInput(const Environment& environment, std::function<bool()> signalled);

    /// End: the input has ended. Signal: one came, and no message was begun; SignalInText: the
    /// message that was begun is dropped. TooLong: it has more than kTextBytesMax.
    [[nodiscard]] ReadLine message();

private:
    ReadLine line(const std::string& prompt);

    bool prompts_;                      // standard input is a terminal
    std::optional<LineEditor> editor_;  // and one that lines can be edited on
};

/// Puts lines together; `next` gives the one after, which is not the first of the message.
/// TooLong: they come to more than kTextBytesMax. Pure but for `next`.
[[nodiscard]] ReadLine joined_message(std::string first, const std::function<ReadLine()>& next);

}  // namespace paceline
