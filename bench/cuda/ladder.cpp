// The ladder of product kernels: each way to spread a product over the device, timed and checked
// against the others by one driver. Says which way the backend takes and how far it is from the
// best one, which is what gemm_choice.hpp's rules are to be set by.
#include <algorithm>
#include <fmt/core.h>

#include "bench/cuda/products.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

using cuda::GemmChoice;
using cuda::WeightType;

std::string name_of(const GemmChoice& choice) {
    if (choice.tile > 0)
        return fmt::format("square {} x {}{}", choice.tile, choice.tile,
                           choice.wgmma ? ", wgmma" : "");
    return fmt::format("{} outputs x {} rows", choice.tiles * cuda::kTileOutputs,
                       choice.row_tiles * cuda::kTileRows);
}

/// Rungs worth climbing: no block has more than twice the rows there are.
std::vector<GemmChoice> rungs(WeightType type, int rows, bool wgmma) {
    std::vector<GemmChoice> all;
    for (const int row_tiles : {1, 2, 4}) {
        if (row_tiles > 1 && row_tiles * cuda::kTileRows >= 2 * rows) break;
        const GemmChoice choice = cuda::batch_choice(type, row_tiles, rows);
        if (choice.tiles == 0) continue;
        // Weights again and again: left to the squares, which float32 has none of.
        if (choice.groups > 16 && type != WeightType::F32) continue;
        all.push_back(choice);
    }
    if (type == WeightType::F32) return all;
    for (const int tile : {cuda::kSmallTile, cuda::kLargeTile}) {
        if (tile >= 4 * rows) continue;
        all.push_back({tile, 1, 1, 1});
        if (wgmma && type == WeightType::BF16) all.push_back({tile, 1, 1, 1, true});
    }
    return all;
}

bool same(const GemmChoice& a, const GemmChoice& b) {
    return name_of(a) == name_of(b);
}

void climb(const Bench& bench, ProductDesk& desk, const Product& product, int rows, Table& table) {
    desk.set_rows(rows);
    const WeightType type = product.at(0).type;
    const std::vector<GemmChoice> all = rungs(type, rows, desk.wgmma());
    const GemmChoice chosen =
        cuda::choose_gemm(product.at(0), {rows, desk.processors(), desk.wgmma()});
    std::vector<double> seconds;
    seconds.reserve(all.size());
    for (const GemmChoice& rung : all) seconds.push_back(desk.seconds(product, rung));
    std::vector<Rung> results;
    for (const GemmChoice& rung : all) {
        results.push_back(desk.result(product, rung));
        results.back().product = product.name();
        results.back().rows = rows;
        results.back().choice = name_of(rung);
    }
    for (const std::string& fault : faults_of(results)) bench.report.fault("ladder: " + fault);
    const double best = *std::min_element(seconds.begin(), seconds.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool equal = equals_first(results, i);
        const double rate = static_cast<double>(product.bytes()) / seconds[i];
        if (same(all[i], chosen)) {
            bench.report.figure(fmt::format("ladder.after.{}.{}", product.name(), rows),
                                seconds[i] / best);
        }
        if (!equal) bench.report.figure("ladder.unequal", 1.0);
        table.rows.push_back({product.name(), std::to_string(rows), name_of(all[i]),
                              microseconds(seconds[i]), fixed(rate / 1e9, 0),
                              fixed(product.operations(rows) / seconds[i] / 1e12, 1),
                              fixed(seconds[i] / best, 2), same(all[i], chosen) ? "taken" : "",
                              equal ? "yes" : "NO"});
    }
}

}  // namespace

void ladder_section(const Bench& bench) {
    const std::vector<int>& rows = bench.settings.blas_rows;
    const ModelConfig& config = bench.file.config();
    ProductDesk desk{bench, *std::max_element(rows.begin(), rows.end()),
                     std::max(config.dim, config.q_dim() + 2 * config.kv_dim())};
    Table table{
        "Every way to spread a product, the device alone, each summing up norms itself",
        {"product", "rows", "a block", "µs", "GB/s", "TFLOP/s", "of the best", "", "equal bits"}};
    for (const Product& product : layer_products(bench)) {
        for (const int count : rows) climb(bench, desk, product, count, table);
    }
    bench.report.add(table);
}

}  // namespace paceline::bench
