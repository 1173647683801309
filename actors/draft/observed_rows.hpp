// ObservedRows: the names under which a source observes nodes of its tree (msg::ProposedNode), and
// the target's tokens that came back under them.
//
//     plan()            a new tree below a new root: earlier names are of no use any more
//     shift(count)      the text has gone on by so many of the nodes, the tree below them is kept:
//                       its nodes keep their names, the index of each is smaller by `count`
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
        first_ = (first_ + kRowsMax) % kNames;
        forget();
    }
    void shift(std::size_t count) {
        if (count >= kRowsMax) return plan();  // none of the nodes is left
        first_ = (first_ + count) % kNames;
        forget();
    }
    void forget() { tokens_.fill(std::nullopt); }
    [[nodiscard]] std::uint8_t name(std::size_t index) const {
        PACE_CHECK(index < kRowsMax, "more observed rows than a message has");
        return static_cast<std::uint8_t>(1 + (first_ + index) % kNames);
    }
    void take(std::span<const msg::OwnToken> own) {
        for (const msg::OwnToken& each : own) {
            if (each.node == 0 || each.node > kNames) continue;
            const std::size_t index = (each.node - 1 + kNames - first_) % kNames;
            if (index < kRowsMax) tokens_[index] = each.token;
        }
    }
    [[nodiscard]] std::optional<TokenId> token(std::size_t index) const {
        return index < kRowsMax ? tokens_[index] : std::nullopt;
    }

private:
    // Names go round: those of the two plans before are outside of the current kRowsMax.
    static constexpr std::size_t kNames = 3 * kRowsMax;
    static_assert(kNames <= 255);  // they fit a byte, and 0 is none

    std::size_t first_ = 0;  // name of the node of index 0, from 0
    std::array<std::optional<TokenId>, kRowsMax> tokens_{};
};

}  // namespace paceline
