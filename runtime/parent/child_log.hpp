// ChildLog: splits a child's stdout and stderr into lines and keeps the last ones.
//
// A line longer than the limit is cut, so a child cannot make its parent grow. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace paceline {

class ChildLog {
public:
    static constexpr std::size_t kLineBytesMax = 1024;
    using OnLine = std::function<void(std::string_view line)>;

    ChildLog(std::size_t lines_max, OnLine on_line);

    void append(std::string_view text);
    /// The child has ended: completes a last line that has no newline.
    void finish();
    /// The kept lines, each indented on a line of its own; empty if it never wrote.
    [[nodiscard]] std::string last_words() const;

private:
    void end_line();
    std::size_t lines_max_;
    OnLine on_line_;
    std::deque<std::string> lines_;
    std::string partial_;
};

}  // namespace paceline
