#include "launch/cli/chat_loop.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "launch/base/exit_codes.hpp"
#include "launch/base/report.hpp"

namespace paceline {

namespace {

/// A line without its newline; nothing at the end of input or after a signal.
std::optional<std::string> read_line(const Environment& environment) {
    if (environment.stdin_is_terminal) std::fputs("> ", stderr);
    char* raw = nullptr;
    std::size_t capacity = 0;
    const ssize_t length = ::getline(&raw, &capacity, stdin);
    const std::unique_ptr<char, decltype(&std::free)> owner{raw, &std::free};
    if (length < 0) return std::nullopt;
    std::string line{raw, static_cast<std::size_t>(length)};
    if (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
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
        if (!message) message = read_line(environment);
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
