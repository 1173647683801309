// fill_in_order(): which GPU each part of a pipeline goes to, by bytes alone (gpu_plan.hpp has the
// rules).
//
// Pure functions of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace paceline {

/// Bytes on a GPU that is named.
struct FillPart {
    int gpu = 0;
    std::uint64_t bytes = 0;
};

/// Stages that go to a GPU together, or to several that are named.
struct FillUnit {
    std::vector<std::size_t> stages = {};  // the caller's numbers
    bool target = false;                   // of the target: kept in order; else a draft
    std::uint64_t bytes = 0;               // beside those of `named`, on its first if there is one
    std::vector<FillPart> named = {};      // the GPUs that it must be on
};

struct FillGpu {
    int index = 0;
    std::uint64_t room = 0;
};

/// The first unit that found no room.
struct FillFailure {
    std::size_t unit = 0;
    std::uint64_t bytes = 0;  // of it, on this GPU
    int gpu = 0;
    std::uint64_t left = 0;     // bytes there before it
    std::uint64_t missing = 0;  // bytes
};

struct Fill {
    // In the order of the units; complete if there is no failure. Of a unit with named GPUs the
    // first of them.
    std::vector<int> gpu_of;
    std::optional<FillFailure> failure;
};

/// Where it fails, the attempt that missed least. Precondition: at least one GPU, and named ones
/// are among them.
[[nodiscard]] Fill fill_in_order(const std::vector<FillUnit>& units,
                                 const std::vector<FillGpu>& gpus);

}  // namespace paceline
