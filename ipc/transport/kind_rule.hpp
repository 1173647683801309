// KindRule: which kinds of frame a ring may carry, how long each may be, and how urgent it is.
//
// Each end of a ring is given a table of rules (the pipeline's own is kHotKinds, hot_kinds.hpp). The
// producer takes the urgency of a push from it; the consumer refuses a frame without a rule. Urgent
// frames may use a ring's reserved slots, so that in a cycle of stages whose rings are full of
// proposals and waves a verdict still passes, and drains them.
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace paceline {

enum class Urgency : std::uint8_t { Normal, Urgent };

struct KindRule {
    std::uint16_t kind = 0;
    std::uint32_t bytes_min = 0;
    std::uint32_t bytes_max = 0;
    Urgency urgency = Urgency::Normal;
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
