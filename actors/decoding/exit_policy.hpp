// ExitPolicy: whether an exit is evaluated, decided from its measured cost and gain.
//
// An exit whose candidates are seldom right slows decoding: its head takes time from the layers,
// and its candidates take rows in batches. The policy is asked before every batch. The exit is
// evaluated while an evaluation gains more than it costs, both measured in the time of a batch:
//
//     gain   correct tokens of an evaluation that had not been proposed otherwise: one batch less
//            each
//     cost   time of an evaluation over that of a batch (kIdleShare of it if no batch waited for it
//            meanwhile), and kRowCost for each additional row that the layers ran because of it
//
// Otherwise the exit pauses, and is tried again for kTry batches after a pause that doubles each
// time, from kPauseMin to kPauseMax batches. So an exit that is never right costs kTry evaluations
// in kPauseMax batches in the end; one that becomes right is found in one or two tries.
//
// ExitRecord keeps the exit's candidates until the committed text shows which were right.
//
// Pure: the same calls give the same answers. Committed text does not depend on it. Not
// thread-safe. ExitRecord is bounded by kEvaluationsMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

class ExitPolicy {
public:
    static constexpr std::uint32_t kTry = 4;
    static constexpr std::uint32_t kPauseMin = 32;
    static constexpr std::uint32_t kPauseMax = 256;
    static constexpr double kIdleShare = 0.25;  // others may want its core, or its memory
    static constexpr double kRowCost = 0.06;  // of a batch, as measured for batches of up to 8 rows

    /// `always_on`: it never pauses.
    explicit ExitPolicy(bool always_on) : always_on_{always_on} {}

    /// Whether the exit is to evaluate the batch that comes now: once per batch.
    [[nodiscard]] bool ask();
    /// An evaluation took `share` of a batch's time and caused `rows` additional rows. `delayed`:
    /// the next batch had to wait for it.
    void spent(double share, bool delayed, std::size_t rows);
    /// The committed text shows that `right` candidates of an evaluation were right.
    void learned(std::size_t right);

    [[nodiscard]] double gain() const { return gain_; }
    [[nodiscard]] double cost() const { return share_ * delay_ + row_cost_; }
    [[nodiscard]] bool resting() const { return resting_; }

private:
    void decide();

    bool always_on_;
    double gain_ = 0.5;    // before anything is known: likely to pay, and soon corrected
    double weight_ = 8.0;  // of what is known, in evaluations
    double share_ = 0.0;
    double delay_ = 1.0;  // how much of it counts
    double row_cost_ = 0.0;
    bool measured_ = false;
    bool resting_ = false;
    std::uint32_t pause_ = kPauseMin;
    std::uint32_t waited_ = 0;
};

/// The candidates of one evaluation for one request, in the order of the positions.
struct ExitCandidates {
    struct Place {
        Position at = 0;                   // for which one of `tokens` was predicted
        std::vector<TokenId> path = {};    // the tokens before it that were not in the text yet
        std::vector<TokenId> tokens = {};  // nothing that others had proposed
    };
    RequestId request;
    Attempt attempt;
    bool chained = false;  // each follows the one before it: those after a wrong one are wrong
    std::vector<Place> places = {};
};

class ExitRecord {
public:
    static constexpr std::size_t kEvaluationsMax = 64;

    /// The oldest evaluation is dropped if there are too many.
    void add(ExitCandidates said);
    /// The request's text has grown. For each evaluation whose positions are all committed now: how
    /// many of its candidates were right.
    [[nodiscard]] std::vector<std::size_t> resolve(RequestId request,
                                                   Attempt attempt,
                                                   std::span<const TokenId> text);

private:
    std::deque<ExitCandidates> evaluations_;
};

}  // namespace paceline
