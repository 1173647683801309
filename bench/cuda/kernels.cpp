// Kernels one by one: the yardstick, every product of a layer, rotation, attention, the head,
// draws.
#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <random>

#include "model/kernels/cuda/sampling/sample.hpp"

#include "bench/cuda/attention_bench.hpp"
#include "bench/cuda/copy.hpp"
#include "bench/cuda/products.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

using cuda::DeviceMemory;

constexpr int kRows = cuda::kBatchRows;

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

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
            bench.report.figure(fmt::format("{}.seconds.{}", product.name(), count), seconds);
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
    Table table{"Rotation and attention of one layer, the device alone",
                {"rows", "context", "rotation µs", "attention µs", "GB/s of keys and values"}};
    const int times = 4 * bench.settings.times;
    for (const int context : bench.settings.contexts) {
        for (const int count : few_rows(bench.settings)) {
            desk.set_rows(count);
            const AttentionBench attention{bench, desk, context};
            const AttentionBench::Planned planned = attention.planned();
            const double rotating =
                device_seconds(desk.stream(), times, [&](int i) { attention.rotate(i); });
            const double attending =
                device_seconds(desk.stream(), times, [&](int i) { attention.attend(planned, i); });
            const double bytes = cache_bytes(bench, count, context) / bench.file.config().layers;
            table.rows.push_back({std::to_string(count), std::to_string(context),
                                  microseconds(rotating), microseconds(attending),
                                  fixed(bytes / attending / 1e9, 0)});
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
    const std::string at = fmt::format(".{}", usual_context(bench.settings));
    const double batch =
        bench.report.figure("layers.seconds.8" + at) + bench.report.figure("head.seconds.8");
    Table table{"Drawing 8 tokens, the device alone", {"draw", "µs", "of a batch of 8"}};
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
        if (batch > 0.0) bench.report.figure(std::string{"draw.share."} + name, seconds / batch);
        table.rows.push_back(
            {name, microseconds(seconds), batch > 0.0 ? percent(seconds / batch) : "-"});
    }
    bench.report.add(table);
}

}  // namespace paceline::bench
