// What a toy stage does wrong, as its assignment says, and the assignment itself.
//
// A fault strikes at the nth passing of a fault point (ipc/base/faults.hpp), counted from the
// moment at which the stage has something to do, so that the start of a run, where any death ends
// it, is past. It strikes in some incarnations only: that is how a stage dies while it comes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ipc/base/faults.hpp"
#include "ipc/base/ids.hpp"
#include "runtime/parent/supervisor.hpp"
#include "tests/support/toy/toy_pipeline.hpp"

namespace paceline::testing {

enum class ToyAction : std::uint8_t {
    None,
    Die,          // SIGKILL to itself
    Stop,         // SIGSTOP to itself
    Hang,         // sleeps for ever
    ScribbleOut,  // from now on: random bytes over the rings that it writes to
    ScribbleIn,   // the same over those it reads from
    OutOfMemory,  // its nth run through the layers throws bad_alloc (the point is not looked at)
    SlowRun,      // its nth run through the layers takes a second (the same)
    ExitOnLoad,   // exit code 3 before it says hello (point and nth are not looked at)
    HangOnLoad,   // never says hello (the same)
    DieOf,        // SIGKILL to itself at each Begin of the request `poison` (the same)
};

struct ToyFault {
    ToyAction action = ToyAction::None;
    FaultPoint point = FaultPoint::JobStarted;
    std::uint32_t first_epoch = 1;  // incarnations in which it strikes
    std::uint32_t last_epoch = 1;
    std::uint32_t nth = 1;  // passing, plus a different one of 0 .. spread-1 in each incarnation
    std::uint32_t spread = 1;
    std::uint64_t poison = 0;  // of DieOf: the seed of a toy_request()
};

inline constexpr std::size_t kToyFaultsMax = 3;

/// The payload of Assign. Trivially copyable: both ends are built from this header.
struct ToyAssignment {
    ToyPlan plan;
    std::array<ToyFault, kToyFaultsMax> faults;
    PlantedBug bug = PlantedBug::None;
};

[[nodiscard]] std::vector<std::byte> encode_toy(const ToyAssignment& assignment);
[[nodiscard]] std::optional<ToyAssignment> decode_toy(std::span<const std::byte> payload);

/// Faults of one stage process, named by its first actor.
struct ToyFaultOf {
    StageId process;
    ToyFault fault;
};
/// The children that a supervisor starts, each with what it is to do wrong. Segments are rebuilt
/// when they die, drafts restarted alone. The bug is planted in all of them.
[[nodiscard]] std::vector<ProcessSpec> toy_children(const ToyPlan& plan,
                                                    std::span<const ToyFaultOf> faults = {},
                                                    PlantedBug bug = PlantedBug::None);

}  // namespace paceline::testing
