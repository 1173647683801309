// HostEagleLayer: the step of an EAGLE draft in memory of the host, around the backend of its
// layer: F and J are multiplied in float32 on the calling thread.
//
//     rows ─> layer's backend, last = 0 ─> embeddings ─┐
//                                 features of slots ───┴─ F ─> the same rows, given ─> outputs
//
// Borrows the backend. Owns the matrices and the features. Threads: as the backend.
#pragma once

#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/eagle_layer.hpp"
#include "model/eagle_spec.hpp"

namespace paceline {

class HostEagleLayer final : public EagleLayer {
public:
    /// Preconditions: check_eagle(); `layer` computes on the host.
    HostEagleLayer(Backend& layer, EagleSpec spec);

    void put(std::span<const KvSlot> slots, std::span<const float> states) override;
    /// Preconditions: `out` is wanted, nothing is drawn.
    RunOutcome run_step(const EagleStep& step,
                        HiddenRows out,
                        const StepDraws& draws,
                        const CancelToken* cancel) override;
    void read(KvSlot slot, std::span<float> to) override;

private:
    [[nodiscard]] std::span<float> place(KvSlot slot);
    void fuse(std::span<const KvSlot> before, std::span<float> out);

    Backend& layer_;
    EagleSpec spec_;  // its matrices transposed, [inputs, dim]
    std::size_t dim_;
    std::vector<float> features_;  // [kv_slots, dim]
    // Of one step.
    std::vector<float> embedded_;
    std::vector<Row> rows_;
};

}  // namespace paceline
