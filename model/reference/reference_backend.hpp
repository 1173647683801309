// ReferenceBackend: the model primitive in plain loops; what every other backend must agree with.
//
// Weights are float32 copies of the stored ones. Between two steps every vector is float32;
// inside a step all arithmetic is double and rounds once. All rows of a call pass a sub-layer
// before any passes the next, and in an attention all of them write their keys and values before
// any of them reads. Nothing depends on which rows go together, so rows are trivially invariant.
//
// Owns weights and KV of its segment, nothing of the file. One call at a time.
#pragma once

#include <string>
#include <vector>

#include "model/backend.hpp"
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
                          std::span<float> hidden,
                          const CancelToken* cancel) override;

    void head(HeadId id, std::span<const float> hidden, int rows, std::span<float> logits) override;

    [[nodiscard]] bool has_head(HeadId id) const override {
        if (id != HeadId::Final) return static_cast<std::size_t>(id) <= heads_.size();
        return final_head_ || last_layer_ == config_.layers;
    }

    [[nodiscard]] MemoryUse memory_use() const override;
    [[nodiscard]] std::string equality_class() const override { return equality_class_; }

private:
    void embed(TokenId token, std::span<float> hidden) const;
    void write_key_value(int layer, const Row& row, std::span<const float> hidden);
    void attend(int layer, const Row& row, std::span<float> hidden) const;
    void feed_forward(int layer, std::span<float> hidden) const;
    void head_row(const HeadSpec& head,
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
};

}  // namespace paceline
