// A cost table of one device, for `paceline simulate --costs`.
#include <algorithm>
#include <fmt/core.h>
#include <fstream>
#include <set>

#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/cost_rows.hpp"

#include "bench/cuda/chain.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

std::uint32_t number(int value) {
    return static_cast<std::uint32_t>(value);
}

/// How many of the model's layers the device has room for, with the embedding and a head.
int layers_that_fit(const Bench& bench, CudaOptions options) {
    const std::uint64_t free = cuda::use_device(options.device).free_bytes;
    options.final_head = true;
    int layers = bench.file.config().layers;
    for (; layers > 1; --layers) {
        options.last_layer = layers;
        const MemoryUse use = cuda_memory(bench.file, options);
        const std::uint64_t all = use.weight_bytes + use.kv_bytes + use.workspace_bytes;
        if (all + all / 50 < free) break;  // what the runtime itself takes
    }
    return layers;
}

std::set<int> depths(int layers, int most) {
    std::set<int> chosen;
    for (const int depth : {1, 2, 4, 8, layers / 4, layers / 2, layers, most}) {
        if (depth >= 1 && depth <= most) chosen.insert(depth);
    }
    return chosen;
}

}  // namespace

Status write_costs(const Bench& bench, const std::string& path) {
    const Settings& settings = bench.settings;
    // One thread of the host drives a device: in the table a device is a machine of one thread.
    CostRecord record{.stage = "layers",
                      .fingerprint = cost_name(bench.file.path(), settings.dtype, 0),
                      .threads = 1};
    const Result<CudaOptions> wanted = cuda_options(bench);
    if (!wanted) return wanted.error();
    CudaOptions options = wanted.value();
    const int whole = bench.file.config().layers;
    const int most = layers_that_fit(bench, options);
    const auto timed = [](auto once) { return CostRows::median_of(5, 0.02, once); };
    std::vector<CostRecord> records;
    for (const int depth : depths(whole, most)) {
        // A backend of its own for each depth: only whole segments are replayed as graphs.
        options.last_layer = depth;
        options.final_head = depth == 1;
        Result<std::unique_ptr<CudaBackend>> made = make_cuda_backend(bench.file, options);
        if (!made) return made.error();
        Chain chain{*made.value()};
        chain.fill(*std::max_element(settings.contexts.begin(), settings.contexts.end()));
        CostRows heads{*made.value()};
        record.layers = number(depth);
        for (const int context : settings.contexts) {
            for (const int count : settings.rows) {
                record.context = number(context);
                record.rows = number(count);
                record.seconds = timed([&] { return chain.seconds(context, count); });
                records.push_back(record);
            }
        }
        if (depth > 1) continue;
        for (const int count : settings.rows) {
            CostRecord head = record;
            head.stage = "head";
            head.layers = 0;
            head.context = 0;
            head.rows = number(count);
            head.seconds = timed([&] { return heads.head_once(HeadId::Final, count); });
            records.push_back(head);
        }
    }
    const std::string device = cuda::use_device(settings.device).name;
    std::vector<std::string> remarks{
        "paceline_cuda_bench on " + device + ": seconds that a caller of the backend waits",
        "random weights of " + bench.file.path() + ", dtype " + settings.dtype +
            ", keys and values " + settings.kv,
        "hops are not here: simulate --measure-costs measures them, or --hop-us states one"};
    if (most < whole)
        remarks.push_back(fmt::format(
            "the device has room for {} of {} layers; time grows with them in proportion", most,
            whole));
    std::ofstream file{path};
    file << cost_table_text(records, remarks);
    if (!file.flush()) return Error{Errc::System, path + " cannot be written"};
    bench.report.say("costs", fmt::format("{}: {} records, up to {} of {} layers", path,
                                          records.size(), most, whole));
    return {};
}

}  // namespace paceline::bench
