// ObservedRows: the names under which a source observes nodes of its tree (msg::ProposedNode), and
// the target's tokens that came back under them.
//
//     plan()            a new tree below a new root: earlier names are of no use any more
//     name(index)       of the source's index-th observed node, for SourceNode::observe
//     take(own)         what the last segment said; names of an earlier plan are ignored
//     token(index)      the target's token after that node, if it is known
//
// A candidate may outlive its tree in the target's, so names differ from plan to plan.
// Plain value; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ipc/base/check.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class ObservedRows {
public:
    static constexpr std::size_t kRowsMax = msg::kOwnTokensMax;

    void plan() {
        plan_ = (plan_ + 1) % kPlans;
        forget();
    }
    void forget() { tokens_.fill(std::nullopt); }
    [[nodiscard]] std::uint8_t name(std::size_t index) const {
        PACE_CHECK(index < kRowsMax, "more observed rows than a message has");
        return static_cast<std::uint8_t>(1 + plan_ * kRowsMax + index);
    }
    void take(std::span<const msg::OwnToken> own) {
        for (const msg::OwnToken& each : own) {
            if (each.node < name(0) || each.node > name(kRowsMax - 1)) continue;
            tokens_[each.node - name(0)] = each.token;
        }
    }
    [[nodiscard]] std::optional<TokenId> token(std::size_t index) const {
        return index < kRowsMax ? tokens_[index] : std::nullopt;
    }

private:
    static constexpr std::size_t kPlans = 3;  // whose names fit a byte
    static_assert(kPlans * kRowsMax <= 255);

    std::size_t plan_ = 0;
    std::array<std::optional<TokenId>, kRowsMax> tokens_{};
};

}  // namespace paceline
