#include "runtime/parent/child_log.hpp"

#include <utility>

namespace paceline {

ChildLog::ChildLog(std::size_t lines_max, OnLine on_line)
    : lines_max_{lines_max}, on_line_{std::move(on_line)} {}

void ChildLog::append(std::string_view text) {
    for (const char c : text) {
        if (c == '\n') {
            end_line();
        } else if (partial_.size() < kLineBytesMax) {
            // A control byte could rewrite the user's terminal.
            partial_ += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? '?' : c;
        }
    }
}

void ChildLog::finish() {
    if (!partial_.empty()) end_line();
}

void ChildLog::end_line() {
    if (on_line_) on_line_(partial_);
    lines_.push_back(std::exchange(partial_, {}));
    if (lines_.size() > lines_max_) lines_.pop_front();
}

std::string ChildLog::last_words() const {
    std::string text;
    for (const std::string& line : lines_) text += "\n    " + line;
    if (!partial_.empty()) text += "\n    " + partial_;
    return text;
}

}  // namespace paceline
