#include "launch/placement/gpu_groups.hpp"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <span>

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

/// What is asked of GPUs of one kind and one machine.
enum class Reach : std::uint8_t { Wanted, NotWanted };

bool joins(const GpuMachine& machine, const std::vector<int>& group, int gpu, Reach reach) {
    return std::all_of(group.begin(), group.end(), [&](int member) {
        return kind_of(machine, member) == kind_of(machine, gpu) && machine.together(member, gpu) &&
               (reach == Reach::NotWanted || machine.reach(member, gpu));
    });
}

/// Makes `group` as large as `count` with some of `gpus`, from place `from` on. False, and `group`
/// as it was, if there are no such ones.
bool complete(const GpuMachine& machine,
              std::span<const int> gpus,
              std::size_t from,
              std::size_t count,
              Reach reach,
              std::vector<int>& group) {
    if (group.size() == count) return true;
    for (std::size_t i = from; i < gpus.size(); ++i) {
        if (!joins(machine, group, gpus[i], reach)) continue;
        group.push_back(gpus[i]);
        if (complete(machine, gpus, i + 1, count, reach, group)) return true;
        group.pop_back();
    }
    return false;
}

}  // namespace

std::optional<std::string> group_problem(const GpuMachine& machine, const std::vector<int>& gpus) {
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const std::string& one = kind_of(machine, gpus[j]);
            const std::string& other = kind_of(machine, gpus[i]);
            if (one != other) return kinds_differ(gpus[j], one, gpus[i], other);
            if (!machine.together(gpus[j], gpus[i]))
                return fmt::format(
                    "cuda:{} and cuda:{} are on two machines; give each a stage of "
                    "its own",
                    gpus[j], gpus[i]);
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
    // The fullest one of the first so many is their last: the fewest that hold a group.
    std::vector<int> group;
    const auto wanted = static_cast<std::size_t>(count);
    for (const Reach reach : {Reach::Wanted, Reach::NotWanted}) {
        for (std::size_t most = wanted; most <= by_load.size() && group.empty(); ++most)
            (void)complete(machine, std::span{by_load}.first(most), 0, wanted, reach, group);
    }
    const auto place = [&](int gpu) { return std::find(usable.begin(), usable.end(), gpu); };
    std::sort(group.begin(), group.end(), [&](int a, int b) { return place(a) < place(b); });
    return group;
}

bool goes_through_host(const GpuMachine& machine, const std::vector<int>& gpus) {
    for (const int a : gpus) {
        for (const int b : gpus) {
            if (!machine.reach(a, b)) return true;
        }
    }
    return false;
}

int largest_group(const GpuMachine& machine, const std::vector<int>& usable) {
    int count = std::min(static_cast<int>(usable.size()), static_cast<int>(kGroupGpusMax));
    while (count > 1 && choose_group(machine, usable, count, {}).empty()) --count;
    return count;
}

}  // namespace paceline
