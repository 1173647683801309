// Our products beside cuBLAS's, measured in the same run on the same matrices and rows, in bf16
// whatever --dtype says: cuBLAS has no other weights of ours.
//
// Ours do more: the norm in front and what follows (gemm.hpp: Finish) are fused in. So there are
// two peers: cuBLAS's bare product, and that with the kernel after it which does the rest.
#include <algorithm>
#include <fmt/core.h>

#include "model/kernels/cuda/gemm/gemm_blas.hpp"

#include "bench/cuda/products.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

int products_max(const ModelConfig& config) {
    return std::max({2 * config.ffn_dim, config.dim, config.q_dim() + 2 * config.kv_dim()});
}

/// cuBLAS at the desk of our own products.
class Rival {
public:
    Rival(const Bench& bench, int rows_max)
        : times_{4 * bench.settings.times},
          products_{take(static_cast<std::size_t>(rows_max) *
                         static_cast<std::size_t>(products_max(bench.file.config())) * 4)},
          desk_{bench, rows_max, products_max(bench.file.config())} {}

    struct Seconds {
        double own, bare, finished;
    };
    [[nodiscard]] Seconds measure(const Product& product, int rows) {
        desk_.set_rows(rows);
        const auto bare = [&](int i) {
            cuda::GemmArgs args = desk_.args(product, i);
            // Gates and ups as one matrix of twice the outputs, which they are in memory.
            args.weights.outputs = cuda::blas_floats(args.weights);
            args.weights.paired = false;
            args.finish = {};
            args.finish.out = desk_.out();
            args.finish.out_stride = args.weights.outputs;
            cuda::launch_gemm_blas(desk_.stream(), blas_, args, rows, nullptr);
        };
        const auto finished = [&](int i) {
            cuda::launch_gemm_blas(desk_.stream(), blas_, desk_.args(product, i), rows,
                                   products_.as<float>());
        };
        return {desk_.seconds(product), device_seconds(desk_.stream(), times_, bare),
                device_seconds(desk_.stream(), times_, finished)};
    }

private:
    int times_;
    cuda::DeviceMemory products_;
    ProductDesk desk_;
    cuda::DeviceMemory workspace_ = take(cuda::kBlasWorkspaceBytes);
    cuda::Blas blas_{desk_.stream(), workspace_.data()};
};

}  // namespace

void blas_section(const Bench& bench) {
    Settings settings = bench.settings;
    settings.dtype = "bf16";
    const Bench in_bf16{bench.file, settings, bench.report};
    Table table{"Products of a layer beside cuBLAS's, bf16, the device alone",
                {"product", "rows", "ours µs", "cuBLAS µs", "ours / cuBLAS", "cuBLAS + finish µs",
                 "ours / that", "ours TFLOP/s", "of the data sheet", "cuBLAS TFLOP/s",
                 "of the data sheet"}};
    const std::vector<int>& counts = settings.blas_rows;
    Rival rival{in_bf16, *std::max_element(counts.begin(), counts.end())};
    for (const Product& product : layer_products(in_bf16)) {
        for (const int rows : counts) {
            const auto seconds = rival.measure(product, rows);
            const std::string at = fmt::format("{}.{}", product.name(), rows);
            bench.report.figure("blas.own.seconds." + at, seconds.own);
            bench.report.figure("blas.seconds." + at, seconds.bare);
            bench.report.figure("blas.finished.seconds." + at, seconds.finished);
            const double own = product.operations(rows) / seconds.own;
            const double peer = product.operations(rows) / seconds.bare;
            table.rows.push_back({product.name(), std::to_string(rows), microseconds(seconds.own),
                                  microseconds(seconds.bare), fixed(seconds.own / seconds.bare, 2),
                                  microseconds(seconds.finished),
                                  fixed(seconds.own / seconds.finished, 2), fixed(own / 1e12, 1),
                                  share_of(own, settings.flops), fixed(peer / 1e12, 1),
                                  share_of(peer, settings.flops)});
        }
    }
    bench.report.add(table);
}

}  // namespace paceline::bench
