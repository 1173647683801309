#include "launch/base/progress_bar.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>

namespace paceline {

namespace {
constexpr std::chrono::milliseconds kPause{50};
constexpr std::chrono::milliseconds kAppears{300};
constexpr int kAround = 9;  // " [", "] ", "100 %"
}  // namespace

Show bars_on(const Environment& environment) {
    return environment.stderr_is_terminal ? Show::Yes : Show::No;
}

std::string bar_text(const std::string& label, double done) {
    const double part = std::clamp(done, 0.0, 1.0);
    const int width = std::max(1, ProgressBar::kColumns - kAround - static_cast<int>(label.size()));
    std::string bar(static_cast<std::size_t>(part * width), '#');
    bar.resize(static_cast<std::size_t>(width), '.');
    return fmt::format("{} [{}] {:3d} %", label, bar, static_cast<int>(part * 100));
}

ProgressBar::ProgressBar(std::string label, Show show) : label_{std::move(label)}, show_{show} {}

ProgressBar::~ProgressBar() {
    wipe();
}

void ProgressBar::update(double done) {
    if (show_ == Show::No) return;
    const auto now = Clock::now();
    const std::lock_guard guard{lock_};
    if (now - begun_ < kAppears || (drawn_ && now - last_draw_ < kPause)) return;
    drawn_ = true;
    last_draw_ = now;
    std::fprintf(stderr, "\r%s", bar_text(label_, done).c_str());
    std::fflush(stderr);
}

void ProgressBar::wipe() {
    const std::lock_guard guard{lock_};
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
}

}  // namespace paceline
