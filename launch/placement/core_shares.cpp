#include "launch/placement/core_shares.hpp"

#include <algorithm>
#include <map>

#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

struct CoreGroup {
    bool open = false;  // a process in it may choose
    bool modest = false;
    std::size_t need = 1;
    std::vector<int> cores = {};  // named in it, then also those that it was given
};

bool contains(const std::vector<int>& cores, int core) {
    return std::find(cores.begin(), cores.end(), core) != cores.end();
}

std::map<int, CoreGroup> groups_of(const std::vector<CoreDemand>& demands) {
    std::map<int, CoreGroup> groups;
    for (const CoreDemand& demand : demands) {
        if (demand.group == CoreDemand::kNoGroup) continue;
        CoreGroup& group = groups[demand.group];
        group.modest = demand.modest;
        if (demand.named.empty()) {
            group.open = true;
            group.need =
                std::max(group.need, static_cast<std::size_t>(std::max(1, demand.threads)));
        }
        for (const int core : demand.named) {
            if (!contains(group.cores, core)) group.cores.push_back(core);
        }
    }
    return groups;
}

/// Moves cores from `free` to the groups that may choose; false if there are not enough.
bool deal(std::map<int, CoreGroup>& groups, std::vector<int>& free) {
    std::vector<CoreGroup*> greedy;
    std::vector<std::pair<CoreGroup*, std::size_t>> grants;
    std::size_t granted = 0;
    for (auto& [number, group] : groups) {
        if (!group.open) continue;
        const std::size_t more = group.need - std::min(group.need, group.cores.size());
        granted += more;
        grants.emplace_back(&group, more);
        if (!group.modest) greedy.push_back(&group);
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
    for (const auto& [group, count] : grants) {
        const auto end = free.begin() + static_cast<std::ptrdiff_t>(count);
        group->cores.insert(group->cores.end(), free.begin(), end);
        free.erase(free.begin(), end);
    }
    return true;
}

}  // namespace

std::vector<std::vector<int>> share_cores(const std::vector<CoreDemand>& demands,
                                          const std::vector<int>& usable) {
    std::vector<int> free = usable;
    for (const CoreDemand& demand : demands)
        std::erase_if(free, [&](int core) { return contains(demand.named, core); });
    std::map<int, CoreGroup> groups = groups_of(demands);
    const bool apart = deal(groups, free);

    std::vector<std::vector<int>> shares;
    for (const CoreDemand& demand : demands) {
        std::vector<int>& share = shares.emplace_back(demand.named);
        if (!share.empty()) continue;
        const bool computes = demand.group != CoreDemand::kNoGroup;
        for (const int core : usable) {
            const bool mine =
                computes ? contains(groups[demand.group].cores, core) : contains(free, core);
            if (apart && mine) share.push_back(core);
        }
        if (share.empty()) share = usable;
    }
    return shares;
}

CoreShares share_cores_by_machine(const std::vector<CoreDemand>& demands,
                                  const std::vector<std::vector<int>>& cores_of) {
    CoreShares shares{std::vector<std::vector<int>>(demands.size()),
                      std::vector<bool>(demands.size())};
    for (std::size_t machine = 0; machine < cores_of.size(); ++machine) {
        std::vector<std::size_t> here;
        std::vector<CoreDemand> asked;
        for (std::size_t i = 0; i < demands.size(); ++i) {
            if (demands[i].machine != machine) continue;
            here.push_back(i);
            asked.push_back(demands[i]);
        }
        const std::vector<std::vector<int>> cores = share_cores(asked, cores_of[machine]);
        const std::vector<bool> shared = cores_shared(cores);
        for (std::size_t i = 0; i < here.size(); ++i) {
            shares.cores[here[i]] = cores[i];
            shares.shared[here[i]] = shared[i];
        }
    }
    return shares;
}

}  // namespace paceline
