// Which kinds of frame exist, how long each may be, and how urgent it is.
//
// A ring is given a table of these: its producer takes the class of a push from it, its consumer
// refuses a frame that no rule describes. Urgent frames may use a ring's reserved slots, so that
// a cycle of stages, each full of proposals or waves, can still pass the verdict that drains it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "ipc/messages.hpp"

namespace paceline {

enum class Urgency : std::uint8_t { Normal, Urgent };

struct KindRule {
    std::uint16_t kind = 0;
    std::uint32_t bytes_min = 0;
    std::uint32_t bytes_max = 0;
    Urgency urgency = Urgency::Normal;
};

template <msg::HotMessage M>
[[nodiscard]] constexpr KindRule exactly(Urgency urgency) {
    return {static_cast<std::uint16_t>(M::kKind), sizeof(M), sizeof(M), urgency};
}

inline constexpr std::array kHotKinds = {
    exactly<msg::Proposal>(Urgency::Normal),   exactly<msg::Wave>(Urgency::Normal),
    exactly<msg::TensorNote>(Urgency::Normal), exactly<msg::Verdict>(Urgency::Urgent),
    exactly<msg::Stop>(Urgency::Urgent),
};

/// The rule for `kind`, or nullptr. The tables have a handful of entries.
[[nodiscard]] constexpr const KindRule* find_rule(std::span<const KindRule> rules,
                                                  std::uint16_t kind) {
    for (const KindRule& rule : rules) {
        if (rule.kind == kind) return &rule;
    }
    return nullptr;
}

/// The longest frame of a table: the payload that a ring for it must hold.
[[nodiscard]] constexpr std::uint32_t bytes_max(std::span<const KindRule> rules) {
    std::uint32_t longest = 0;
    for (const KindRule& rule : rules) longest = std::max(longest, rule.bytes_max);
    return longest;
}

}  // namespace paceline
