// ModelOptions: which model a command works on and how it is held in memory; the options that
// run, tokenize and bench have in common. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "launch/base/device.hpp"
#include "launch/base/environment.hpp"

namespace paceline {

struct ModelOptions {
    std::string model;              // -m; empty: PACELINE_MODEL, else the demo model
    std::string lora = {};          // --lora: a part to merge, kEarlyExit, or empty: none
    std::string dtype = "auto";     // of the packed weights
    std::string kv_dtype = "auto";  // kv_type() in load_model.hpp says what that is
    std::string device = "cpu";     // of what this process decodes, or of a method's stages
    std::string exact = "on";       // "off": plain decoding on a GPU may use cuBLAS
    std::string isa = "auto";       // instruction set of the kernels
    int threads = 0;                // 0: one per physical core that may be used
    std::string parts = {};   // --parts: a folder with trained parts, "none", or empty: searched
    int context = 0;          // 0: what the model was trained for, at most kContextDefault
    std::string random = {};  // --random: a shape in place of a model (shapes.hpp)
    std::uint64_t random_seed = 1;  // of its weights
    bool no_cache = false;          // a folder's packed weights are neither kept nor looked for
    std::string copy = {};  // of a folder, for a stage: where they are kept (packed_cache.hpp)
};

/// The word of --lora that has the part looked for.
inline constexpr const char* kEarlyExit = "early-exit";

inline constexpr int kContextDefault = 8192;

[[nodiscard]] const std::vector<std::string>& dtype_names();
[[nodiscard]] const std::vector<std::string>& kv_dtype_names();
[[nodiscard]] const std::vector<std::string>& isa_names();

void add_model_file_option(Command& app, ModelOptions& options);
/// --lora, for commands that compute with the weights.
void add_lora_option(Command& app, ModelOptions& options);
/// --no-cache, for commands that compute with the weights.
void add_cache_option(Command& app, ModelOptions& options);
/// -m, --lora, --dtype, --no-cache, --kv-dtype, --isa, -t, -c
void add_model_options(Command& app, ModelOptions& options);
/// --device: "cpu", "cuda:N" or a list of GPUs; whether it is there says check_device().
void add_device_option(Command& app, ModelOptions& options);
/// --exact: "on" or "off", for commands that decode plainly on a device.
void add_exact_option(Command& app, ModelOptions& options);
/// For commands that compare with a pipeline: --exact off is refused with the reason.
void refuse_exact_option(Command& app);
inline constexpr const char* kExactIsForPlain =
    "--exact off is for plain decoding: a pipeline gives the bytes of one process, though its "
    "batches "
    "are others, after a crash too";
/// --random, --random-seed: a shape in place of the model file, for commands that need no text.
/// Precondition: the command has --model and --lora.
void add_random_options(Command& app, ModelOptions& options);
/// For commands that need text: --random is refused with the reason.
void refuse_random_option(Command& app);
/// What --device and --exact say. Precondition: options.device has passed the option's check.
[[nodiscard]] Device device_of(const ModelOptions& options);
/// --requests, --kv-memory: of a pipeline that decodes many answers at once
void add_requests_options(Command& app, int& requests, std::uint64_t& kv_memory);
/// --gpus: of a pipeline
void add_gpus_option(Command& app, std::string& gpus);
/// --parts: where a pipeline decodes
void add_parts_option(Command& app, ModelOptions& options);

/// The file or folder that `name` means: a path, or owner/name of a model in the Hugging Face
/// cache.
/// Errors: BadFile: a name of the hub that is neither; those of find_in_hub().
[[nodiscard]] Result<std::string> find_model(const std::string& name, const std::string& hub_cache);

/// The file or folder to open: -m, PACELINE_MODEL or the demo model in the cache. Errors: BadFile
/// with the command that fetches the demo model when there is none of the three.
[[nodiscard]] Result<std::string> choose_model(const ModelOptions& options,
                                               const Environment& environment);

}  // namespace paceline
