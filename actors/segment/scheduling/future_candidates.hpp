// FutureCandidates: proposals and draws of one request that came before the verdict they build on:
// their sender got it first.
//
// Of the proposals of each sender the newest is kept; its state is not less than that of an earlier
// one for the same root. Of the draws the first kDrawsMax are kept, so that later ones cannot
// decide which of them count. Each is taken once, when the text has its root. Bounded; not
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// The one whom Sequential and Lockstep wait for, or another.
enum class ProposalSender : std::uint8_t { Draft, Other };
inline constexpr std::array kProposalSenders{ProposalSender::Draft, ProposalSender::Other};

class FutureCandidates {
public:
    static constexpr std::size_t kDrawsMax = 2 * kGammaMax;

    void keep(const msg::Proposal& proposal, ProposalSender sender);
    void keep(const msg::Draw& draw);

    /// The sender's proposal, if its root is at `root` or before.
    [[nodiscard]] std::optional<msg::Proposal> take_proposal(ProposalSender sender, Position root);
    /// The draws whose root is at `root` or before, in the order in which they came.
    [[nodiscard]] std::vector<msg::Draw> take_draws(Position root);

private:
    std::array<std::optional<msg::Proposal>, kProposalSenders.size()> proposals_;
    std::vector<msg::Draw> draws_;
};

}  // namespace paceline
