// CudaBackend: one segment of a target on an NVIDIA GPU, or on several that each have a part of
// every matrix (CudaOptions::others), with the bits of one (model/backend.hpp).
//
// Hidden states are float32, as between any two segments, and lie where the caller says: on the
// host, on the device, or on another that this one reaches. All device memory is accounted before
// any is taken. A device error throws cuda::DeviceError: the context is lost, the process
// should end and be started anew.
//
// Owns weights, cache, workspace, streams. All calls come from one thread.
#pragma once

#include <memory>

#include "model/backend.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/device_sampler.hpp"
#include "model/eagle_layer.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

class CudaBackend : public Backend, public DeviceSampler {
public:
    [[nodiscard]] DeviceSampler* device_sampler() override { return this; }
    /// "NVIDIA H200".
    [[nodiscard]] virtual const std::string& device_name() const = 0;
    /// How many of a call's rows, from the first on, go through the layers at once: rows_max, or
    /// fewer where they see more keys than there is room for.
    [[nodiscard]] virtual std::size_t batch_rows(std::span<const Row> rows) const = 0;
    /// Steps of an EAGLE draft of this backend's layers; nullptr without CudaOptions::eagle.
    [[nodiscard]] virtual EagleLayer* eagle_layer() = 0;
    /// Seconds that the device alone takes for a pass of `rows` through the whole segment: the mean
    /// of `times` replays of one recording between two events, after one that is not timed. Rows as
    /// for run_layers(), one batch of them, all through every sub-layer; those that begin
    /// after sub-layer 0 have any hidden states. Keys and values of their slots are written. For
    /// benches.
    [[nodiscard]] virtual double batch_seconds(std::span<const Row> rows, int times) = 0;
};

/// What a segment takes of its devices together, without asking one. `options` as for
/// make_cuda_backend().
[[nodiscard]] MemoryUse cuda_memory(const ModelFile& file, const CudaOptions& options);
/// What each of them takes, in their order; what is pinned counts to the first.
[[nodiscard]] std::vector<MemoryUse> cuda_memory_of_each(const ModelFile& file,
                                                         const CudaOptions& options);

/// Loads the weights of a segment and reserves its cache.
/// Errors: BadArgument (layers, rows, heads), Unsupported (shapes that no kernel has), OutOfMemory
/// (saying what is there and what is needed), BadFile (numbers that are not finite, a file that
/// changed), System (the device).
Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const ModelFile& file,
                                                       const CudaOptions& options);

}  // namespace paceline
