// ReferenceBackend: the model primitive in plain loops; what every other backend must agree with.
//
// Weights are float32 copies of the stored ones. Between two steps every vector is float32;
// inside a step all arithmetic is double and rounds once. All rows of a call pass a sub-layer
// before any passes the next, and in an attention all of them write their keys and values before
// any of them reads. Nothing depends on which rows go together, so rows are trivially invariant.
//
// Owns weights and KV of its segment, nothing of the file. One call at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/adapter_spec.hpp"
#include "model/backend.hpp"
#include "model/reference/attention.hpp"
#include "model/reference/kv_store.hpp"
#include "model/reference/reference_weights.hpp"
#include "model/rope_table.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct ReferenceOptions {
    int first_layer = 0;
    int last_layer = -1;  // one past the segment's last; -1: to the end of the model
    std::int32_t kv_slots = 0;
    KvType kv_type = KvType::F32;
    bool final_head = false;           // norm and head also if the segment does not end the model
    std::vector<HeadSpec> heads = {};  // HeadId 1, 2, ...; checked by the caller
    std::optional<AdapterSpec> adapter = {};  // likewise
};

class ReferenceBackend final : public Backend {
public:
    /// Copies the segment's weights out of `file`. Preconditions: a range of the model's layers,
    /// kv_slots > 0.
    ReferenceBackend(const ModelFile& file, const ReferenceOptions& options);

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] int first_layer() const override { return first_layer_; }
    [[nodiscard]] int last_layer() const override { return last_layer_; }
    [[nodiscard]] std::int32_t kv_slots() const override { return kv_slots_; }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows states,
                          const CancelToken* cancel) override;

    void head(HeadId id, ConstHiddenRows states, int rows, std::span<float> logits) override;

    void head_listed(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) override;
    RunOutcome run_adapter(std::span<const Row> rows,
                           ConstHiddenRows states,
                           HiddenRows adapted,
                           const CancelToken* cancel) override;

    [[nodiscard]] bool has_head(HeadId id) const override {
        if (id == HeadId::Adapter) return adapter_.has_value();
        if (id != HeadId::Final) return static_cast<std::size_t>(id) <= heads_.size();
        return final_head_ || last_layer_ == config_.layers;
    }

    [[nodiscard]] std::span<const TokenId> short_list(HeadId id) const override {
        if (id == HeadId::Adapter) return adapter_->tokens;
        return id == HeadId::Final ? std::span<const TokenId>{}
                                   : heads_[static_cast<std::size_t>(id) - 1].tokens;
    }

    [[nodiscard]] MemoryUse memory_use() const override;
    [[nodiscard]] std::string equality_class() const override { return equality_class_; }

private:
    void embed(TokenId token, std::span<float> hidden) const;
    /// An attention sub-layer: of the target, or the adapter's.
    struct Attention {
        const reference::LayerWeights& weights;
        reference::KvStore& kv;
        int layer;  // of the store
        reference::AttentionShape shape;
    };
    [[nodiscard]] Attention attention_of(int layer);
    void write_key_value(const Attention& of, const Row& row, std::span<const float> hidden) const;
    void attend(const Attention& of, const Row& row, std::span<float> hidden) const;
    void feed_forward(int layer, std::span<float> hidden) const;
    void head_row(const HeadSpec& head,
                  std::span<const float> output_norm,
                  std::span<const float> hidden,
                  std::span<float> logits) const;
    /// Norms (if the model does) and turns each head of `heads` for `position`.
    void place_heads(std::span<float> heads, std::span<const float> norm, Position position) const;

    ModelConfig config_;
    int first_layer_;
    int last_layer_;
    std::int32_t kv_slots_;
    bool final_head_;
    std::vector<HeadSpec> heads_;
    std::string equality_class_;
    RopeTable rope_;
    reference::ReferenceWeights weights_;
    reference::KvStore kv_;
    std::optional<AdapterSpec> adapter_;  // its out_norm and list; the rest is in the next two
    reference::LayerWeights adapter_weights_;
    std::optional<reference::KvStore> adapter_kv_;
};

}  // namespace paceline
