// LostKeys: the segments that may lack keys of what was cached: those that were lost since, and all
// between them.
//
//     segments    1 ... from-1 | from ... to | to+1 ...
//                 have them    | compute     | have them
//                              | them again  |
//
// Stages are named by their ids, which follow each other along the chain. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>

namespace paceline {

struct LostKeys {
    /// As `to`: the first segment has lost them, whose dispatcher knows what is cached, or it is
    /// not known which segment has.
    static constexpr std::uint32_t kAll = 0xffffffff;

    std::uint32_t from = 0;
    std::uint32_t to = 0;  // 0: no segment lacks any

    [[nodiscard]] static LostKeys all() { return {1, kAll}; }
    [[nodiscard]] bool any() const { return to != 0; }
    [[nodiscard]] bool is_all() const { return to == kAll; }
    /// The others are lost too.
    void add(const LostKeys& others) {
        if (!others.any()) return;
        from = any() ? std::min(from, others.from) : others.from;
        to = std::max(to, others.to);
    }
    friend bool operator==(const LostKeys&, const LostKeys&) = default;
};

}  // namespace paceline
