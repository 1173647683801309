// ExitWorth: whether an evaluation of an exit pays, at the price that the dispatcher gave.
//
//     gain   correct tokens of an evaluation that had not been proposed otherwise, times the time
//            that each saves: of a token; or, where the token was started early and its first
//            layers ran all the same, the part of a token's time that the later layers take
//     cost   the evaluation's time (kIdleShare of it if no batch waited for it: others may want its
//            core or its memory), and a row for each one that the layers run because of it
//
// An exit that does not pay is not evaluated until the dispatcher orders a probe, or switches it
// off altogether. Before anything is measured it is evaluated.
// Not thread-safe. Pure: times come by calls.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ipc/wire/messages.hpp"

namespace paceline {

class ExitWorth {
public:
    static constexpr double kIdleShare = 0.25;
    static constexpr double kMemory = 33.0;      // evaluations that count
    static constexpr double kProbeMemory = 8.0;  // those of before a probe
    static constexpr double kCostMemory = 16.0;
    static constexpr double kShareGrowth = 1.05;

    /// `always_on`: it never pauses. `saved`: part of a token's time that a correct one saves.
    explicit ExitWorth(bool always_on, double saved = 1.0) : always_on_{always_on}, saved_{saved} {}

    /// The newest price counts; older ones are ignored.
    void take(const msg::Price& price);
    /// The dispatcher is new: its prices are not known yet.
    void forget_price() { price_ = {}; }

    /// Whether the exit is to evaluate the batch that comes now.
    [[nodiscard]] bool pays() const;
    /// An evaluation took so long and caused `rows` additional rows; its share of both, if it was
    /// one of several in a job. `delayed`: the next batch had to wait for it.
    void spent(double micros, bool delayed, double rows);
    /// The committed text shows that `right` candidates of an evaluation were right.
    void learned(std::size_t right);

    /// Of many candidates of one evaluation, how many the dispatcher lets a round have.
    [[nodiscard]] std::size_t rows_max() const {
        if (price_.token_us <= 0.0F) return kVerifyRowsMax;
        return std::max(price_.candidates_max, 1U);
    }
    /// Of a batch while exits work, as the dispatcher measures it; 0: not known.
    [[nodiscard]] double extra_us() const { return price_.extra_us; }
    [[nodiscard]] double gain_us() const { return saved_ * gain_ * price_.token_us; }
    [[nodiscard]] double cost_us() const { return time_us_ * delay_ + rows_ * price_.row_us; }

private:
    bool always_on_;
    double saved_;
    msg::Price price_{};
    double gain_ = 0.5;    // before anything is known: likely to pay, and soon corrected
    double weight_ = 8.0;  // of what is known, in evaluations
    double time_us_ = 0.0;
    double delay_ = 1.0;  // how much of it counts
    double rows_ = 0.0;
    bool measured_ = false;
};

}  // namespace paceline
