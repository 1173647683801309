#include "actors/account/gain_watch.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace paceline {
namespace {

// A candidate costs at least this: with a cost of nothing any number would be allowed.
constexpr double kCandidateLeast = 0.02;
// Before one was measured: as many as make the first round try a single one.
constexpr double kCandidateUnknown = GainWatch::kRisk * GainWatch::kStart;

}  // namespace

int GainWatch::ask() {
    if (!options_.enabled) return kAnyNumber;
    if (plain_count_ < static_cast<std::size_t>(options_.plain_first)) return 0;
    const double awaited = std::exchange(awaited_, 0.0);
    if (!drafting_) {
        if (budget_ < kStart + awaited) return 0;
        drafting_ = true;
        since_check_ = 0;
        drafted_ = {};  // earlier probes do not count for this one
    }
    if (++since_check_ > check_every_) {
        since_check_ = 0;
        check_every_ = std::min(2 * check_every_, kCheckMost);
        return 0;
    }
    const double each = candidate_ > 0.0 ? candidate_ : kCandidateUnknown;
    return std::max(1, static_cast<int>(kRisk * budget_ / each));
}

void GainWatch::round(Micros took, double tokens, double candidates) {
    if (candidates > 0.0) return drafted(took, tokens, candidates);
    if (!options_.enabled || tokens <= 0.0 || took.count() <= 0) return;
    plain_round(static_cast<double>(took.count()), tokens);
}

void GainWatch::drafted(Micros took, double tokens, double candidates) {
    if (!options_.enabled || tokens <= 0.0 || took.count() <= 0) return;
    drafted_round(static_cast<double>(took.count()), tokens, candidates);
}

GainWatch::Micros GainWatch::plain_token() const {
    return Micros{static_cast<Micros::rep>(plain_time())};
}

bool GainWatch::affords(Micros job) {
    const double plain = plain_time();
    if (!options_.enabled) return true;
    if (plain <= 0.0) return false;
    const double cost = static_cast<double>(job.count()) / plain;
    if (drafting_) return budget_ >= std::min(cost, kMost);
    awaited_ = std::min(cost, kMost - kStart);
    return budget_ >= kStart + awaited_;
}

void GainWatch::paid(Micros job) {
    const double plain = plain_time();
    if (!options_.enabled || plain <= 0.0) return;
    awaited_ = 0.0;
    add(-static_cast<double>(job.count()) / plain);
    if (budget_ < candidate_) turn_off();
}

double GainWatch::gain() const {
    return drafted_.time > 0.0 ? plain_time() * drafted_.tokens / drafted_.time : 0.0;
}

void GainWatch::plain_round(double took, double tokens) {
    plain_[plain_count_++ % options_.plain_kept] = took / tokens;
    since_check_ = 0;
    if (drafting_) return;
    add(kAllowance * tokens);
    if (++plain_since_ == options_.plain_kept) cancel_debt_of_slower_machine();
}

void GainWatch::drafted_round(double took, double tokens, double candidates) {
    const double plain = plain_time();
    if (plain <= 0.0) return;  // the first plain rounds are still under way
    const double expected = 1.0 + candidates * (candidate_ > 0.0 ? candidate_ : kCandidateUnknown);
    const double cost = std::min(took / plain, kOutlier * expected);
    if (candidates > 0.0) {
        double each = std::max((cost - 1.0) / candidates, kCandidateLeast);
        // The first one may have been interrupted: it does not turn drafting off by itself.
        if (candidate_ <= 0.0) each = std::min(each, kCandidateUnknown);
        const double weight = candidate_ <= 0.0 ? 1.0 : each > candidate_ ? kDearer : kNew;
        candidate_ += (each - candidate_) * weight;
    }
    drafted_.time += cost * plain - kNew * drafted_.time;
    drafted_.tokens += tokens - kNew * drafted_.tokens;
    drafted_.whole_time += took - kNew * drafted_.whole_time;
    add(tokens - cost);
    if (budget_ < candidate_) turn_off();
}

void GainWatch::turn_off() {
    if (drafting_) {
        plain_before_ = plain_time();
        plain_since_ = 0;
    }
    drafting_ = false;
}

/// All plain rounds that are kept are of the time since drafting was turned off.
void GainWatch::cancel_debt_of_slower_machine() {
    const double before = std::exchange(plain_before_, 0.0);
    const double plain = plain_time();
    if (before <= 0.0 || plain < kSlower * before) return;
    if (drafted_.tokens * plain < kHadGained * drafted_.whole_time) return;
    budget_ = std::max(budget_, kStart);
}

void GainWatch::add(double tokens) {
    budget_ = std::clamp(budget_ + tokens, -kDebtMost, kMost);
}

double GainWatch::plain_time() const {
    // The lower median: a round that was interrupted does not make all others look fast, nor do the
    // first rounds of a process, which are slow.
    if (plain_count_ < static_cast<std::size_t>(options_.plain_first)) return 0.0;
    std::array<double, kPlainKept> times = plain_;
    const std::size_t kept = std::min(plain_count_, options_.plain_kept);
    const std::span<double> known = std::span{times}.first(kept);
    const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
    std::nth_element(known.begin(), middle, known.end());
    return *middle;
}

}  // namespace paceline
