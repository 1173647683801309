// LineEditor: a line of text from a terminal, with the keys of Emacs, a history, and pasted text in
// one piece.
//
// A thin layer over libedit, which stays inside line_editor.cpp. Reads standard input, draws on
// standard error. The terminal's mode is changed only while read() runs. Ctrl-C remains a signal:
// read() returns when the caller's `signalled` returns true. Ctrl-D at the end of a line sends it,
// on an empty line it ends the input. One at a time per process, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace paceline {

enum class ReadEnd : std::uint8_t { Line, End, Signal, SignalInText, TooLong };

/// `text` is of a Line, in UTF-8, and may hold newlines that were pasted. SignalInText: what was
/// typed so far is dropped. TooLong: more than kTextBytesMax (text_input.hpp) came before an end.
struct ReadLine {
    ReadEnd end = ReadEnd::End;
    std::string text = {};
};

class LineEditor {
public:
    /// `signalled` is asked several times a second: a signal may come just before a read, or to
    /// another thread, and interrupts none then.
    explicit LineEditor(std::function<bool()> signalled);
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;
    ~LineEditor();

    /// Every line that is not empty is remembered until the program ends, for the arrow keys.
    [[nodiscard]] ReadLine read(const std::string& prompt);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
