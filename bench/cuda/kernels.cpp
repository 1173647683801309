// Kernels one by one: the yardstick, every product of a layer, rotation, attention, the head, draws.
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "model/cuda/matrix_feed.hpp"
#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kernels/cuda/sample.hpp"
#include "model/kv_layout.hpp"

#include "bench/cuda/device_work.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

using cuda::DeviceMatrix;
using cuda::DeviceMemory;
using cuda::padded_inputs;
using cuda::WeightType;

constexpr int kCopiesMax = 64;
constexpr int kRows = cuda::kGemmRowsMax;

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

/// A kind of product with enough equal matrices that none of them is still in a cache.
class Product {
public:
    Product(const Bench& bench, const char* name, const MatrixFeed& feed, cuda::FinishKind kind)
        : name_{name}, kind_{kind}, bytes_{feed.bytes()} {
        const std::size_t wanted = (bench.settings.spread_bytes + bytes_ - 1) / bytes_;
        const std::size_t copies = std::clamp<std::size_t>(wanted, 1, size_of(kCopiesMax));
        const std::size_t step = (bytes_ + 255) / 256 * 256;
        memory_ = take(copies * step);
        cuda::Stream stream;
        for (std::size_t i = 0; i < copies; ++i) {
            matrices_.push_back(feed.at(memory_.data() + i * step));
            cuda::launch_random(stream, matrices_.back(), bench.settings.seed + i);
        }
        stream.finish();
    }
    [[nodiscard]] const char* name() const { return name_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] cuda::FinishKind kind() const { return kind_; }
    [[nodiscard]] const DeviceMatrix& at(int i) const {
        return matrices_[size_of(i) % matrices_.size()];
    }

private:
    const char* name_;
    cuda::FinishKind kind_;
    std::size_t bytes_;
    DeviceMemory memory_;
    std::vector<DeviceMatrix> matrices_;
};

/// Rows on the device and what kernels read and write beside weights, as in CudaForward.
class Desk {
public:
    explicit Desk(const Bench& bench) : bench_{bench}, config_{bench.file.config()} {
        const int width = std::max({padded_inputs(config_.dim), padded_inputs(config_.q_dim()),
                                    padded_inputs(config_.ffn_dim)});
        // Floats or bf16: bf16 numbers at random are finite floats as well.
        input_ = random_bf16(kRows, 2 * width);
        next_ = take(size_of(kRows) * size_of(width) * 4);
        hidden_ = take(size_of(kRows) * size_of(config_.dim) * 4);
        const int out = std::max(config_.vocab_size, qkv_width());
        out_ = take(size_of(kRows) * size_of(out) * 4);
        squares_ =
            on_device(std::vector<float>(size_of(kRows) * size_of(cuda::tiles_of(width)), 16.0f));
        std::vector<std::int32_t> places(size_of(kRows));
        std::iota(places.begin(), places.end(), 0);
        places_ = on_device(places);
        count_ = take(sizeof(std::int32_t));
    }
    void set_rows(int rows) {
        stream_.to_device(count_.data(), &rows, sizeof rows);
        stream_.finish();
        rows_ = rows;
    }
    [[nodiscard]] int qkv_width() const { return config_.q_dim() + 2 * config_.kv_dim(); }

    [[nodiscard]] double product_seconds(const Product& product) {
        return device_seconds(stream_, 4 * bench_.settings.times, [&](int i) {
            cuda::GemmArgs args;
            args.weights = product.at(i);
            args.x = input_.data();
            args.x_stride = padded_inputs(args.weights.inputs);
            args.rows = count_.as<std::int32_t>();
            args.finish.kind = product.kind();
            const bool residual = product.kind() == cuda::FinishKind::Residual;
            if (!residual)
                args.finish.norm = {squares_.as<float>(),
                                    cuda::tiles_of(padded_inputs(config_.dim)), config_.dim,
                                    config_.norm_epsilon};
            args.finish.out = residual ? hidden_.as<float>() : out_.as<float>();
            args.finish.out_stride = residual ? config_.dim : args.weights.outputs;
            args.finish.row_index = places_.as<std::int32_t>();
            args.finish.next.x = next_.data();
            args.finish.next.stride = padded_inputs(args.weights.outputs);
            args.finish.next.wide = args.weights.type == WeightType::F32;
            // Squares that this product reads as its norm are not written meanwhile.
            if (residual) args.finish.next.squares = squares_.as<float>();
            cuda::launch_gemm(stream_, args, rows_);
        });
    }

    /// Rotation and attention of `rows_` rows behind `context` keys.
    struct Seconds {
        double rotate, attention;
    };
    [[nodiscard]] Seconds attention_seconds(int context, int processors) {
        const int slots = (context + kRows + kKvPageSlots - 1) / kKvPageSlots * kKvPageSlots;
        const std::size_t one = size_of(slots) * size_of(2 * config_.kv_dim()) * 2;
        const int layers = static_cast<int>(std::clamp<std::size_t>(
            bench_.settings.spread_bytes / one, 1, size_of(config_.layers)));
        const int columns = 2 * config_.kv_dim();
        const DeviceMemory cache = random_bf16(slots * layers, columns);
        std::vector<KvSlot> names(size_of(slots));
        std::iota(names.begin(), names.end(), 0);
        std::vector<Row> rows;
        for (int r = 0; r < rows_; ++r) {
            Row row;
            row.position = context + r;
            row.slot = context + r;
            row.prefix_slots = names.data();
            row.prefix_count = row.position + 1;
            rows.push_back(row);
        }
        const int unit_rows = cuda::attention_unit_rows(rows_, config_.heads / config_.kv_heads);
        cuda::AttentionPlan plan;
        plan.build(rows, unit_rows);
        const DeviceMemory words =
            on_device(std::vector<std::int32_t>{plan.words().begin(), plan.words().end()});
        const DeviceMemory partials =
            take(size_of(std::max(1, plan.header().partials)) * size_of(config_.heads) *
                 size_of(cuda::attention_partial_floats(config_.head_dim)) * 4);
        const DeviceMemory slot_of =
            on_device(std::vector<std::int32_t>{names.begin() + context, names.end()});
        const DeviceMemory angles = take(size_of(kRows) * size_of(config_.head_dim) * 4);

        cuda::RotateArgs rotate;
        rotate.qkv = out_.as<float>();
        rotate.qkv_stride = qkv_width();
        rotate.heads = config_.heads;
        rotate.kv_heads = config_.kv_heads;
        rotate.head_dim = config_.head_dim;
        rotate.pairs = config_.rope.dims / 2;
        rotate.cosines = angles.as<float>();
        rotate.sines = angles.as<float>();
        rotate.slots = slot_of.as<std::int32_t>();
        rotate.rows = count_.as<std::int32_t>();
        rotate.cache = cache.data();
        rotate.layers = layers;
        const double rotating = device_seconds(stream_, 4 * bench_.settings.times, [&](int i) {
            rotate.layer = i % layers;
            cuda::launch_rotate(stream_, rotate, rows_);
        });

        cuda::AttentionArgs args;
        args.plan = words.as<std::int32_t>();
        args.q = out_.as<float>();
        args.q_stride = qkv_width();
        args.heads = config_.heads;
        args.kv_heads = config_.kv_heads;
        args.head_dim = config_.head_dim;
        args.cache = cache.data();
        args.layers = layers;
        args.partials = partials.as<float>();
        args.out = next_.data();
        args.out_stride = padded_inputs(config_.q_dim());
        const bool mma = cuda::attention_mma_takes(args.type, args.head_dim);
        const cuda::AttentionLaunch how{
            mma ? cuda::AttentionKernel::Mma : cuda::AttentionKernel::Plain, unit_rows,
            4 * processors, plan.header().merges == 0};
        const double attending = device_seconds(stream_, 4 * bench_.settings.times, [&](int i) {
            args.layer = i % layers;
            cuda::launch_attention(stream_, args, how);
        });
        return {rotating, attending};
    }

private:
    const Bench& bench_;
    const ModelConfig& config_;
    cuda::Stream stream_;
    int rows_ = 1;
    DeviceMemory input_, next_, hidden_, out_, squares_, places_, count_;
};

std::vector<int> few_rows(const Settings& settings) {
    std::vector<int> rows;
    for (const int count : settings.rows) {
        if (count == 1 || count == 8 || count == 16 || count == kRows) rows.push_back(count);
    }
    return rows.empty() ? settings.rows : rows;
}

void products_table(const Bench& bench, Desk& desk) {
    const LayerTensors& layer = bench.file.layer(0);
    const Dtype dtype = *parse_dtype(bench.settings.dtype);
    const auto type = [&](const TensorView& tensor, MatrixUse use) {
        return weight_type(tensor.type, dtype, use);
    };
    const WeightType in_layer = type(layer.q, MatrixUse::Layer);
    const double yardstick = bench.report.figure("copy.bytes_per_s");
    Table table{"Products of a layer and the head, the device alone",
                {"product", "MB", "rows", "µs", "GB/s", "of the card", "of a copy", "of one row"}};
    const auto measure = [&](const char* name, const MatrixFeed& feed, cuda::FinishKind kind,
                             const std::vector<int>& rows) {
        const Product product{bench, name, feed, kind};
        double one = 0.0;
        for (const int count : rows) {
            desk.set_rows(count);
            const double seconds = desk.product_seconds(product);
            if (one == 0.0) one = seconds;
            const double rate = static_cast<double>(product.bytes()) / seconds;
            bench.report.figure(std::string{name} + ".seconds." + std::to_string(count), seconds);
            table.rows.push_back(
                {name, fixed(static_cast<double>(product.bytes()) / 1e6, 1), std::to_string(count),
                 microseconds(seconds), fixed(rate / 1e9, 0),
                 percent(rate / bench.settings.bytes_per_second),
                 yardstick > 0.0 ? percent(rate / yardstick) : "-", fixed(seconds / one, 3)});
        }
    };
    const std::vector<int> rows = few_rows(bench.settings);
    measure("q k v", MatrixFeed{in_layer, {layer.q, layer.k, layer.v}}, cuda::FinishKind::Store,
            rows);
    measure("attention out", MatrixFeed{in_layer, {layer.attn_out}}, cuda::FinishKind::Residual,
            rows);
    measure("gate up", MatrixFeed::paired(in_layer, layer.gate, layer.up), cuda::FinishKind::Gated,
            rows);
    measure("down", MatrixFeed{in_layer, {layer.down}}, cuda::FinishKind::Residual, rows);
    const TensorView& head = bench.file.output_head();
    measure("head", MatrixFeed{type(head, MatrixUse::Vocabulary), {head}}, cuda::FinishKind::Store,
            bench.settings.rows);
    bench.report.add(table);
}

}  // namespace

void copy_section(const Bench& bench) {
    const std::size_t bytes = bench.settings.copy_bytes;
    const DeviceMemory from = take(bytes);
    const DeviceMemory to = take(bytes);
    cuda::Stream stream;
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 5; ++round)
        best = std::min(best, device_seconds(stream, 5, [&](int) {
                            stream.on_device(to.data(), from.data(), bytes);
                        }));
    const double rate = 2.0 * static_cast<double>(bytes) / best;  // each byte is read and written
    bench.report.figure("copy.bytes_per_s", rate);
    bench.report.add({"The yardstick: copying on the device, best of five",
                      {"what", "GB/s", "of the card"},
                      {{"read and written", fixed(rate / 1e9, 0),
                        percent(rate / bench.settings.bytes_per_second)}}});
}

void kernels_section(const Bench& bench) {
    const int processors = cuda::use_device(bench.settings.device).processors;
    Desk desk{bench};
    products_table(bench, desk);
    Table table{"Rotation and attention of one layer, the device alone",
                {"rows", "context", "rotation µs", "attention µs", "GB/s of keys and values"}};
    for (const int context : bench.settings.contexts) {
        for (const int count : few_rows(bench.settings)) {
            desk.set_rows(count);
            const auto seconds = desk.attention_seconds(context, processors);
            const double bytes = cache_bytes(bench, count, context) / bench.file.config().layers;
            table.rows.push_back({std::to_string(count), std::to_string(context),
                                  microseconds(seconds.rotate), microseconds(seconds.attention),
                                  fixed(bytes / seconds.attention / 1e9, 0)});
        }
    }
    bench.report.add(table);
}

void drawing_section(const Bench& bench) {
    const int vocab = bench.file.config().vocab_size;
    constexpr int kDraws = 8;
    std::mt19937 random{1};
    std::normal_distribution<float> normal{0.0f, 3.0f};
    std::vector<float> numbers(size_of(kDraws) * size_of(vocab));
    for (float& number : numbers) number = normal(random);
    const DeviceMemory logits = on_device(numbers);
    const DeviceMemory scratch = take(cuda::draw_scratch_bytes(kDraws, vocab));
    const DeviceMemory tokens = take(kDraws * sizeof(std::int32_t));
    cuda::DrawRow plain;
    plain.inverse_temperature = 1.0f;
    plain.z_min = -std::numeric_limits<float>::infinity();
    cuda::DrawRow top_k = plain;
    top_k.top_k = 40;
    cuda::DrawRow both = top_k;
    both.top_p = 0.95f;
    const std::pair<const char*, cuda::DrawRow> kinds[] = {{"greedy", {}},
                                                           {"gumbel", plain},
                                                           {"gumbel, top-k 40", top_k},
                                                           {"gumbel, top-k 40, top-p 0.95", both}};
    const std::string at = "." + std::to_string(usual_context(bench.settings));
    const double wave =
        bench.report.figure("layers.seconds.8" + at) + bench.report.figure("head.seconds.8");
    Table table{"Drawing 8 tokens, the device alone", {"draw", "µs", "of a wave of 8"}};
    for (const auto& [name, kind] : kinds) {
        std::vector<cuda::DrawRow> rows(size_of(kDraws), kind);
        for (int r = 0; r < kDraws; ++r) {
            rows[size_of(r)].logits_row = r;
            rows[size_of(r)].position = 100 + r;
        }
        const DeviceMemory jobs = on_device(rows);
        cuda::DrawInput input;
        input.logits = logits.as<float>();
        input.stride = vocab;
        input.vocab = vocab;
        input.rows = jobs.as<cuda::DrawRow>();
        input.row_count = kDraws;
        const cuda::DrawNeeds needs = cuda::needs_of(rows.data(), kDraws);
        cuda::Stream stream;
        const double seconds = device_seconds(stream, bench.settings.times, [&](int) {
            cuda::launch_draw(stream, input, needs, scratch.data(), tokens.as<std::int32_t>());
        });
        if (wave > 0.0) bench.report.figure(std::string{"draw.share."} + name, seconds / wave);
        table.rows.push_back(
            {name, microseconds(seconds), wave > 0.0 ? percent(seconds / wave) : "-"});
    }
    bench.report.add(table);
}

}  // namespace paceline::bench
