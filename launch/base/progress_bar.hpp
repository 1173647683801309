// ProgressBar: a progress bar on one line of a terminal, wiped at the end.
//
// Writes to stderr, at most about twenty times a second, after a short delay (short operations show
// no bar), and nothing with Show::No (stderr is a file or a pipe, or --quiet). A line has at
// most kColumns columns, so that it does not wrap. Call wipe() before writing other text while a
// bar may be shown. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "launch/base/environment.hpp"

namespace paceline {

enum class Show : std::uint8_t { Yes, No };

class ProgressBar {
public:
    static constexpr int kColumns = 39;

    /// `label`: at most 22 letters, for a bar of at least 8.
    ProgressBar(std::string label, Show show);
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    ~ProgressBar();  // wipes the line

    /// `done` from 0 to 1.
    void update(double done);
    /// The line is free for other text; the next update() draws the bar again.
    void wipe();

private:
    using Clock = std::chrono::steady_clock;

    std::string label_;
    Show show_;
    Clock::time_point begun_ = Clock::now();
    std::mutex lock_;  // of the following, and of the line
    bool drawn_ = false;
    Clock::time_point last_draw_;
};

/// Yes where stderr is a terminal.
[[nodiscard]] Show bars_on(const Environment& environment);

/// "label [####....]  42 %", of ProgressBar::kColumns columns at most.
[[nodiscard]] std::string bar_text(const std::string& label, double done);

}  // namespace paceline
