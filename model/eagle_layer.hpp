// EagleLayer: one step of an EAGLE draft (eagle_spec.hpp) where its features lie: in memory of the
// host (model/eagle/host_eagle_layer), or of a GPU (model/cuda/cuda_eagle).
//
//     put()        states of the target become the features of slots
//     run_step()   x = F [embedding ; feature of the slot before], the layer, the output as the
//                  feature of the row's own slot
//
// EagleBackend decides which rows make a step. The bits of a row depend on its path and on the
// features that it reads, not on the other rows.
// Preconditions are checked (PACE_CHECK). One call at a time; threads: as the layer's backend.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/device_sampler.hpp"

namespace paceline {

inline constexpr KvSlot kNoFeature = -1;

/// Rows that read no output of each other. All spans are by row.
struct EagleStep {
    std::span<const Row> rows;       // begin with their tokens, and run the whole layer
    std::span<const KvSlot> before;  // whose feature a row reads; kNoFeature: zeros
    std::span<const KvSlot> kept;    // that gets the output as its feature; kNoFeature: none
};

/// What is drawn after the rows of a step, by row; as DeviceSampler has it. No jobs: nothing.
struct StepDraws {
    HeadId head = HeadId::Final;
    std::span<const DrawJob> jobs = {};
    std::span<std::optional<TokenId>> tokens = {};  // one each, or
    std::span<std::vector<Candidate>> best = {};    // candidates
};

class EagleLayer {
public:
    EagleLayer() = default;
    EagleLayer(const EagleLayer&) = delete;
    EagleLayer& operator=(const EagleLayer&) = delete;
    virtual ~EagleLayer() = default;

    /// `states` are [slots, states of a feature * dim]. No slot is there twice.
    virtual void put(std::span<const KvSlot> slots, std::span<const float> states) = 0;
    /// `out`, [rows, dim], gets the outputs; empty: they are not wanted, on a device.
    /// Draws are for layers on a device with a sampler.
    virtual RunOutcome run_step(const EagleStep& step,
                                HiddenRows out,
                                const StepDraws& draws,
                                const CancelToken* cancel) = 0;
    /// A slot's feature, [dim].
    virtual void read(KvSlot slot, std::span<float> to) = 0;
};

}  // namespace paceline
