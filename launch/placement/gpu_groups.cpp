#include "launch/placement/gpu_groups.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "launch/base/device.hpp"

namespace paceline {
namespace {

const std::string& kind_of(const GpuMachine& machine, int gpu) {
    return machine.gpus[static_cast<std::size_t>(gpu)].name;
}

std::uint64_t held_by(const std::map<int, std::uint64_t>& held, int gpu) {
    const auto found = held.find(gpu);
    return found == held.end() ? 0 : found->second;
}

bool joins(const GpuMachine& machine, const std::vector<int>& group, int gpu) {
    return std::all_of(group.begin(), group.end(), [&](int member) {
        return kind_of(machine, member) == kind_of(machine, gpu) && machine.reach(member, gpu);
    });
}

/// From `first` on, the emptiest ones that can join; fewer than `count` if there are no more.
std::vector<int> group_from(const GpuMachine& machine,
                            const std::vector<int>& by_load,
                            int first,
                            int count) {
    std::vector<int> group{first};
    for (const int gpu : by_load) {
        if (group.size() == static_cast<std::size_t>(count)) break;
        if (gpu != first && joins(machine, group, gpu)) group.push_back(gpu);
    }
    return group;
}

}  // namespace

std::optional<std::string> group_problem(const GpuMachine& machine, const std::vector<int>& gpus) {
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const std::string& one = kind_of(machine, gpus[j]);
            const std::string& other = kind_of(machine, gpus[i]);
            if (one != other)
                return fmt::format(
                    "cuda:{} is an {}, cuda:{} an {}; GPUs that share a stage are "
                    "of one kind",
                    gpus[j], one, gpus[i], other);
            if (!machine.reach(gpus[j], gpus[i]))
                return fmt::format(
                    "cuda:{} and cuda:{} do not reach each other's memory (link "
                    "{}); give each a stage of its own",
                    gpus[j], gpus[i], to_text(machine.link(gpus[j], gpus[i])));
        }
    }
    return std::nullopt;
}

std::vector<int> choose_group(const GpuMachine& machine,
                              const std::vector<int>& usable,
                              int count,
                              const std::map<int, std::uint64_t>& held) {
    std::vector<int> by_load = usable;
    std::stable_sort(by_load.begin(), by_load.end(),
                     [&](int a, int b) { return held_by(held, a) < held_by(held, b); });
    std::vector<int> best;
    std::uint64_t fullest = 0;
    for (const int first : by_load) {
        std::vector<int> group = group_from(machine, by_load, first, count);
        if (group.size() != static_cast<std::size_t>(count)) continue;
        std::uint64_t most = 0;
        for (const int gpu : group) most = std::max(most, held_by(held, gpu));
        if (!best.empty() && most >= fullest) continue;
        best = std::move(group);
        fullest = most;
    }
    const auto place = [&](int gpu) { return std::find(usable.begin(), usable.end(), gpu); };
    std::sort(best.begin(), best.end(), [&](int a, int b) { return place(a) < place(b); });
    return best;
}

int largest_group(const GpuMachine& machine, const std::vector<int>& usable) {
    int count = std::min(static_cast<int>(usable.size()), static_cast<int>(kGroupGpusMax));
    while (count > 1 && choose_group(machine, usable, count, {}).empty()) --count;
    return count;
}

}  // namespace paceline
