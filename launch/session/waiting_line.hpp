// WaitingLine: orders that wait for their turn: by priority, then by age, and with ageing, so that
// none waits for ever behind newer ones.
//
// An order's rank is its priority minus its waiting time in steps of kAgeing, and the lowest rank
// goes first: an order of priority p that has waited p - q steps longer than one of priority q
// passes it.
// Pure: times come by calls. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace paceline {

class WaitingLine {
public:
    using Micros = std::chrono::microseconds;
    static constexpr Micros kAgeing{2'000'000};

    void add(std::uint64_t id, int priority, Micros now) {
        // Waiting lowers all ranks alike: the order is fixed when an order joins.
        const double rank =
            priority + (static_cast<double>(now.count()) / static_cast<double>(kAgeing.count()));
        const Place place{rank, id};
        waiting_.insert(place);
        places_.emplace(id, place);
    }
    /// The one whose turn it is; it leaves the line.
    std::optional<std::uint64_t> take() {
        if (waiting_.empty()) return std::nullopt;
        const std::uint64_t id = waiting_.begin()->second;
        remove(id);
        return id;
    }
    /// Nothing happens if it does not wait.
    void remove(std::uint64_t id) {
        const auto found = places_.find(id);
        if (found == places_.end()) return;
        waiting_.erase(found->second);
        places_.erase(found);
    }
    [[nodiscard]] std::size_t size() const { return waiting_.size(); }

private:
    using Place = std::pair<double, std::uint64_t>;  // rank, id
    std::set<Place> waiting_;
    std::map<std::uint64_t, Place> places_;
};

}  // namespace paceline
