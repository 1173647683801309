#include "launch/cli/chat_input.hpp"

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "launch/base/text_input.hpp"

namespace paceline {

namespace {

constexpr std::string_view kQuotes = "\"\"\"";

/// A line without its newline, from anything that is no terminal to edit on.
ReadLine plain_line() {
    std::string text;
    errno = 0;
    for (int byte = std::getc(stdin); byte != '\n'; byte = std::getc(stdin)) {
        if (byte == EOF) {
            if (text.empty()) return {errno == EINTR ? ReadEnd::Signal : ReadEnd::End};
            break;
        }
        if (text.size() == kTextBytesMax) return {ReadEnd::TooLong};
        text += static_cast<char>(byte);
    }
    return {ReadEnd::Line, std::move(text)};
}

}  // namespace

ReadLine joined_message(std::string first, const std::function<ReadLine()>& next) {
    std::string text = std::move(first);
    const bool quoted = text.starts_with(kQuotes);
    if (quoted) text.erase(0, kQuotes.size());
    const auto whole = [&] { return quoted ? text.ends_with(kQuotes) : !text.ends_with('\\'); };
    while (!whole()) {
        if (!quoted) text.pop_back();
        const ReadLine more = next();
        if (more.end == ReadEnd::End) return {ReadEnd::Line, std::move(text)};
        if (more.end == ReadEnd::TooLong || text.size() + more.text.size() >= kTextBytesMax)
            return {ReadEnd::TooLong};
        if (more.end != ReadEnd::Line) return {ReadEnd::SignalInText};
        text += '\n' + more.text;
    }
    if (quoted) text.resize(text.size() - kQuotes.size());
    // The quotes may stand on lines of their own.
    if (quoted && text.starts_with('\n')) text.erase(0, 1);
    if (quoted && text.ends_with('\n')) text.pop_back();
    return {ReadEnd::Line, std::move(text)};
}

ChatInput::ChatInput(const Environment& environment, std::function<bool()> signalled)
    : prompts_{environment.stdin_is_terminal} {
    if (prompts_ && environment.stderr_is_terminal && environment.terminal_moves)
        editor_.emplace(std::move(signalled));
}

ReadLine ChatInput::line(const std::string& prompt) {
    if (editor_) return editor_->read(prompt);
    if (prompts_) std::fputs(prompt.c_str(), stderr);
    return plain_line();
}

ReadLine ChatInput::message() {
    ReadLine first = line("> ");
    if (first.end != ReadEnd::Line) return first;
    return joined_message(std::move(first.text), [this] { return line(". "); });
}

}  // namespace paceline
