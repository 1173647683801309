// Kernels one by one: the yardstick, every product of a layer, rotation, attention, the head, draws.
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kernels/cuda/copy.hpp"
#include "model/kernels/cuda/sample.hpp"
#include "model/kv_layout.hpp"

#include "bench/cuda/products.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

using cuda::DeviceMemory;
using cuda::padded_inputs;

constexpr int kRows = cuda::kWaveRows;

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

/// Rows, keys and values on the device for attention, as in CudaForward.
class AttentionDesk {
public:
    AttentionDesk(const Bench& bench, ProductDesk& desk)
        : bench_{bench}, config_{bench.file.config()}, desk_{desk} {}
    [[nodiscard]] int qkv_width() const { return config_.q_dim() + 2 * config_.kv_dim(); }

    /// Rotation and attention of the desk's rows behind `context` keys.
    struct Seconds {
        double rotate, attention;
    };
    [[nodiscard]] Seconds seconds(int context) const {
        const int slots = (context + kRows + kKvPageSlots - 1) / kKvPageSlots * kKvPageSlots;
        const cuda::CacheType type = cache_type(*parse_kv_type(bench_.settings.kv));
        const std::size_t words_each = cuda::cache_element_bytes(type) / 2;
        const std::size_t one = size_of(slots) * size_of(2 * config_.kv_dim()) * 2 * words_each;
        const int layers = static_cast<int>(std::clamp<std::size_t>(
            bench_.settings.spread_bytes / one, 1, size_of(config_.layers)));
        // Finite as floats and halves as well.
        const int columns = 2 * config_.kv_dim() * static_cast<int>(words_each);
        const DeviceMemory cache = random_bf16(slots * layers, columns);
        std::vector<KvSlot> names(size_of(slots));
        std::iota(names.begin(), names.end(), 0);
        std::vector<Row> rows;
        for (int r = 0; r < desk_.rows(); ++r) {
            Row row;
            row.position = context + r;
            row.slot = context + r;
            row.prefix_slots = names.data();
            row.prefix_count = row.position + 1;
            rows.push_back(row);
        }
        const int unit_rows =
            cuda::attention_unit_rows(desk_.rows(), config_.heads / config_.kv_heads);
        cuda::AttentionPlan plan;
        plan.build(rows, unit_rows);
        const DeviceMemory words =
            on_device(std::vector<std::int32_t>{plan.words().begin(), plan.words().end()});
        const DeviceMemory partials =
            take(size_of(std::max(1, plan.header().partials)) * size_of(config_.heads) *
                 size_of(cuda::attention_partial_floats(config_.head_dim)) * 4);
        const DeviceMemory slot_of =
            on_device(std::vector<std::int32_t>{names.begin() + context, names.end()});
        const DeviceMemory angles = take(size_of(slots) * size_of(config_.head_dim) * 4);

        cuda::RotateArgs rotate;
        rotate.qkv = desk_.out();
        rotate.qkv_stride = qkv_width();
        rotate.heads = config_.heads;
        rotate.kv_heads = config_.kv_heads;
        rotate.head_dim = config_.head_dim;
        rotate.pairs = config_.rope.dims / 2;
        rotate.cosines = angles.as<float>();
        rotate.sines = angles.as<float>();
        rotate.positions = slot_of.as<std::int32_t>();  // as good as their positions
        rotate.slots = slot_of.as<std::int32_t>();
        rotate.rows = desk_.count();
        rotate.cache = cache.data();
        rotate.type = type;
        rotate.layers = layers;
        const double rotating =
            device_seconds(desk_.stream(), 4 * bench_.settings.times, [&](int i) {
                rotate.layer = i % layers;
                cuda::launch_rotate(desk_.stream(), rotate, desk_.rows());
            });

        cuda::AttentionArgs args;
        args.plan = words.as<std::int32_t>();
        args.rows = desk_.count();
        args.q = desk_.out();
        args.q_stride = qkv_width();
        args.heads = config_.heads;
        args.kv_heads = config_.kv_heads;
        args.head_dim = config_.head_dim;
        args.cache = cache.data();
        args.type = type;
        args.layers = layers;
        args.partials = partials.as<float>();
        args.out = desk_.next();
        args.out_stride = padded_inputs(config_.q_dim());
        const bool mma = cuda::attention_mma_takes(args.type, args.head_dim);
        const cuda::AttentionLaunch how{
            mma ? cuda::AttentionKernel::Mma : cuda::AttentionKernel::Plain, unit_rows,
            4 * desk_.processors(), plan.header().merges == 0};
        const double attending =
            device_seconds(desk_.stream(), 4 * bench_.settings.times, [&](int i) {
                args.layer = i % layers;
                cuda::launch_attention(desk_.stream(), args, how);
            });
        return {rotating, attending};
    }

private:
    const Bench& bench_;
    const ModelConfig& config_;
    ProductDesk& desk_;
};

std::vector<int> few_rows(const Settings& settings) {
    std::vector<int> rows;
    for (const int count : settings.rows) {
        if (count == 1 || count == 8 || count == 16 || count == kRows) rows.push_back(count);
    }
    return rows.empty() ? settings.rows : rows;
}

void products_table(const Bench& bench, ProductDesk& desk) {
    const double yardstick = bench.report.figure("copy.bytes_per_s");
    Table table{
        "Products of a layer and the head, the device alone",
        {"product", "MB", "rows", "µs", "GB/s", "of a copy", "of the data sheet", "of one row"}};
    const auto measure = [&](const Product& product, const std::vector<int>& rows) {
        double one = 0.0;
        for (const int count : rows) {
            desk.set_rows(count);
            const double seconds = desk.seconds(product);
            if (one == 0.0) one = seconds;
            const double rate = static_cast<double>(product.bytes()) / seconds;
            bench.report.figure(std::string{product.name()} + ".seconds." + std::to_string(count),
                                seconds);
            table.rows.push_back(
                {product.name(), fixed(static_cast<double>(product.bytes()) / 1e6, 1),
                 std::to_string(count), microseconds(seconds), fixed(rate / 1e9, 0),
                 share_of(rate, yardstick), share_of(rate, bench.settings.bytes_per_second),
                 fixed(seconds / one, 3)});
        }
    };
    for (const Product& product : layer_products(bench)) measure(product, few_rows(bench.settings));
    measure(head_product(bench), bench.settings.rows);
    bench.report.add(table);
}

}  // namespace

void copy_section(const Bench& bench) {
    const std::size_t bytes = bench.settings.copy_bytes / 16 * 16;
    const int processors = cuda::use_device(bench.settings.device).processors;
    const DeviceMemory from = take(bytes);
    const DeviceMemory to = take(bytes);
    cuda::Stream stream;
    const auto best_rate = [&](auto copy) {
        double best = std::numeric_limits<double>::infinity();
        for (int round = 0; round < 5; ++round)
            best = std::min(best, device_seconds(stream, 5, [&](int) { copy(); }));
        return 2.0 * static_cast<double>(bytes) / best;  // each byte is read and written
    };
    const double kernel =
        best_rate([&] { cuda::launch_copy(stream, to.data(), from.data(), bytes, processors); });
    const double runtime = best_rate([&] { stream.on_device(to.data(), from.data(), bytes); });
    bench.report.figure("copy.bytes_per_s", kernel);
    bench.report.figure("copy.runtime.bytes_per_s", runtime);
    const double sheet = bench.settings.bytes_per_second;
    bench.report.add({"The yardstick: copies on the device, read and written, best of five",
                      {"copy by", "GB/s", "of the data sheet"},
                      {{"a kernel", fixed(kernel / 1e9, 0), share_of(kernel, sheet)},
                       {"the runtime", fixed(runtime / 1e9, 0), share_of(runtime, sheet)}}});
}

void kernels_section(const Bench& bench) {
    const ModelConfig& config = bench.file.config();
    ProductDesk desk{bench, kRows,
                     std::max(config.vocab_size, config.q_dim() + 2 * config.kv_dim())};
    products_table(bench, desk);
    const AttentionDesk attention{bench, desk};
    Table table{"Rotation and attention of one layer, the device alone",
                {"rows", "context", "rotation µs", "attention µs", "GB/s of keys and values"}};
    for (const int context : bench.settings.contexts) {
        for (const int count : few_rows(bench.settings)) {
            desk.set_rows(count);
            const auto seconds = attention.seconds(context);
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
