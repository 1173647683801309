// Rotation and attention of one layer as benches time them: rows after a context, planned and
// launched as CudaForward does, with caches of so many layers that their keys and values do not
// stay in L2.
//
// Owns device memory, borrows the desk; one thread. Throws as device_work.hpp does.
#pragma once

#include "model/kernels/cuda/attention.hpp"

#include "bench/cuda/products.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {

class AttentionBench {
public:
    /// For as many rows as `desk` has now, at the positions after `context` keys.
    AttentionBench(const Bench& bench, ProductDesk& desk, int context);

    /// How these rows are launched: the plan on the device, room for partials.
    struct Planned {
        cuda::DeviceMemory words, partials;
        cuda::AttentionLaunch how;
    };
    [[nodiscard]] Planned planned() const;

    /// Put one launch into the desk's stream; `i`: which of the layers.
    void rotate(int i) const;
    void attend(const Planned& planned, int i) const;

private:
    const ModelConfig& config_;
    ProductDesk& desk_;
    int context_;
    cuda::AttentionKernel kernel_;
    int layers_ = 1;
    std::vector<KvSlot> names_;  // slot of each position
    cuda::DeviceMemory cache_, qkv_, slot_of_, angles_, out_;
    cuda::RotateArgs rotate_;
    cuda::AttentionArgs attend_;
};

}  // namespace paceline::bench
