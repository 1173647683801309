// CpuBackend: one segment of a target on CPU cores, with packed weights and row-invariant kernels.
//
// A call runs on a ThreadTeam: all threads walk the sub-layers together, each computing its own
// slice of every matrix product, with barriers where one step needs all of the step before.
//
//   attention   norm+pack | q k v | rope, store KV | scores, values | merge+pack | out (+=
//               residual)
//   MLP         norm+pack | gate up | silu+pack | down (+= residual)
//
// Which thread computes what never changes a bit; nor do the other rows (kernel_table.hpp).
// Calls with more rows than rows_max are cut into chunks; a row may see rows before it only.
//
// Owns weights, KV cache, buffers and threads. All calls come from the thread that made it.
#pragma once

#include <memory>

#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

class CpuBackend : public Backend {
public:
    /// Seconds that the matrix products of one call with `rows` rows take alone: all layers of
    /// the segment and, where it has one, the head for every row; same threads, same barriers
    /// between products, nothing else. The yardstick of the benchmarks.
    virtual double gemm_only_seconds(int rows) = 0;
    [[nodiscard]] virtual Isa isa() const = 0;
};

/// Packs the weights of a segment and reserves its KV cache.
/// Errors: BadArgument (layers, threads, cores, heads, an instruction set this machine lacks),
/// OutOfMemory, BadFile (numbers that are not finite).
Result<std::unique_ptr<CpuBackend>> make_cpu_backend(const ModelFile& file,
                                                     const CpuOptions& options);

}  // namespace paceline
