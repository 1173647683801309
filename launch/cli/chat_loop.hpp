// The interactive chat of `paceline run --interactive`.
//
// Each message of standard input (chat_input.hpp) is answered with everything before it in the KV
// cache. A line that begins with / is a command: kChatHelp. Ctrl-C ends an answer or drops the
// message that is being typed; while nothing is typed it leaves the chat.
#pragma once

#include <optional>
#include <string>

#include "launch/cli/run_session.hpp"

namespace paceline {

/// Returns the exit code. `first` is answered before anything is read. Precondition: loaded.
int chat_loop(RunSession& session,
              const std::optional<std::string>& first,
              const RunOptions& options,
              const Environment& environment);

}  // namespace paceline
