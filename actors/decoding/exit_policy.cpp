#include "actors/decoding/exit_policy.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace paceline {
namespace {

constexpr double kMemory = 33.0;    // evaluations that count while it is evaluated
constexpr double kTryMemory = 8.0;  // and while it is paused: a try must have an effect
constexpr double kShareGrowth = 1.05;
constexpr double kCostMemory = 16.0;

/// Nothing while its position is not committed; else whether it is right.
std::optional<bool> came_true(const ExitCandidates::Place& candidate,
                              std::span<const TokenId> text) {
    const auto at = static_cast<std::size_t>(candidate.at);
    const std::size_t begin = at - candidate.path.size();
    for (std::size_t i = 0; i < candidate.path.size(); ++i) {
        if (begin + i >= text.size()) return std::nullopt;
        if (text[begin + i] != candidate.path[i]) return false;
    }
    if (at >= text.size()) return std::nullopt;
    return std::find(candidate.tokens.begin(), candidate.tokens.end(), text[at]) !=
           candidate.tokens.end();
}

/// Nothing while one of its positions is not committed.
std::optional<std::size_t> right_of(const ExitCandidates& said, std::span<const TokenId> text) {
    std::size_t right = 0;
    for (const ExitCandidates::Place& candidate : said.places) {
        const std::optional<bool> known = came_true(candidate, text);
        if (!known) return std::nullopt;
        if (*known) ++right;
        if (!*known && said.chained) break;
    }
    return right;
}

}  // namespace

void ExitPolicy::decide() {
    const bool pays = !measured_ || gain_ >= cost();
    if (pays == !resting_) return;
    resting_ = !pays;
    waited_ = 0;
    if (pays) {
        pause_ = kPauseMin;
        weight_ = kTryMemory;
    }
}

bool ExitPolicy::ask() {
    if (always_on_ || !resting_) return true;
    ++waited_;
    if (waited_ <= pause_) return false;
    if (waited_ == pause_ + kTry) {
        waited_ = 0;
        pause_ = std::min(2 * pause_, kPauseMax);
    }
    return true;
}

void ExitPolicy::spent(double share, bool delayed, std::size_t rows) {
    // An evaluation that had to wait for its core does not cost more: the lowest share counts, and
    // a higher one only if no low one has come for long.
    share_ = measured_ ? std::min(share, share_ * kShareGrowth) : share;
    const double delay = delayed ? 1.0 : kIdleShare;
    const double row_cost = kRowCost * static_cast<double>(rows);
    const double learning = measured_ ? 1.0 / kCostMemory : 1.0;
    delay_ += (delay - delay_) * learning;
    row_cost_ += (row_cost - row_cost_) * learning;
    measured_ = true;
    decide();
}

void ExitPolicy::learned(std::size_t right) {
    weight_ = resting_ ? kTryMemory : std::min(weight_ + 1.0, kMemory);
    gain_ += (static_cast<double>(right) - gain_) / weight_;
    decide();
}

void ExitRecord::add(ExitCandidates said) {
    if (evaluations_.size() == kEvaluationsMax) evaluations_.pop_front();
    evaluations_.push_back(std::move(said));
}

std::vector<std::size_t> ExitRecord::resolve(RequestId request,
                                             Attempt attempt,
                                             std::span<const TokenId> text) {
    std::vector<std::size_t> known;
    std::erase_if(evaluations_, [&](const ExitCandidates& said) {
        if (said.request != request) return false;
        if (said.attempt != attempt) return said.attempt < attempt;
        const std::optional<std::size_t> right = right_of(said, text);
        if (right) known.push_back(*right);
        return right.has_value();
    });
    return known;
}

}  // namespace paceline
