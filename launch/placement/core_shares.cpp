#include "launch/placement/core_shares.hpp"

#include <algorithm>
#include <map>

namespace paceline {
namespace {

struct Lane {
    bool open = false;  // somebody in it may choose
    bool modest = false;
    std::size_t need = 1;
    std::vector<int> cores = {};  // named in it, then also those that it was given
};

bool contains(const std::vector<int>& cores, int core) {
    return std::find(cores.begin(), cores.end(), core) != cores.end();
}

std::map<int, Lane> lanes_of(const std::vector<CoreWish>& wishes) {
    std::map<int, Lane> lanes;
    for (const CoreWish& wish : wishes) {
        if (wish.lane == CoreWish::kNoLane) continue;
        Lane& lane = lanes[wish.lane];
        lane.modest = wish.modest;
        if (wish.named.empty()) {
            lane.open = true;
            lane.need = std::max(lane.need, static_cast<std::size_t>(std::max(1, wish.threads)));
        }
        for (const int core : wish.named) {
            if (!contains(lane.cores, core)) lane.cores.push_back(core);
        }
    }
    return lanes;
}

/// Moves cores from `free` to the lanes that may choose; false if there are not enough.
bool deal(std::map<int, Lane>& lanes, std::vector<int>& free) {
    std::vector<Lane*> greedy;
    std::vector<std::pair<Lane*, std::size_t>> grants;
    std::size_t granted = 0;
    for (auto& [number, lane] : lanes) {
        if (!lane.open) continue;
        const std::size_t more = lane.need - std::min(lane.need, lane.cores.size());
        granted += more;
        grants.emplace_back(&lane, more);
        if (!lane.modest) greedy.push_back(&lane);
    }
    if (granted > free.size()) return false;
    std::size_t left = free.size() - granted;
    for (std::size_t i = 0; i < greedy.size(); ++i) {
        const std::size_t part = (left + greedy.size() - i - 1) / (greedy.size() - i);
        const auto grant = std::find_if(grants.begin(), grants.end(),
                                        [&](const auto& g) { return g.first == greedy[i]; });
        grant->second += part;
        left -= part;
    }
    for (const auto& [lane, count] : grants) {
        const auto end = free.begin() + static_cast<std::ptrdiff_t>(count);
        lane->cores.insert(lane->cores.end(), free.begin(), end);
        free.erase(free.begin(), end);
    }
    return true;
}

}  // namespace

std::vector<std::vector<int>> share_cores(const std::vector<CoreWish>& wishes,
                                          const std::vector<int>& usable) {
    std::vector<int> free = usable;
    for (const CoreWish& wish : wishes)
        std::erase_if(free, [&](int core) { return contains(wish.named, core); });
    std::map<int, Lane> lanes = lanes_of(wishes);
    const bool apart = deal(lanes, free);

    std::vector<std::vector<int>> shares;
    for (const CoreWish& wish : wishes) {
        std::vector<int>& share = shares.emplace_back(wish.named);
        if (!share.empty()) continue;
        const bool computes = wish.lane != CoreWish::kNoLane;
        for (const int core : usable) {
            const bool mine =
                computes ? contains(lanes[wish.lane].cores, core) : contains(free, core);
            if (apart && mine) share.push_back(core);
        }
        if (share.empty()) share = usable;
    }
    return shares;
}

}  // namespace paceline
