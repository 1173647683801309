// ProgressBar: one line on a terminal that fills up and leaves no trace.
//
// Writes to stderr, at most some twenty times a second, and nothing at all where `shown` is
// false (stderr is a file or a pipe). One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace paceline {

enum class Show : std::uint8_t { Yes, No };

class ProgressBar {
public:
    ProgressBar(std::string label, Show show);
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    ~ProgressBar();  // wipes the line

    /// `done` from 0 to 1.
    void update(float done);

private:
    std::string label_;
    Show show_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace paceline
