#include "launch/cli/chat_loop.hpp"

#include <cstdio>
#include <fmt/core.h>
#include <utility>

#include "launch/base/exit_codes.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_input.hpp"

namespace paceline {

namespace {

/// A line without its newline; nothing at the end of input or after a signal. Errors: BadFile, a line
/// without an end.
Result<std::optional<std::string>> read_line(const Environment& environment) {
    if (environment.stdin_is_terminal) std::fputs("> ", stderr);
    std::string line;
    for (int byte = std::getc(stdin); byte != '\n'; byte = std::getc(stdin)) {
        if (byte == EOF) {
            if (line.empty()) return std::optional<std::string>{};
            break;
        }
        if (line.size() == kTextBytesMax) {
            return Error{Errc::BadFile,
                         fmt::format("standard input: a message is longer than {} KiB",
                                     kTextBytesMax >> 10U)};
        }
        line += static_cast<char>(byte);
    }
    return std::optional<std::string>{std::move(line)};
}

}  // namespace

int chat_loop(RunSession& session,
              const std::optional<std::string>& first,
              const Environment& environment) {
    std::fputs(
        "Chat: /reset forgets the conversation, /quit or Ctrl-D leaves, Ctrl-C ends an answer.\n",
        stderr);
    std::optional<std::string> message = first;
    for (;; message.reset()) {
        session.interrupt().rearm();
        if (session.interrupt().draining()) return kExitOk;
        if (!message) {
            Result<std::optional<std::string>> line = read_line(environment);
            if (!line) return report_failure("run", line.error());
            message = std::move(line).value();
        }
        if (!message) {
            if (environment.stdin_is_terminal) std::fputs("\n", stderr);
            return session.interrupt().raised() ? kExitInterrupted : kExitOk;
        }
        if (*message == "/quit" || *message == "/exit") return kExitOk;
        if (*message == "/reset") {
            session.reset();
            continue;
        }
        if (message->empty()) continue;
        std::vector<TokenId> tokens = session.turn(*message);
        if (Status room = session.check_room(tokens.size()); !room.ok()) {
            std::fprintf(stderr, "[%s; /reset forgets the conversation]\n",
                         room.error().what.c_str());
            continue;
        }
        Result<FinishReason> end = session.answer(std::move(tokens));
        if (!end) return report_failure("run", end.error());
        if (end.value() == FinishReason::Interrupted && session.interrupt().draining())
            return kExitTerminated;
        if (end.value() == FinishReason::ContextFull) {
            std::fprintf(stderr,
                         "[the context of %d tokens is full; /reset forgets the conversation]\n",
                         session.context());
        }
        std::fprintf(stderr, "[%s]\n", one_line(session.last_figures()).c_str());
    }
}

}  // namespace paceline
