// EagleBackend: an EAGLE draft (eagle_spec.hpp) as a backend: a decoder layer whose input is made
// of a token's embedding and the feature of the token before it.
//
//     row at i ──> embedding ──┐
//     slot of i - 1 ─> feature ┴─ F ─> the layer (keys in the row's slot) ─> output = hidden state
//                        ^                                                      │
//                        └──── of slot i, unless the target's was given <───────┘
//
// A row needs the feature of the row before it on its path, which the same call may compute: rows
// run in steps, each after the rows that it waits for. Rows whose features are all given (a text
// with the target's states) are one step; a text of n tokens without them takes n.
// The bits of a row depend on its path, on the features that were given, and on nothing else.
//
// Owns the layer's backend, on the host, and a feature for each of its KV slots. F and J are
// multiplied in float32 on the calling thread. Keys and values do not travel (kv_bytes() is 0):
// they would be of no use without features. Threads: as the layer's backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/backend.hpp"
#include "model/eagle_spec.hpp"
#include "model/feature_slots.hpp"

namespace paceline {

/// Bytes of the features and matrices of an EAGLE draft beside its layer's, with features that
/// wait for their slots (kFeaturesKeptMax).
[[nodiscard]] MemoryUse eagle_memory(const EagleSpec& spec, int dim, std::int32_t kv_slots);

/// Errors: BadArgument for matrices that do not fit a model of `dim`.
[[nodiscard]] Status check_eagle(const EagleSpec& spec, int dim);

class EagleBackend final : public Backend, public FeatureSlots {
public:
    /// Preconditions: check_eagle(); `layer` starts at layer 0, and computes on the host.
    EagleBackend(std::unique_ptr<Backend> layer, EagleSpec spec);

    [[nodiscard]] const ModelConfig& config() const override { return layer_->config(); }
    [[nodiscard]] int first_layer() const override { return layer_->first_layer(); }
    [[nodiscard]] int last_layer() const override { return layer_->last_layer(); }
    [[nodiscard]] std::int32_t kv_slots() const override { return layer_->kv_slots(); }

    /// Preconditions: as Backend's; rows run all sub-layers, and `cancel` watches no rows.
    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows hidden,
                          const CancelToken* cancel) override;

    void head(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) override {
        layer_->head(id, hidden, rows, logits);
    }
    [[nodiscard]] bool has_head(HeadId id) const override { return layer_->has_head(id); }
    [[nodiscard]] std::span<const TokenId> short_list(HeadId id) const override {
        return layer_->short_list(id);
    }
    void head_listed(HeadId id,
                     ConstHiddenRows hidden,
                     int rows,
                     std::span<float> logits) override {
        layer_->head_listed(id, hidden, rows, logits);
    }
    [[nodiscard]] MemoryUse memory_use() const override;
    [[nodiscard]] std::string equality_class() const override { return layer_->equality_class(); }

    [[nodiscard]] FeatureSlots* feature_slots() override { return this; }
    [[nodiscard]] std::size_t width() const override { return spec_.states() * dim_; }
    void give(KvSlot slot, std::span<const float> states) override;
    void forget(KvSlot slot) override;
    [[nodiscard]] bool given(KvSlot slot) const override;
    [[nodiscard]] std::span<const float> feature(KvSlot slot) override;

    /// Steps of the last call.
    [[nodiscard]] int steps() const { return steps_; }

private:
    [[nodiscard]] std::span<float> place(KvSlot slot);
    void join_given();
    void plan(std::span<const Row> rows);
    RunOutcome run_step(std::span<const Row> rows,
                        int step,
                        std::span<float> hidden,
                        const CancelToken* cancel);
    void fuse(std::span<const Row> rows, std::span<const float> embedded, std::span<float> out);

    std::unique_ptr<Backend> layer_;
    EagleSpec spec_;  // its matrices transposed, [inputs, dim]
    std::size_t dim_;
    std::vector<float> features_;                                  // [kv_slots, dim]
    std::vector<std::uint8_t> given_;                              // by slot
    std::vector<std::pair<KvSlot, std::vector<float>>> unjoined_;  // given since the last call
    // Of one call.
    std::vector<int> step_of_;  // by row
    std::vector<int> written_;  // by slot: the row of the call that writes it, or -1
    int steps_ = 0;
    std::vector<float> embedded_, fused_;
    std::vector<Row> chosen_;
    std::vector<std::size_t> chosen_at_;
};

}  // namespace paceline
