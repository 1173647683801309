// Groups of GPUs: which may share a stage, and which do where a stage says how many (`tensor`).
//
// GPUs of a group are of one kind and on one machine. Those that reach each other's memory come
// first: others exchange what they compute through the host's (model/cuda/cuda_exchange.hpp). Of
// such groups the one is chosen whose fullest GPU holds as little as possible; before the stages
// that have one GPU.
// Pure functions of values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/config/machine_file.hpp"

namespace paceline {

/// Why `gpus` of the machine cannot share a stage: two kinds, or two machines. Nothing: they can.
[[nodiscard]] std::optional<std::string> group_problem(const GpuMachine& machine,
                                                       const std::vector<int>& gpus);

/// `count` of `usable`, ascending in its order; `held`: the bytes that GPUs hold already. Empty if
/// no so many of them can share a stage.
[[nodiscard]] std::vector<int> choose_group(const GpuMachine& machine,
                                            const std::vector<int>& usable,
                                            int count,
                                            const std::map<int, std::uint64_t>& held);

/// Whether two of them do not reach each other's memory, as far as the machine is known.
[[nodiscard]] bool goes_through_host(const GpuMachine& machine, const std::vector<int>& gpus);

/// The most of `usable` that can share a stage.
[[nodiscard]] int largest_group(const GpuMachine& machine, const std::vector<int>& usable);

}  // namespace paceline
