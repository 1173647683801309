// KindRule: which kinds of frame a ring may carry, how long each may be, and how urgent it is.
//
// Each end of a ring is given a table of rules (the pipeline's own is kDataKinds, data_kinds.hpp).
// The producer takes the urgency of a push from it; the consumer refuses a frame without a rule.
// Urgent frames may use a ring's reserved slots, so that in a cycle of stages whose rings are full
// of proposals and batches a verdict can still be sent, after which they are consumed. A ring may
// be made for shorter frames than the longest of a kind; longer ones are then refused, like those
// beyond the kind's bounds. Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline {

enum class Urgency : std::uint8_t { Normal, Urgent };

struct KindRule {
    std::uint16_t kind = 0;
    std::uint32_t bytes_min = 0;
    std::uint32_t bytes_max = 0;
    Urgency urgency = Urgency::Normal;
    // Of a kind whose length follows from its content: whether it does. nullptr: any length within
    // the bounds.
    bool (*length_fits)(std::span<const std::byte> payload) = nullptr;
};

/// Whether a payload has a length that its kind may have.
[[nodiscard]] constexpr bool allows(const KindRule& rule, std::span<const std::byte> payload) {
    return payload.size() >= rule.bytes_min && payload.size() <= rule.bytes_max &&
           (rule.length_fits == nullptr || rule.length_fits(payload));
}

/// The rule for `kind`, or nullptr. The tables have a handful of entries.
[[nodiscard]] constexpr const KindRule* find_rule(std::span<const KindRule> rules,
                                                  std::uint16_t kind) {
    for (const KindRule& rule : rules) {
        if (rule.kind == kind) return &rule;
    }
    return nullptr;
}

/// The longest frame of a table: a ring with this payload carries everything.
[[nodiscard]] constexpr std::uint32_t bytes_max(std::span<const KindRule> rules) {
    std::uint32_t longest = 0;
    for (const KindRule& rule : rules) longest = std::max(longest, rule.bytes_max);
    return longest;
}

/// The payload that a ring must hold so that no kind is left out.
[[nodiscard]] constexpr std::uint32_t bytes_needed(std::span<const KindRule> rules) {
    std::uint32_t most = 0;
    for (const KindRule& rule : rules) most = std::max(most, rule.bytes_min);
    return most;
}

}  // namespace paceline
