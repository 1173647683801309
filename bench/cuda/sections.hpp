// The sections of paceline_cuda_bench. Each measures one thing, adds its tables to the report, and
// leaves figures for the ones after it:
//
//     copy      copy.bytes_per_s: read and written by a kernel; measured in every run that needs it
//     kernels   head.seconds.ROWS (the device alone)
//     ladder    ladder.after.PRODUCT.ROWS: the kernel taken over the best; ladder.unequal, and a
//               fault of the report, if bits differ
//     blas      blas.own.seconds.PRODUCT.ROWS, blas.seconds..., blas.finished.seconds...
//     batches   layers.seconds.ROWS.CONTEXT (the device alone), batch.share.ROWS.CONTEXT of the
//               copy's bandwidth and batch.sheet_share of the data sheet's, ...; prefill.share.ROWS
//               in batches of ROWS, of the data sheet's bf16 rate, prefill.share of the better ones
//     drawing   draw.share.KIND of a batch of 8
//     groups    group.barrier.seconds, group.layers.seconds.DEVICES.ROWS; with --group alone
//
// "The device alone" is the time between two events around replays of a recording; "wall" is what a
// caller of the backend waits, copies of hidden states included.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/cuda/cuda_backend.hpp"
#include "model/weights/model_file.hpp"

#include "bench/cuda/report.hpp"

namespace paceline::bench {

struct Settings {
    int device = 0;
    int group = 1;  // devices from `device` on that share a stage
    std::string dtype = "auto";
    std::string kv = "bf16";
    std::vector<int> rows{1, 2, 4, 8, 16, 32, 64};
    std::vector<int> contexts{64, 512, 2048};
    std::vector<int> blas_rows{1, 8, 16, 64, 512, 1024};  // of products beside others
    int prefill = 2048;
    int times = 20;                          // replays of a batch
    double bytes_per_second = 0.0;           // of the card's memory by its data sheet; 0: not known
    double flops = 0.0;                      // dense bf16 by its data sheet; 0: not known
    std::size_t spread_bytes = 512U << 20U;  // weights that a kernel goes round: more than L2
    std::size_t copy_bytes = 1024U << 20U;   // of the yardstick
    std::uint64_t seed = 1;
};

struct Bench {
    const ModelFile& file;
    const Settings& settings;
    Report& report;
};

/// The context that ratios and shares are told at: 512, or the largest there is below.
[[nodiscard]] int usual_context(const Settings& settings);

/// Bytes of the weights of one layer, and of the head, as the device holds them.
[[nodiscard]] double layer_bytes(const Bench& bench);
[[nodiscard]] double head_bytes(const Bench& bench);
/// Bytes of the keys and values that a batch of `rows` after `context` reads, over all layers.
[[nodiscard]] double cache_bytes(const Bench& bench, int rows, int context);

/// Errors: those of make_cuda_backend(), BadArgument for words of the settings.
[[nodiscard]] Result<CudaOptions> cuda_options(const Bench& bench);

void copy_section(const Bench& bench);
void kernels_section(const Bench& bench);
void ladder_section(const Bench& bench);
/// Products beside cuBLAS's. Precondition: cuda::blas_problem() is empty.
void blas_section(const Bench& bench);
void drawing_section(const Bench& bench);
/// Precondition: settings.group is 2 or more, and so many devices are there.
[[nodiscard]] Status groups_section(const Bench& bench);
[[nodiscard]] Status batches_section(const Bench& bench);
[[nodiscard]] Status upload_section(const Settings& settings,
                                    const std::string& path,
                                    Report& report);
/// What the project set out to reach for a shape of this name; nothing for others.
void goals_section(const Bench& bench);

/// Writes a cost table (runtime/simulation/cost_table.hpp): stages "layers" and "head" of one
/// device, for as many layers as fit, and "hop".
[[nodiscard]] Status write_costs(const Bench& bench, const std::string& path);

}  // namespace paceline::bench
