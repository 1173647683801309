#include "launch/base/progress_bar.hpp"

#include <algorithm>
#include <cstdio>

namespace paceline {

namespace {
constexpr int kWidth = 32;
constexpr std::chrono::milliseconds kPause{50};
}  // namespace

ProgressBar::ProgressBar(std::string label, Show show) : label_{std::move(label)}, show_{show} {}

ProgressBar::~ProgressBar() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(float done) {
    if (show_ == Show::No) return;
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && now - last_draw_ < kPause) return;
    drawn_ = true;
    last_draw_ = now;
    const float part = std::clamp(done, 0.0f, 1.0f);
    const int filled = static_cast<int>(part * kWidth);
    std::string bar(static_cast<std::size_t>(filled), '#');
    bar.resize(kWidth, '.');
    std::fprintf(stderr, "\r%s [%s] %3d %%", label_.c_str(), bar.c_str(),
                 static_cast<int>(part * 100));
    std::fflush(stderr);
}

}  // namespace paceline
