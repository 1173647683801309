// PassRule: which pass of a draft pays, at the price that the dispatcher gave.
//
// In sequential decoding the target waits while the draft computes; a draft that runs ahead on a
// device of its own delays nothing. Price::pass_share says which part of a pass's time counts.
//
//     a further pass      after a path that is right with probability p it adds a token with
//                         probability p h, where h is how often the draft's candidates are right.
//                         It pays where  p h >= (share x pass + row) / time per token
//     a round             the first pass also reads the tokens committed since, and its weights may
//                         have left the cache: it takes longer. A round pays if a chain of some
//                         length k does:  h + h^2 + ... + h^k  >=  (share x (first + (k - 1) pass)
//                         + k row) / time per token of plain decoding
//
// The new token's own probability is not known before the pass. Before price and times are known
// everything pays; so does every round of a probe.
// Not thread-safe. Pure: times come by calls.
#pragma once

#include "actors/account/robust_mean.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class PassRule {
public:
    /// The passes of a round before which it may not be refused, and tries of h likewise.
    static constexpr double kTriesMin = 8.0;

    /// A pass has taken so long. `first`: of its round.
    void passed(double micros, bool first) { (first ? first_ : further_).add(micros); }

    /// Whether a round is worth its first pass. `hit`: h; `tries`: what it is known from.
    [[nodiscard]] bool begins(const msg::Price& price,
                              double hit,
                              double tries,
                              int length_max) const;
    /// The least probability of a path after which another pass pays; 0: any. `sends_all`: each
    /// candidate is a row of the next batch; else it waits until its path is probable enough.
    [[nodiscard]] double reach_min(const msg::Price& price, double hit, bool sends_all) const;

private:
    RobustMean first_;
    RobustMean further_;
};

}  // namespace paceline
