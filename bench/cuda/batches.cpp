// Batches through the backend: decode, prefill, and weights coming from a file.
#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <optional>

#include "launch/simulate/cost_rows.hpp"
#include "model/kernels/cuda/gemm/gemm_records.hpp"
#include "model/kv_layout.hpp"

#include "bench/cuda/chain.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

using Clock = std::chrono::steady_clock;
using cuda::WeightType;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

int largest(const std::vector<int>& values) {
    return *std::max_element(values.begin(), values.end());
}

double bytes_per_weight(WeightType type) {
    if (type == WeightType::F32) return 4.0;
    if (type == WeightType::BF16) return 2.0;
    constexpr int kInputs = cuda::kHeadInputs;
    return static_cast<double>(cuda::tile_bytes(type, kInputs)) / (cuda::kTileOutputs * kInputs);
}

double numbers_of(const TensorView& tensor) {
    return static_cast<double>(tensor.rows) * static_cast<double>(tensor.cols);
}

double weights_of_layer(const ModelFile& file) {
    const LayerTensors& layer = file.layer(0);
    double count = 0.0;
    for (const TensorView* tensor :
         {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down})
        count += numbers_of(*tensor);
    return count;
}

void decode_table(const Bench& bench, CudaBackend& backend) {
    const Settings& settings = bench.settings;
    Chain chain{backend};
    chain.fill(largest(settings.contexts));
    const double yardstick = bench.report.figure("copy.bytes_per_s");
    const double weights = layer_bytes(bench) * backend.config().layers + head_bytes(bench);
    Table table{
        "Batches: layers and head",
        {"rows", "context", "layers µs", "head µs", "both µs", "of one row", "GB/s", "of a copy",
         "of the data sheet", "layers wall µs", "with greedy draws wall µs", "tokens/s wall"}};
    const auto timed = [](auto once) { return CostRows::median_of(5, 0.05, once); };
    for (const int context : settings.contexts) {
        double one = 0.0;
        for (const int rows : settings.rows) {
            const std::string count = std::to_string(rows);
            const double wall = timed([&] { return chain.seconds(context, rows); });
            const double drawn = timed([&] { return chain.drawn_seconds(context, rows); });
            const double layers = backend.batch_seconds(chain.rows(context, rows), settings.times);
            const double head = bench.report.figure("head.seconds." + count);
            const double both = layers + head;
            if (one == 0.0) one = both;
            const double bytes = (head > 0.0 ? weights : weights - head_bytes(bench)) +
                                 cache_bytes(bench, rows, context);
            const std::string at = fmt::format(".{}.{}", count, context);
            bench.report.figure("layers.seconds" + at, layers);
            bench.report.figure("layers.wall.seconds" + at, wall);
            bench.report.figure("batch.wall.seconds" + at, drawn);
            bench.report.figure("batch.share" + at, bytes / both / yardstick);
            if (settings.bytes_per_second > 0.0)
                bench.report.figure("batch.sheet_share" + at,
                                    bytes / both / settings.bytes_per_second);
            bench.report.figure("batch.ratio" + at, both / one);
            table.rows.push_back({count, std::to_string(context), microseconds(layers),
                                  microseconds(head), microseconds(both), fixed(both / one, 3),
                                  fixed(bytes / both / 1e9, 0), share_of(bytes / both, yardstick),
                                  share_of(bytes / both, settings.bytes_per_second),
                                  microseconds(wall), microseconds(drawn), fixed(rows / drawn, 0)});
        }
    }
    bench.report.add(table);
}

/// A prompt in batches of up to so many rows, or of as many as the backend takes if that is fewer.
struct Prefill {
    int batches = 0;
    double device = 0.0;
    double wall = 0.0;
    double operations = 0.0;
};

Prefill prefill_in_batches(const Bench& bench, CudaBackend& backend, int rows_max) {
    const Settings& settings = bench.settings;
    const ModelConfig& config = backend.config();
    Chain chain{backend};
    Prefill prefill;
    for (int first = 0; first < settings.prefill; ++prefill.batches) {
        std::vector<Row> rows = chain.rows(first, std::min(rows_max, settings.prefill - first));
        rows.resize(backend.batch_rows(rows));
        const auto count = static_cast<int>(rows.size());
        prefill.device += backend.batch_seconds(rows, std::max(1, settings.times / 10));
        prefill.wall += chain.seconds(first, count);  // after the other: kernels are loaded
        // Two for each weight, and four for each number of q and each key that it sees.
        for (const Row& row : rows)
            prefill.operations += config.layers * (2.0 * weights_of_layer(bench.file) +
                                                   4.0 * config.q_dim() * (row.position + 1.0));
        first += count;
    }
    return prefill;
}

/// In the backend's own batches, and in those of 64 rows that decoding has: what the others gain.
void prefill_table(const Bench& bench, CudaBackend& backend) {
    const Settings& settings = bench.settings;
    Table table{fmt::format("Prefill of {} tokens, without a head", settings.prefill),
                {"rows of a batch", "batches", "the device alone ms", "wall ms", "tokens/s",
                 "tokens/s wall", "TFLOP/s", "of the data sheet", "weights arrive ms",
                 "of the data sheet at most"}};
    const double yardstick = bench.report.figure("copy.bytes_per_s");
    double best = 0.0;
    for (const int rows : {CudaOptions{}.rows_max, cuda::kBatchRows}) {
        const Prefill run = prefill_in_batches(bench, backend, rows);
        // What it cannot go below: weights have to arrive once for each batch.
        const double least = run.batches * layer_bytes(bench) * backend.config().layers / yardstick;
        const double rate = run.operations / run.device;
        const double rate_at_most = std::min(settings.flops, run.operations / least);
        const std::string at = fmt::format(".{}", rows);
        bench.report.figure("prefill.wall.seconds" + at, run.wall);
        if (settings.flops > 0.0) {
            bench.report.figure("prefill.share" + at, rate / settings.flops);
            bench.report.figure("prefill.bound" + at, rate_at_most / settings.flops);
            best = std::max(best, rate / settings.flops);
        }
        table.rows.push_back({std::to_string(rows), std::to_string(run.batches),
                              fixed(1e3 * run.device, 2), fixed(1e3 * run.wall, 2),
                              fixed(settings.prefill / run.device, 0),
                              fixed(settings.prefill / run.wall, 0), fixed(rate / 1e12, 1),
                              share_of(rate, settings.flops), fixed(1e3 * least, 2),
                              share_of(rate_at_most, settings.flops)});
    }
    if (best > 0.0) bench.report.figure("prefill.share", best);
    bench.report.add(table);
}

}  // namespace

int usual_context(const Settings& settings) {
    int usual = settings.contexts.front();
    for (const int context : settings.contexts) {
        if (context <= 512 && context > usual) usual = context;
    }
    return usual;
}

/// Average over the layers: in a mix of types they differ.
double layer_bytes(const Bench& bench) {
    const Dtype dtype = *parse_dtype(bench.settings.dtype);
    const bool floats = all_floats(bench.file, dtype);
    const int layers = bench.file.config().layers;
    double bytes = 0.0;
    for (int l = 0; l < layers; ++l) {
        const LayerTensors& layer = bench.file.layer(l);
        for (const TensorView* tensor :
             {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down})
            bytes +=
                numbers_of(*tensor) *
                bytes_per_weight(gpu_type(packed_type(*tensor, dtype, MatrixUse::Layer), floats));
    }
    return bytes / layers;
}

double head_bytes(const Bench& bench) {
    const TensorView& head = bench.file.output_head();
    const Dtype dtype = *parse_dtype(bench.settings.dtype);
    const PackedType type = packed_type(head, dtype, MatrixUse::Vocabulary);
    return numbers_of(head) * bytes_per_weight(gpu_type(type, all_floats(bench.file, dtype)));
}

double cache_bytes(const Bench& bench, int rows, int context) {
    const ModelConfig& config = bench.file.config();
    const double element = bench.settings.kv == "f32" ? 4.0 : 2.0;
    return 2.0 * config.kv_dim() * element * config.layers * (context + rows);
}

Result<CudaOptions> cuda_options(const Bench& bench) {
    const Settings& settings = bench.settings;
    const std::optional<Dtype> dtype = parse_dtype(settings.dtype);
    const std::optional<KvType> kv = parse_kv_type(settings.kv);
    if (!dtype) return Error{Errc::BadArgument, "--dtype is '" + settings.dtype + "'"};
    if (!kv) return Error{Errc::BadArgument, "--kv is '" + settings.kv + "'"};
    CudaOptions options;
    options.device = settings.device;
    options.dtype = *dtype;
    options.kv = *kv;
    const int keys =
        std::max(largest(settings.contexts) + largest(settings.rows), settings.prefill);
    options.kv_slots = pages_for(keys) * kKvPageSlots;
    options.random = settings.seed;
    return options;
}

Status batches_section(const Bench& bench) {
    const Result<CudaOptions> options = cuda_options(bench);
    if (!options) return options.error();
    const auto begin = Clock::now();
    Result<std::unique_ptr<CudaBackend>> made = make_cuda_backend(bench.file, options.value());
    if (!made) return made.error();
    CudaBackend& backend = *made.value();
    const MemoryUse use = backend.memory_use();
    bench.report.say(
        "synthetic weights on " + backend.device_name(),
        fixed(static_cast<double>(use.weight_bytes) / 1e9, 2) + " GB of weights, " +
            fixed(static_cast<double>(use.kv_bytes) / 1e9, 2) + " GB of keys and values, " +
            fixed(static_cast<double>(use.workspace_bytes) / 1e9, 2) + " GB of workspace, " +
            fixed(static_cast<double>(use.pinned_bytes) / 1e9, 2) + " GB pinned on the host, in " +
            fixed(seconds_since(begin), 2) + " s");
    decode_table(bench, backend);
    if (bench.settings.prefill > 0) prefill_table(bench, backend);
    return {};
}

Status upload_section(const Settings& settings, const std::string& path, Report& report) {
    const std::optional<Dtype> dtype = parse_dtype(settings.dtype);
    if (!dtype) return Error{Errc::BadArgument, "--dtype is '" + settings.dtype + "'"};
    Table table{"Weights of " + path + " onto the device", {"time", "s", "GB", "GB/s"}};
    for (const char* name : {"first", "again, the file in memory"}) {
        const auto begin = Clock::now();
        const Result<ModelFile> file = ModelFile::open(path);
        if (!file) return file.error();
        CudaOptions options;
        options.device = settings.device;
        options.dtype = *dtype;
        options.kv_slots = kKvPageSlots;
        const Result<std::unique_ptr<CudaBackend>> made = make_cuda_backend(file.value(), options);
        if (!made) return made.error();
        const double seconds = seconds_since(begin);
        const auto bytes = static_cast<double>(made.value()->memory_use().weight_bytes);
        table.rows.push_back(
            {name, fixed(seconds, 2), fixed(bytes / 1e9, 3), fixed(bytes / seconds / 1e9, 2)});
        report.figure("upload.bytes_per_s", bytes / seconds);
    }
    report.add(table);
    return {};
}

}  // namespace paceline::bench
