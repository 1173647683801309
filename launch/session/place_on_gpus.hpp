// place_on_gpus(): the stages of a pipeline on the GPUs of a machine, for run and serve.
//
// One thread; reads files, and starts the driver unless the machine is described.
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/used_parts.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Which GPUs: of this machine, or of one that a file describes.
struct GpuChoice {
    std::string gpus = {};          // --gpus: "0,2"; "all" or empty: all
    std::string machine_file = {};  // --machine; empty: this machine
    bool described = false;         // only planned: cores and links are the file's too
};

struct ResolvedPipeline {
    ResolvedConfig resolved;
    std::string gpu_table;  // empty: no GPUs were asked for
};

/// `pipeline` with its stages placed, and the table that says where. Errors: Unsupported without a
/// GPU or without CUDA in the program; BadArgument for GPUs that are not there; those of
/// plan_gpus() and choose_transports().
[[nodiscard]] Result<ResolvedPipeline> place_on_gpus(ResolvedConfig pipeline,
                                                     const ModelOptions& model,
                                                     const ModelFile& file,
                                                     const GpuChoice& choice);

}  // namespace paceline
