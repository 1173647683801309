// The interactive chat of `paceline run --interactive`.
//
// Reads lines from standard input; each is a message, answered with everything before it in the
// KV cache. /reset forgets the conversation, /quit or the end of input leaves. Ctrl-C ends an
// answer, or the chat while it waits for a message.
#pragma once

#include <optional>
#include <string>

#include "launch/cli/run_session.hpp"

namespace paceline {

/// Returns the exit code. `first` is answered before anything is read. Precondition: loaded.
int chat_loop(RunSession& session,
              const std::optional<std::string>& first,
              const Environment& environment);

}  // namespace paceline
