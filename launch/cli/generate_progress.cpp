#include "launch/cli/generate_progress.hpp"

#include <algorithm>
#include <cstdio>

#include "launch/base/print.hpp"
#include "launch/base/progress_bar.hpp"

namespace paceline {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{200};
constexpr std::chrono::seconds kLinePause{30};

}  // namespace

GenerateProgress::GenerateProgress(std::int64_t answers, bool terminal)
    : all_{answers}, terminal_{terminal} {}

GenerateProgress::~GenerateProgress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
}

double GenerateProgress::seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
}

std::string GenerateProgress::line() const {
    return print("%lld of %lld answers, %lld tokens, %.1f tokens/s", static_cast<long long>(done_),
                 static_cast<long long>(all_), static_cast<long long>(tokens_),
                 static_cast<double>(tokens_) / std::max(seconds(), 1e-9));
}

void GenerateProgress::batch_done(int drawn, int rows) {
    tokens_ += drawn;
    rows_ += rows;
    const Clock::time_point now = Clock::now();
    const bool due = terminal_ ? now - shown_ >= kTerminalPause : now - shown_ >= kLinePause;
    if (!due) return;
    shown_ = now;
    if (!terminal_) {
        std::fprintf(stderr, "paceline generate: %s\n", line().c_str());
        return;
    }
    const auto part =
        static_cast<double>(done_) / static_cast<double>(std::max<std::int64_t>(1, all_));
    const std::string label = print("%lld/%lld, %.0f tokens/s", static_cast<long long>(done_),
                                    static_cast<long long>(all_),
                                    static_cast<double>(tokens_) / std::max(seconds(), 1e-9));
    std::fprintf(stderr, "\r%s\x1b[K", bar_text(label, all_ > 0 ? part : 1.0).c_str());
    std::fflush(stderr);
    drawn_ = true;
}

}  // namespace paceline
