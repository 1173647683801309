// StageActors: from a StageAssignment to the actors of one process and what they work on.
//
// The same for a stage process (stage_main.cpp), for `paceline simulate`, and for tests: the caller
// provides a loop or a simulated world. Owns backends and draft models; actors borrow them.
// Threads: made and used on one thread (a CpuBackend starts its own, a GPU is
// this thread's).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ipc/wire/control.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/weights/model_file.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

struct HostedActor {
    StageId id;
    std::unique_ptr<Backend> backend;  // of a segment or a draft model; nullptr: needs none
    std::unique_ptr<Actor> actor;      // destroyed first
};

/// Makes the backend of a stage.
using BackendMaker = std::function<Result<std::unique_ptr<Backend>>(
    const ModelFile& file, const CpuOptions& options, const StageSpec& spec)>;
/// That of make_backend(): loads the weights onto the stage's device.
[[nodiscard]] BackendMaker real_backends();

/// Opens models and packs weights, which takes time. Fills in `hello`.
/// Errors: those of opening and packing; BadArgument where a draft does not fit the target.
[[nodiscard]] Result<std::vector<HostedActor>> make_stage_actors(
    const StageAssignment& assignment,
    control::Hello& hello,
    const BackendMaker& make = real_backends());

}  // namespace paceline
