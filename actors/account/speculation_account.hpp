// SpeculationAccount: what speculation costs and gains in the pipeline of one dispatcher, and what
// follows from it: rows of a batch, whether anything is speculated in a turn, and the Price that
// draft, correct and exits get.
//
//     measured      times of batches (Verdict::cost)        -> batch_costs.hpp
//                   which candidates were right             -> hit_rates.hpp
//                   time per token with and without         -> guard_turns.hpp
//     decided       rows_of_round(), rows_ahead()              by row_choice.hpp
//                   allowed()                                  by the guard, which may only forbid
//                   take_price()                               mode, and what a pass may cost
//
// A group of proposers whose candidates have not been seen for kQuietTokens of each request is
// probed for kProbeTurns turns: by then the text may have changed. Only this class orders probes,
// so that their cost stays within the guard's budget.
// Not thread-safe. Pure: times come by calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "actors/account/batch_costs.hpp"
#include "actors/account/guard_turns.hpp"
#include "actors/account/hit_rates.hpp"
#include "actors/account/prompt_costs.hpp"
#include "actors/account/robust_mean.hpp"
#include "actors/decoding/token_tree.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

enum class Controller : std::uint8_t {
    Off,    // no account: the method as configured
    On,     // as far as it pays
    Guard,  // the method as configured, but nothing in turns that the guard keeps plain
    Plain,  // nothing is speculated: for measurements
};

struct AccountOptions {
    Controller controller = Controller::Off;
    bool sequential = true;  // the target waits for the passes of the draft
    /// Candidates come from the text alone: a round without any is plain decoding.
    bool free_candidates = false;
    /// Tests: not 0: all decisions and prices are random. The text may not depend on them.
    std::uint64_t random_seed = 0;
};

class SpeculationAccount {
public:
    using Micros = GuardTurns::Micros;
    static constexpr int kQuietTokens = 250;
    static constexpr int kProbeTurns = 4;
    static constexpr float kPriceChange = 0.15F;  // a smaller one is not told

    explicit SpeculationAccount(const AccountOptions& options)
        : options_{options}, random_{options.random_seed} {}

    // What the scheduler asks.
    /// Whether a turn that is not plain has all candidates: published rules choose them.
    [[nodiscard]] bool takes_all() const {
        return options_.controller == Controller::Guard && !random();
    }
    /// The most candidates of a request in this turn; 0: it is plain.
    [[nodiscard]] int allowed() const;
    /// The probability of a candidate if its parents are right.
    [[nodiscard]] double probability(const TreeNode& node, bool drawn) const {
        return rates_.expected({.origin = node.origin, .drawn = drawn}, node.log_prob);
    }
    /// How many candidates join a batch that has the roots of `size.requests` requests.
    /// `probabilities` of their whole paths, descending; `waited`: of the round, until now.
    [[nodiscard]] std::size_t rows_of_round(std::span<const double> probabilities,
                                            BatchSize size,
                                            Micros waited) const;
    /// The same for a batch of one request behind others that have no verdict yet.
    [[nodiscard]] std::size_t rows_ahead(std::span<const double> probabilities,
                                         BatchSize size) const;

    /// Rows of prompts, behind `context` tokens of theirs, that a batch may have beside those of
    /// `size` if it may take `times` as long; 0: nothing is known of such batches.
    [[nodiscard]] std::uint32_t rows_beside(BatchSize size,
                                            std::uint64_t context,
                                            double times) const;

    // What happens.
    /// A part of a verify batch goes out. `running`: requests that are decoded; `alone`: no other
    /// verify batch is on its way.
    struct Part {
        RequestId request;
        BatchId batch;
        int candidates = 0;
    };
    void formed(std::span<const Part> parts,
                const BatchSize& size,
                const PromptRows& prompts,
                std::size_t running,
                bool alone,
                Micros now);
    /// A prompt shares the time of the current turn.
    void disturbed() { turns_.disturbed(); }
    /// A request has begun or ended.
    void changed(RequestId request);
    void judged(std::span<const JudgedNode> nodes, bool drawn);
    void verified(
        RequestId request, BatchId batch, int tokens, const msg::BatchCost& cost, Micros now);

    // What others are told.
    enum class Group : std::uint8_t { Drafts, Exits };
    /// For the turn in which the receiver's work counts: a sequential draft works in the next one,
    /// others in this. Nothing if it is as before. The caller fills in route and generation.
    [[nodiscard]] std::optional<msg::Price> take_price(Group group);
    /// Whether the group was told that nothing is wanted. With several requests a sequential draft
    /// is told so for the next turn while some requests still wait in this one: in vain.
    [[nodiscard]] bool told_off(Group group) const {
        const std::optional<msg::Price>& told = groups_[static_cast<std::size_t>(group)].told;
        return told && is_off(told->mode);
    }
    /// The receiver is new: it is told the price at the next take_price().
    void forget_told(Group group) { groups_[static_cast<std::size_t>(group)].told.reset(); }

    [[nodiscard]] const GuardTurns& turns() const { return turns_; }
    [[nodiscard]] const HitRates& rates() const { return rates_; }

private:
    struct Pending {
        GuardTurns::Tag tag;
        bool plain = false;  // formed in a plain turn
        BatchSize size;
        PromptRows prompts;
        int candidates = 0;
        bool alone = false;
        Micros formed{0};
    };
    struct GroupState {
        double quiet = 0.0;  // tokens of a request since a candidate of the group was seen
        int probes = 0;      // turns to go
        bool off = true;
        std::optional<msg::Price> told = {};
    };

    /// Times of a batch over all segments, by the bits of its requests - 1.
    struct BatchTimes {
        RobustMean plain;   // of roots alone in plain turns
        RobustMean loaded;  // the same in other turns
        [[nodiscard]] bool known() const { return plain.known() && loaded.known(); }
    };

    /// Of the number of requests of the newest batch.
    [[nodiscard]] const BatchTimes& batch_times() const;
    [[nodiscard]] double plain_rate(std::size_t requests) const;
    [[nodiscard]] double pass_share() const;
    [[nodiscard]] msg::Price price_of(Group of);
    void next_turn();
    [[nodiscard]] bool random() const { return options_.random_seed != 0; }
    [[nodiscard]] msg::Price random_price();

    AccountOptions options_;
    GuardTurns turns_;
    HitRates rates_;
    BatchCosts costs_;  // while speculating
    PromptCosts prompt_costs_;
    Micros prompts_learned_{-1};  // when the last batch was formed that taught them
    std::array<BatchTimes, 7> batch_times_{};
    RobustMean hops_;     // of a batch: its time until the verdict beside its jobs
    RobustMean rows_;     // of a batch
    BatchSize newest_{};  // batch that went out
    std::map<std::pair<RequestId, BatchId>, Pending> pending_;
    std::array<GroupState, 2> groups_{};
    mutable std::mt19937_64 random_;  // of tests
    int random_allowed_ = 0;
};

}  // namespace paceline
