// Groups of GPUs: which may share a stage, and which do where a stage says how many (`tensor`).
//
// GPUs of a group are of one kind and reach each other's memory. A group is chosen so that the GPU
// of it that holds most holds as little as possible; before the stages that have one GPU.
// Pure functions of values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/config/machine_file.hpp"

namespace paceline {

/// Why `gpus` of the machine cannot share a stage: two kinds, or two that do not reach each other.
/// Nothing: they can.
[[nodiscard]] std::optional<std::string> group_problem(const GpuMachine& machine,
                                                       const std::vector<int>& gpus);

/// `count` of `usable`, ascending in its order; `held`: the bytes that GPUs hold already. Empty if
/// no so many of them can share a stage.
[[nodiscard]] std::vector<int> choose_group(const GpuMachine& machine,
                                            const std::vector<int>& usable,
                                            int count,
                                            const std::map<int, std::uint64_t>& held);

/// The most of `usable` that can share a stage.
[[nodiscard]] int largest_group(const GpuMachine& machine, const std::vector<int>& usable);

}  // namespace paceline
