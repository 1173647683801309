#include "launch/cli/chat_loop.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <fmt/core.h>
#include <string_view>

#include "launch/base/exit_codes.hpp"
#include "launch/base/nearest_word.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_input.hpp"
#include "launch/cli/chat_input.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

namespace {

constexpr const char* kChatHelp =
    R"(/help            this
/reset           forget the conversation
/system TEXT     the system prompt from now on; forgets the conversation. Without TEXT: shows it
/quit            leave, as does Ctrl-D on an empty line
A message of several lines: end each but the last with \, or begin and end it with """. Pasted
text is one message. Arrow keys bring earlier lines back. Ctrl-C ends an answer, or drops what is
typed.
)";
constexpr std::array<std::string_view, 5> kCommands{"/help", "/reset", "/system", "/quit", "/exit"};

enum class Next : std::uint8_t { Leave, Ask, Answer };

/// "/system You are brief." -> "/system"; empty for text that is no command, such as "/etc/hosts?".
std::string_view command_of(std::string_view message) {
    if (message.empty() || message.front() != '/') return {};
    const std::string_view word = message.substr(0, message.find_first_of(" \n"));
    const bool letters = std::all_of(word.begin() + 1, word.end(),
                                     [](unsigned char c) { return std::isalpha(c) != 0; });
    return letters && word.size() > 1 ? word : std::string_view{};
}

void change_system(RunSession& session, std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) {
        const std::string& own = session.system();
        std::fprintf(stderr, "[the system prompt is %s]\n",
                     own.empty() ? "the chat template's own" : visible_lines(own).c_str());
        return;
    }
    session.set_system(std::string{text});
    std::fputs("[the conversation begins anew, with this system prompt]\n", stderr);
}

/// Does what a command says; Answer: it is none.
Next obey(RunSession& session, std::string_view message) {
    const std::string_view command = command_of(message);
    if (command.empty()) return Next::Answer;
    if (command == "/quit" || command == "/exit") return Next::Leave;
    if (command == "/help") {
        std::fputs(kChatHelp, stderr);
    } else if (command == "/reset") {
        session.reset();
        std::fputs("[the conversation is forgotten]\n", stderr);
    } else if (command == "/system") {
        change_system(session, message.substr(command.size()));
    } else {
        std::fprintf(stderr, "[%s is not a command%s]\n", std::string{command}.c_str(),
                     known_text(command, kCommands).c_str());
    }
    return Next::Ask;
}

int too_long() {
    return report_failure(
        "run", {Errc::BadFile, fmt::format("standard input: a message is longer than {} KiB",
                                           kTextBytesMax >> 10U)});
}

/// The exit code, if the chat ends with this message.
std::optional<int> answer(RunSession& session, const std::string& message, bool quiet) {
    const Result<Turn> turn = session.turn(message);
    if (!turn) {
        std::fprintf(stderr, "[%s; /reset forgets the conversation]\n", turn.error().what.c_str());
        return {};
    }
    if (Status room = session.check_room(turn.value()); !room.ok()) {
        std::fprintf(stderr, "[%s; /reset forgets the conversation]\n", room.error().what.c_str());
        return {};
    }
    const Result<FinishReason> end = session.answer(turn.value());
    if (!end) return report_failure("run", end.error());
    if (end.value() == FinishReason::Interrupted && session.interrupt().draining())
        return kExitTerminated;
    if (end.value() == FinishReason::ContextFull) {
        std::fprintf(stderr,
                     "[the context of %d tokens is full; /reset forgets the conversation]\n",
                     session.context());
    }
    if (!quiet) {
        const bool first = session.answers() == 1;
        std::fprintf(stderr, "[%s]\n", one_line(session.last_stats(), first).c_str());
    }
    return {};
}

}  // namespace

int chat_loop(RunSession& session,
              const std::optional<std::string>& first,
              const RunOptions& options,
              const Environment& environment) {
    if (!options.quiet)
        std::fputs(
            "Chat: /help shows the commands, /quit or Ctrl-D leaves, Ctrl-C ends an answer.\n",
            stderr);
    const Interrupt& interrupt = session.interrupt();
    ChatInput input{environment, [&] { return interrupt.raised() || interrupt.draining(); }};
    if (first) {
        session.interrupt().rearm();
        if (const std::optional<int> code = answer(session, *first, options.quiet)) return *code;
    }
    for (;;) {
        session.interrupt().rearm();
        if (session.interrupt().draining()) return kExitOk;
        const ReadLine message = input.message();
        if (environment.stdin_is_terminal && message.end != ReadEnd::Line) std::fputs("\n", stderr);
        if (message.end == ReadEnd::TooLong) return too_long();
        if (message.end == ReadEnd::SignalInText && !session.interrupt().draining()) continue;
        if (message.end != ReadEnd::Line)
            return session.interrupt().raised() ? kExitInterrupted : kExitOk;
        if (message.text.empty()) continue;
        const Next next = obey(session, message.text);
        if (next == Next::Leave) return kExitOk;
        if (next == Next::Ask) continue;
        if (const std::optional<int> code = answer(session, message.text, options.quiet))
            return *code;
    }
}

}  // namespace paceline
