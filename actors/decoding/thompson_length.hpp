// ThompsonLength: the length of a chain by Thompson sampling, the stop rule of EESD (Liu et al.,
// 2024).
//
// After each candidate theta is drawn from Beta(1 + accepted, 1 + rejected), and the chain ends
// with probability 1 - theta, or when it has `longest` candidates. The draws of a round do not
// depend on its candidates, so all of them are made when the round begins: now() is the length.
//
// A verdict multiplies both counts by `decay`, then adds its candidates: of a path, those before
// the first rejected one are accepted, that one is rejected, and those after it were not judged.
//
// Deterministic for a seed. The random numbers are this rule's own, never those of acceptance: the
// length changes what is proposed, not the text. One per request; not thread-safe.
#pragma once

#include <cstdint>
#include <random>

namespace paceline {

struct ThompsonOptions {
    std::int32_t longest = 8;  // 1 ..
    double decay = 0.95;       // 0 .. 1, of the counts at each verdict; 1: nothing is forgotten
    std::uint64_t seed = 0;
};

class ThompsonLength {
public:
    explicit ThompsonLength(const ThompsonOptions& options);

    /// Candidates of this round, 1 .. longest.
    [[nodiscard]] std::int32_t now() const { return now_; }
    /// A verdict: of a path of `could` candidates, the first `accepted` were right. A round begins,
    /// also if there were none.
    void verified(std::int32_t accepted, std::int32_t could);

    [[nodiscard]] double accepted() const { return accepted_; }
    [[nodiscard]] double rejected() const { return rejected_; }

private:
    [[nodiscard]] double draw_theta();
    void begin_round();

    ThompsonOptions options_;
    std::mt19937_64 random_;
    double accepted_ = 0.0;
    double rejected_ = 0.0;
    std::int32_t now_ = 1;
};

}  // namespace paceline
