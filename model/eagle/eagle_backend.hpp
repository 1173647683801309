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
// Owns the layer's backend, which computes on the host or on a GPU; a step is an EagleLayer's,
// which has the matrices and a feature for each KV slot. On a GPU it draws what is wanted after
// rows with the layers (device_sampler()). Keys and values do not travel (kv_bytes() is 0): they
// would be of no use without features. Threads: as the layer's backend.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/backend.hpp"
#include "model/device_sampler.hpp"
#include "model/eagle_layer.hpp"
#include "model/eagle_spec.hpp"
#include "model/feature_slots.hpp"

namespace paceline {

/// Bytes of the features and matrices of an EAGLE draft on the host beside its layer's, with
/// eagle_kept_bytes().
[[nodiscard]] MemoryUse eagle_memory(const EagleSpec& spec, int dim, std::int32_t kv_slots);
/// Bytes of the host for features that wait for their slots (kFeaturesKeptMax), wherever the draft
/// computes.
[[nodiscard]] std::uint64_t eagle_kept_bytes(const EagleSpec& spec, int dim);

/// Errors: BadArgument for matrices that do not fit a model of `dim`.
[[nodiscard]] Status check_eagle(const EagleSpec& spec, int dim);

class EagleBackend final : public Backend, public FeatureSlots, public DeviceSampler {
public:
    /// Steps on the host. Preconditions: check_eagle(); `layer` starts at layer 0, and computes on
    /// the host.
    EagleBackend(std::unique_ptr<Backend> layer, const EagleSpec& spec);
    /// Steps by `steps`, which `layer` owns; a feature is made of `states` states.
    EagleBackend(std::unique_ptr<Backend> layer, EagleLayer& steps, std::size_t states);

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
    void gather(std::span<const RowSource> rows, HiddenRows to) override {
        layer_->gather(rows, to);
    }
    void copy(ConstHiddenRows from, HiddenRows to) override { layer_->copy(from, to); }
    [[nodiscard]] RowMemory make_rows(std::size_t rows) override { return layer_->make_rows(rows); }
    [[nodiscard]] MemoryPlace memory_place() const override { return layer_->memory_place(); }
    [[nodiscard]] MemoryUse memory_use() const override;
    [[nodiscard]] std::string equality_class() const override { return layer_->equality_class(); }

    // What a device draws; nullptr where the layer's backend draws nothing.
    [[nodiscard]] DeviceSampler* device_sampler() override {
        return layer_->device_sampler() != nullptr ? this : nullptr;
    }
    [[nodiscard]] bool draws(const SamplingParams& params) const override {
        return layer_->device_sampler()->draws(params);
    }
    [[nodiscard]] int candidates_max() const override {
        return layer_->device_sampler()->candidates_max();
    }
    void draw(ConstHiddenRows hidden,
              std::span<const DrawJob> jobs,
              std::span<std::optional<TokenId>> tokens) override {
        layer_->device_sampler()->draw(hidden, jobs, tokens);
    }
    void draw_candidates(HeadId id,
                         ConstHiddenRows hidden,
                         std::span<const DrawJob> jobs,
                         std::span<std::vector<Candidate>> best) override {
        layer_->device_sampler()->draw_candidates(id, hidden, jobs, best);
    }
    RunOutcome run_and_draw(std::span<const Row> rows,
                            HiddenRows hidden,
                            const BehindRows& behind,
                            std::span<std::optional<TokenId>> tokens,
                            const CancelToken* cancel) override;
    RunOutcome run_and_draw_candidates(HeadId id,
                                       std::span<const Row> rows,
                                       HiddenRows hidden,
                                       const BehindRows& behind,
                                       std::span<std::vector<Candidate>> best,
                                       const CancelToken* cancel) override;

    [[nodiscard]] FeatureSlots* feature_slots() override { return this; }
    [[nodiscard]] std::size_t width() const override { return width_; }
    void give(KvSlot slot, std::span<const float> states) override;
    void forget(KvSlot slot) override;
    [[nodiscard]] bool given(KvSlot slot) const override;
    [[nodiscard]] std::span<const float> feature(KvSlot slot) override;

    /// Steps of the last call.
    [[nodiscard]] int steps() const { return steps_; }

private:
    void put_given();
    void plan(std::span<const Row> rows);
    void order(std::span<const Row> rows);
    RunOutcome run(std::span<const Row> rows,
                   HiddenRows hidden,
                   const StepDraws& draws,
                   const CancelToken* cancel);
    RunOutcome run_steps(HiddenRows out, const StepDraws& draws, const CancelToken* cancel);

    std::unique_ptr<Backend> layer_;
    std::unique_ptr<EagleLayer> on_host_;  // nothing: the layer's backend has its own
    EagleLayer& step_;
    MemoryUse own_;  // of on_host_
    std::size_t dim_;
    std::size_t width_;
    std::vector<std::uint8_t> given_;  // by slot
    std::vector<float> feature_;       // feature()
    // Given since the last call.
    std::vector<KvSlot> unput_;
    std::vector<float> unput_states_;  // [unput_, width]
    std::vector<int> unput_at_;        // by slot: where it is there, or -1
    // Of one call.
    std::vector<int> step_of_;  // by row
    std::vector<int> written_;  // by slot: the row of the call that writes it, or -1
    int steps_ = 0;
    std::vector<std::size_t> in_order_;  // the call's rows, step by step
    std::vector<std::size_t> place_of_;  // by row of the call: where it is there
    std::vector<Row> rows_;              // in this order, as all of these
    std::vector<KvSlot> before_, kept_;
    std::vector<DrawJob> jobs_;
    std::vector<std::optional<TokenId>> tokens_;
    std::vector<std::vector<Candidate>> best_;
    RowMemory room_;  // outputs of calls with several steps
};

}  // namespace paceline
