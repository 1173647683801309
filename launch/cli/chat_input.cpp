#include "launch/cli/chat_input.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

namespace paceline {

namespace {

constexpr std::string_view kQuotes = "\"\"\"";

/// A line without its newline, from anything that is no terminal to edit on.
ReadLine plain_line() {
    char* raw = nullptr;
    std::size_t capacity = 0;
    errno = 0;
    const ssize_t length = ::getline(&raw, &capacity, stdin);
    const std::unique_ptr<char, decltype(&std::free)> owner{raw, &std::free};
    if (length < 0) return {errno == EINTR ? ReadEnd::Signal : ReadEnd::End};
    std::string text{raw, static_cast<std::size_t>(length)};
    if (!text.empty() && text.back() == '\n') text.pop_back();
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
