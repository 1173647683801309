// From the command line's ModelOptions to a model in memory: opening, choosing cores, packing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/progress_bar.hpp"
#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {

/// A checked file and its tokenizer; no weights are packed yet. Cheap to open.
struct OpenedModel {
    ModelFile file;
    Tokenizer tokenizer;
};

/// The file with the LoRA of --lora merged, or the shape of --random. Errors: those of
/// choose_model(), ModelFile::open(), find_lora() and merge_lora(), or of open_shape().
[[nodiscard]] Result<ModelFile> open_model_file(const ModelOptions& options,
                                                const Environment& environment);

/// `options` with the files that `file` was opened from, for open_named_model() in another process.
[[nodiscard]] ModelOptions naming(ModelOptions options, const ModelFile& file);

/// The same as open_model_file() where the options name each file, also the packed copy. Errors:
/// those of ModelFile::open() and merge_lora(), or of open_shape().
[[nodiscard]] Result<ModelFile> open_named_model(const ModelOptions& options);

/// What the next two show on stderr.
struct OpenOutput {
    Show bars = Show::No;
    bool remarks = true;  // a packed copy that was damaged or cannot be kept
};

/// Gives a folder the packed copy that the options ask for (packed_cache.hpp), made first if there
/// is none. Every command that computes with weights calls it for each model that it opens, before
/// any of them is packed.
void take_packed_copy(ModelFile& file,
                      const ModelOptions& options,
                      const Environment& environment,
                      OpenOutput output);

/// For decoding text, with take_packed_copy(). Errors: those of open_model_file() and
/// tokenizer_of().
[[nodiscard]] Result<OpenedModel> open_model(const ModelOptions& options,
                                             const Environment& environment,
                                             OpenOutput output);
/// With bars where stderr is a terminal.
[[nodiscard]] Result<OpenedModel> open_model(const ModelOptions& options,
                                             const Environment& environment);

/// Tokens that prompt and answer may have together: -c, or the model's own context up to
/// kContextDefault.
[[nodiscard]] int context_of(const ModelOptions& options, const ModelConfig& config);

/// Threads and the cores to pin them to. More threads than allowed cores are not pinned.
struct ThreadPlan {
    int threads = 1;
    std::vector<int> cores;
    int usable_cores = 1;
};
[[nodiscard]] ThreadPlan plan_threads(const Machine& machine, int threads_wanted);

/// A sentence about a -t that slows the run down or changes nothing; empty: it is right, or 0.
[[nodiscard]] std::string threads_warning(int threads, const Device& device);

/// The type of keys and values on `device`: that of --kv-dtype, where "auto" is f16 on a CPU and
/// bf16 on a GPU, whose tensor cores attention uses with that type alone.
[[nodiscard]] KvType kv_type(const ModelOptions& options, const Device& device);

/// The type that most weights of `file` have in the memory of `device` with --dtype: what "auto"
/// comes to.
[[nodiscard]] std::string dtype_in_memory(const ModelFile& file,
                                          const std::string& dtype,
                                          const Device& device);

/// `options` as a backend for all layers on `device` with room for `kv_slots` keys wants them
/// (make_backend.hpp).
[[nodiscard]] CpuOptions cpu_options(const ModelOptions& options,
                                     const ThreadPlan& plan,
                                     int kv_slots,
                                     const Device& device = {});

/// Loads the weights; `bars`: whether stderr shows how far.
/// Errors: those of make_backend().
[[nodiscard]] Result<std::unique_ptr<Backend>> load_backend(const ModelFile& file,
                                                            CpuOptions options,
                                                            const Device& device,
                                                            Show bars);

}  // namespace paceline
