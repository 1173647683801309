#include "launch/base/model_options.hpp"

#include <filesystem>
#include <fmt/core.h>
#include <system_error>

#include "ipc/base/limits.hpp"
#include "launch/base/hub_cache.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/shapes.hpp"

namespace paceline {

const std::vector<std::string>& dtype_names() {
    static const std::vector<std::string> names{"auto", "f32", "bf16", "int8", "q4"};
    return names;
}

const std::vector<std::string>& kv_dtype_names() {
    static const std::vector<std::string> names{"auto", "f16", "bf16", "f32"};
    return names;
}

const std::vector<std::string>& isa_names() {
    static const std::vector<std::string> names{"auto", "amx", "avx512", "avx2", "portable"};
    return names;
}

void add_model_file_option(Command& app, ModelOptions& options) {
    app.add_option("-m,--model", options.model,
                   "model: a GGUF file, a Hugging Face folder, or OWNER/NAME of one in the "
                   "Hugging Face cache, which nothing is fetched into (default: $PACELINE_MODEL, "
                   "else the demo model that launch/fetch_model brings)");
}

void add_lora_option(Command& app, ModelOptions& options) {
    app.add_option("--lora", options.lora,
                   "LoRA merged into the weights on load, a trained part made for the model; "
                   "early-exit looks for early-exit.safetensors where trained parts are");
}

void add_cache_option(Command& app, ModelOptions& options) {
    app.add_flag("--no-cache", options.no_cache,
                 "with --dtype int8 or q4 and a Hugging Face folder: pack it anew, and keep no "
                 "packed copy in "
                 "~/.cache/paceline/packed");
}

void add_model_options(Command& app, ModelOptions& options) {
    add_model_file_option(app, options);
    add_lora_option(app, options);
    app.add_option(
           "--dtype", options.dtype,
           "weights in memory; auto keeps what the file has: F32, F16 (bf16 on a GPU), BF16, "
           "Q8_0 as int8, Q4_0 and Q4_1 as q4, other blocks as they are")
        .check(one_of(dtype_names()))
        .show_default();
    add_cache_option(app, options);
    app.add_option("--kv-dtype", options.kv_dtype,
                   "keys and values in memory; auto is f16 on a CPU, bf16 on a GPU")
        .check(one_of(kv_dtype_names()))
        .show_default();
    app.add_option("--isa", options.isa,
                   "instruction set of the kernels; auto takes the best there is")
        .check(one_of(isa_names()))
        .show_default();
    app.add_option("-t,--threads", options.threads,
                   "threads, each on a core of its own (default: the physical cores that this "
                   "process may use)")
        .check(explain_low(whole_number(1, 1024), "without -t it is the number of cores"));
    app.add_option("-c,--context", options.context,
                   fmt::format("tokens that prompt and answer may have together (default: the "
                               "model's own context, at most {})",
                               kContextDefault))
        .check(explain_low(
            whole_number(1, 1 << 24),
            fmt::format("without -c it is the model's own, at most {}", kContextDefault)));
}

void add_device_option(Command& app, ModelOptions& options) {
    const OptionCheck known{[](const std::string& word) {
        return parse_device(word)
                   ? std::string{}
                   : "'" + word + "' is not cpu or cuda:N, or GPUs such as cuda:0,cuda:1";
    }};
    app.add_option("--device", options.device,
                   "what to decode on: cpu or cuda:N; cuda:0,cuda:1: both, each a part of every "
                   "matrix")
        .check(known)
        .show_default();
}

void add_exact_option(Command& app, ModelOptions& options) {
    app.add_option("--exact", options.exact,
                   "off: in plain decoding a GPU multiplies batches of more than 64 rows with "
                   "cuBLAS, and the text may depend on how its rows came together")
        .check(one_of({"on", "off"}))
        .show_default();
}

void refuse_exact_option(Command& app) {
    const auto complaint = [](const std::string& word) {
        return std::string{word == "off" ? kExactIsForPlain : ""};
    };
    app.refuse_option("--exact", complaint).check(one_of({"on", "off"}));
}

void add_random_options(Command& app, ModelOptions& options) {
    std::string names;
    for (const std::string_view name : shape_names())
        names += (names.empty() ? "" : ", ") + std::string{name};
    app.add_option("--random", options.random,
                   "no model file, but synthetic weights: a shape (" + names +
                       ") or a file of one, as in configs/shapes")
        .type_name("CONFIG")
        .excludes("--model")
        .excludes("--lora");
    app.add_option("--random-seed", options.random_seed, "seed of these weights")
        .check(explain_low(whole_number(0),
                           "other weights each time are --random-seed $RANDOM (bash)"))
        .needs("--random")
        .show_default();
}

void refuse_random_option(Command& app) {
    app.refuse_option("--random", [](const std::string& config) {
        return "--random: '" + config +
               "' has no tokenizer, and this command works on text; bench, inspect and simulate "
               "--measure-costs take synthetic weights";
    });
}

Device device_of(const ModelOptions& options) {
    Device device = parse_device(options.device).value_or(Device{});
    device.exact = options.exact != "off";
    return device;
}

void add_requests_options(Command& app, int& requests, std::uint64_t& kv_memory) {
    app.add_option("--requests", requests, "answers decoded at the same time")
        .check(whole_number(1, kRequestsMax))
        .show_default();
    app.add_option("--kv-memory", kv_memory,
                   "memory for the target's keys and values, such as 300M (default: a whole "
                   "context for each of --requests, or what the memory leaves if that is less); "
                   "with less than answers take, some are preempted and continued later")
        .check(byte_size());
}

void add_gpus_option(Command& app, std::string& gpus) {
    const OptionCheck numbers = whole_number_list(0);
    const OptionCheck known{[numbers](const std::string& word) {
        return word == "all" ? std::string{} : numbers.complaint(word);
    }};
    app.add_option("--gpus", gpus,
                   "place the stages on these GPUs: all that can be seen, or numbers such as 0,2")
        .check(known);
}

void add_parts_option(Command& app, ModelOptions& options) {
    app.add_option("--parts", options.parts,
                   "trained drafts and exits of the model: a folder; none does without (default: "
                   "$PACELINE_PRETRAINED, else those that came with the program)");
}

Result<std::string> find_model(const std::string& name, const std::string& hub_cache) {
    std::error_code ignored;
    if (std::filesystem::exists(name, ignored)) return name;
    Result<std::optional<std::string>> cached = find_in_hub(hub_cache, name);
    if (!cached) return cached.error();
    if (cached.value()) return *std::move(cached).value();
    if (!is_hub_name(name) || name.ends_with(".gguf")) return name;
    return Error{Errc::BadFile, "there is no file or folder " + name +
                                    ", and no model of that name in the Hugging Face cache " +
                                    hub_cache + "; hf download " + name + " brings it there"};
}

Result<std::string> choose_model(const ModelOptions& options, const Environment& environment) {
    if (!options.model.empty()) return find_model(options.model, environment.hub_cache);
    if (!environment.model.empty()) return find_model(environment.model, environment.hub_cache);
    const std::string demo = demo_model_path(environment);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(demo, ignored)) return demo;
    return Error{Errc::BadFile,
                 "no model: name a GGUF file or a Hugging Face folder with -m, or bring the demo "
                 "model (98 MB) with "
                 "launch/fetch_model; " +
                     (demo.empty() ? "there is no cache folder: neither XDG_CACHE_HOME nor HOME is "
                                     "an absolute path"
                                   : "it was looked for at " + demo)};
}

}  // namespace paceline
