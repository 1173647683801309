#include "launch/load/load_model.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>
#include <map>
#include <string_view>
#include <utility>

#include "launch/base/progress_bar.hpp"
#include "launch/base/shapes.hpp"
#include "launch/load/lora_part.hpp"
#include "launch/load/make_backend.hpp"
#include "launch/load/model_use.hpp"
#include "launch/load/packed_cache.hpp"
#include "launch/load/parts_search.hpp"
#include "launch/load/stored_types.hpp"
#include "model/weights/lora.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

Result<ModelFile> open_model_file(const ModelOptions& options, const Environment& environment) {
    if (!options.random.empty()) return open_shape(options.random);
    Result<std::string> path = choose_model(options, environment);
    if (!path) return path.error();
    Result<ModelFile> file = ModelFile::open(path.value());
    if (file) file.value().choose_rope(options.context);
    if (!file || options.lora.empty()) return file;
    const PartsSearch search = parts_search(options.parts, environment);
    const Result<std::string> part = find_lora(options.lora, search, file.value());
    if (!part) return part.error();
    return merge_lora(std::move(file).value(), part.value());
}

ModelOptions naming(ModelOptions options, const ModelFile& file) {
    options.model = file.path();
    options.lora = file.lora() != nullptr ? file.lora()->path : "";
    options.copy = file.copy_path();
    return options;
}

Result<ModelFile> open_named_model(const ModelOptions& options) {
    if (!options.random.empty()) return open_shape(options.random);
    Result<ModelFile> file = ModelFile::open(options.model);
    if (file) file.value().choose_rope(options.context);
    if (file) use_named_copy(file.value(), options.dtype, options.copy);
    if (!file || options.lora.empty()) return file;
    return merge_lora(std::move(file).value(), options.lora);
}

void take_packed_copy(ModelFile& file,
                      const ModelOptions& options,
                      const Environment& environment,
                      OpenOutput output) {
    const std::string remark = use_packed_cache(file, options, environment, output.bars);
    if (!remark.empty() && output.remarks)
        std::fprintf(stderr, "paceline: %s\n", visible(remark, kLineShownBytesMax).c_str());
}

Result<OpenedModel> open_model(const ModelOptions& options, const Environment& environment) {
    return open_model(options, environment, {.bars = bars_on(environment)});
}

Result<OpenedModel> open_model(const ModelOptions& options,
                               const Environment& environment,
                               OpenOutput output) {
    Result<ModelFile> file = open_model_file(options, environment);
    if (!file) return file.error();
    Result<Tokenizer> tokenizer = tokenizer_of(file.value());
    if (!tokenizer) return tokenizer.error();
    take_packed_copy(file.value(), options, environment, output);
    return OpenedModel{std::move(file).value(), std::move(tokenizer).value()};
}

int context_of(const ModelOptions& options, const ModelConfig& config) {
    return options.context != 0 ? options.context
                                : std::min(config.context_length, kContextDefault);
}

ThreadPlan plan_threads(const Machine& machine, int threads_wanted) {
    ThreadPlan plan;
    plan.usable_cores = std::max(1, static_cast<int>(machine.allowed.size()));
    plan.threads = threads_wanted != 0 ? threads_wanted : std::max(1, machine.default_threads());
    if (plan.threads <= plan.usable_cores) {
        plan.cores = machine.preferred_order();
        plan.cores.resize(std::min(plan.cores.size(), static_cast<std::size_t>(plan.threads)));
    }
    return plan;
}

std::string threads_warning(int threads, const Device& device) {
    if (threads == 0) return {};
    if (device.gpu) {
        return fmt::format("-t {} changes nothing: {} computes, not the cores", threads,
                           to_text(device));
    }
    const Result<Machine> machine = read_machine();
    if (!machine) return {};
    const auto cores = static_cast<int>(machine.value().allowed.size());
    if (threads <= cores) return {};
    return fmt::format(
        "-t {} is more than the {} cores that this process may use, and slower than -t {}", threads,
        cores, cores);
}

KvType kv_type(const ModelOptions& options, const Device& device) {
    return parse_kv_type(options.kv_dtype).value_or(device.gpu ? KvType::BF16 : KvType::F16);
}

std::string dtype_in_memory(const ModelFile& file, const std::string& dtype, const Device& device) {
    if (dtype != name(Dtype::Auto)) return dtype;
    std::map<std::string_view, std::uint64_t> weights;  // of each type in memory
    for (const StoredUse& use : stored_uses(file, Dtype::Auto, device))
        weights[name(use.packed)] += use.parameters;
    const auto most =
        std::max_element(weights.begin(), weights.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == weights.end() ? dtype : std::string{most->first};
}

CpuOptions cpu_options(const ModelOptions& options,
                       const ThreadPlan& plan,
                       int kv_slots,
                       const Device& device) {
    CpuOptions cpu;
    cpu.dtype = parse_dtype(options.dtype).value_or(Dtype::Auto);
    cpu.kv = kv_type(options, device);
    cpu.kv_slots = kv_slots;
    cpu.threads = plan.threads;
    cpu.cores = plan.cores;
    cpu.usable_cores = plan.usable_cores;
    cpu.isa = parse_isa(options.isa);  // nothing for "auto"
    if (!options.random.empty()) cpu.random = options.random_seed;
    if (device.gpu) cpu.rows_max = CudaOptions{}.rows_max;
    return cpu;
}

Result<std::unique_ptr<Backend>> load_backend(const ModelFile& file,
                                              CpuOptions options,
                                              const Device& device,
                                              Show bars) {
    const char* what = device.gpu ? "loading weights" : "packing weights";
    ProgressBar bar{options.random ? "making weights up" : what, bars};
    options.progress = [&bar](double done) { bar.update(done); };
    return make_backend(file, options, device);
}

}  // namespace paceline
