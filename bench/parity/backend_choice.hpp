// BackendChoice: which backend a measuring tool runs, as the user names it.
#pragma once

#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::parity {

struct BackendChoice {
    std::string backend = "cpu";  // "cpu", "cuda" (device 0), or "reference": plain loops, slow
    std::string dtype = "f32";    // of the weights: auto, f32, bf16, int8, q4
    std::string kv = "f32";       // f32, f16, bf16
    int threads = 1;
};

/// A backend over the whole of `file` with slots for `positions`.
/// Errors: BadArgument naming the option and its value; those of make_cpu_backend().
Result<std::unique_ptr<Backend>> make_backend(const ModelFile& file,
                                              const BackendChoice& choice,
                                              int positions);

}  // namespace paceline::parity
