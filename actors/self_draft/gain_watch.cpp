#include "actors/self_draft/gain_watch.hpp"

#include <algorithm>
#include <span>

namespace paceline {

bool GainWatch::ask() {
    if (!enabled_) return true;
    if (plain_count_ < kPlainFirst) return false;
    if (!drafting_) {
        if (budget_ < kProbe) return false;
        drafting_ = true;
        since_check_ = 0;
        drafted_time_ = 0.0;  // earlier probes do not count for this one
        drafted_tokens_ = 0.0;
    }
    if (++since_check_ <= check_every_) return true;
    since_check_ = 0;
    check_every_ = std::min(2 * check_every_, kCheckMost);
    return false;
}

void GainWatch::round(bool drafted, Micros took, int tokens) {
    if (!enabled_ || tokens <= 0 || took.count() <= 0) return;
    if (drafted) {
        drafted_round(static_cast<double>(took.count()), tokens);
    } else {
        plain_round(static_cast<double>(took.count()), tokens);
    }
}

double GainWatch::gain() const {
    return drafted_time_ > 0.0 ? plain_time() * drafted_tokens_ / drafted_time_ : 0.0;
}

void GainWatch::plain_round(double took, int tokens) {
    plain_[plain_count_++ % kPlainKept] = took / tokens;
    if (!drafting_) budget_ += allowance_ * tokens;
}

void GainWatch::drafted_round(double took, int tokens) {
    const double plain = plain_time();
    if (plain <= 0.0) return;  // the first plain rounds are still under way
    if (!warm_) {
        // The first round allocates buffers and touches pages, so it is not measured.
        warm_ = true;
        budget_ += tokens - 0.5 * took / plain;
    } else {
        if (rounds_ > 0) took = std::min(took, kOutlier * mean_round_);
        ++rounds_;
        mean_round_ += (took - mean_round_) * std::max(1.0 / static_cast<double>(rounds_), kNew);
        drafted_time_ += took - kNew * drafted_time_;
        drafted_tokens_ += tokens - kNew * drafted_tokens_;
        budget_ += tokens - took / plain;
    }
    budget_ = std::min(budget_, kMost);
    if (budget_ >= kSure) {
        allowance_ = kAllowanceFirst;
        debt_ = kDebt;
    }
    if (drafting_ && budget_ <= 0.0) stop();
}

void GainWatch::stop() {
    drafting_ = false;
    if (probed_) allowance_ = std::max(allowance_ / 2, kAllowanceLeast);
    probed_ = true;
    if (budget_ > -debt_) {
        debt_ = kDebt;
        return;
    }
    budget_ = -debt_;
    debt_ = std::min(2 * debt_, kDebtMost);
}

double GainWatch::plain_time() const {
    // The median: a round that was interrupted does not make all others look fast.
    if (plain_count_ < kPlainFirst) return 0.0;
    std::array<double, kPlainKept> times = plain_;
    const std::span<double> known = std::span{times}.first(std::min(plain_count_, kPlainKept));
    const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
    std::nth_element(known.begin(), middle, known.end());
    return *middle;
}

}  // namespace paceline
