// RowBudget: how many rows of a batch each request gets, and which candidates are worth theirs.
//
//     weigh()    the probabilities of one request's candidates, and as many of them as its turn
//                allows
//     share()    all requests of a batch: of their candidates as many as pay together, then the
//                rows by row_shares.hpp
//     charge()   the account learns which batch goes out: the other half of what it measures
//
// Without an account nothing is weighed or charged; where exits start early the account chooses no
// rows (DispatchOptions::exits_start_early).
// Borrows options and account. No clock: times come by calls. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/account/speculation_account.hpp"
#include "actors/segment/rows/row_order.hpp"
#include "actors/segment/rows/row_shares.hpp"
#include "actors/segment/scheduling/dispatch_options.hpp"
#include "actors/segment/scheduling/scheduler_entry.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// A request that could be part of the batch that is being formed.
struct SchedulableRequest {
    SchedulerEntry* entry = nullptr;
    RowOrder order = {};                     // of a verify part
    std::vector<double> probabilities = {};  // of their paths, with an account
    std::uint32_t wanted = 0;                // rows
    std::uint32_t granted = 0;

    [[nodiscard]] bool prefills() const { return order.nodes.empty(); }
};

class RowBudget {
public:
    /// `account`: nullptr: all candidates are sent, as the options say.
    RowBudget(const DispatchOptions& options, SpeculationAccount* account)
        : options_{options}, account_{account} {}

    /// Whether the account chooses candidates.
    [[nodiscard]] bool chooses() const {
        return account_ != nullptr && !options_.exits_start_early;
    }
    /// It chooses none in this turn.
    [[nodiscard]] bool plain_turn() const { return chooses() && account_->allowed() == 0; }

    /// Cuts the order of a verify part to what its turn allows; perhaps none are left.
    void weigh(SchedulableRequest& candidate) const;
    /// Sets `granted` of each.
    void share(std::span<SchedulableRequest> candidates, Micros now) const;
    /// `running`: requests that are decoded; `alone`: no other verify batch is without verdict.
    void charge(const msg::Batch& batch, std::size_t running, bool alone, Micros now);

private:
    [[nodiscard]] bool takes_all() const;
    void choose(std::span<SchedulableRequest> candidates, Micros now) const;
    [[nodiscard]] RowLimits limits(const BatchSize& verified, std::uint64_t prompt_context) const;

    const DispatchOptions& options_;
    SpeculationAccount* account_;
    bool prompts_before_ = false;  // the last batch had prompts alone
};

}  // namespace paceline
