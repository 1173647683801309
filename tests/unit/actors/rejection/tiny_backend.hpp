// TinyBackend: a model of a few tokens, whose logits depend on the last two tokens of the text,
// through the KV slots of every layer. Small enough for the distribution of whole answers to be
// enumerated.
//
// Two models with different `weights` have different distributions of the next token. The cache
// starts out as garbage: a row that reads a wrong slot has other logits.
// With `features` it is a toy EAGLE draft: a row has other logits where the token before it has a
// feature of the target's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/check.hpp"
#include "model/backend.hpp"
#include "tests/support/toy/toy_features.hpp"

namespace paceline::testing {

inline constexpr int kTinyVocab = 5;
inline constexpr int kTinyLayers = 4;
inline constexpr int kTinyDim = 2;  // the token, and the one before it
/// Added to the token before a row where that has a feature.
inline constexpr float kTinyLed = 10.0F;

/// Logits [kTinyVocab] after a text that ends with these two tokens; `before`: -1 for none.
inline void tiny_logits(std::uint64_t weights, TokenId before, TokenId last, std::span<float> to) {
    std::mt19937_64 random{weights * 1000 + static_cast<std::uint64_t>((before + 1) * 10 + last)};
    for (float& logit : to) logit = static_cast<float>(random() % 1000) / 250.0F;
}

class TinyBackend final : public Backend {
public:
    TinyBackend(std::uint64_t weights, int first_layer, int last_layer)
        : weights_{weights}, first_layer_{first_layer}, last_layer_{last_layer} {
        config_.layers = kTinyLayers;
        config_.dim = kTinyDim;
        config_.vocab_size = kTinyVocab;
        config_.context_length = kSlots;
        keys_.assign(std::size_t{kTinyLayers} * kSlots, 77.0F);
    }

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] int first_layer() const override { return first_layer_; }
    [[nodiscard]] int last_layer() const override { return last_layer_; }
    [[nodiscard]] std::int32_t kv_slots() const override { return kSlots; }
    [[nodiscard]] FeatureSlots* feature_slots() override { return features.get(); }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows states,
                          const CancelToken* /*cancel*/) override {
        const std::span<float> hidden = states.host();
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i].first == 0) hidden[i * kTinyDim] = static_cast<float>(rows[i].token);
        }
        for (int layer = first_layer_; layer < last_layer_; ++layer) {
            for (std::size_t i = 0; i < rows.size(); ++i)
                key(layer, rows[i].slot) = hidden[i * kTinyDim];
            for (std::size_t i = 0; i < rows.size(); ++i) {
                const Position before = rows[i].position - 1;
                hidden[i * kTinyDim + 1] =
                    before < 0 ? -1.0F : key(layer, rows[i].key_slot(before));
            }
        }
        for (std::size_t i = 0; features && i < rows.size(); ++i) {
            const Position before = rows[i].position - 1;
            if (before >= 0 && features->given(rows[i].key_slot(before)))
                hidden[i * kTinyDim + 1] += kTinyLed;
        }
        return RunOutcome::Done;
    }
    void head(HeadId /*id*/, ConstHiddenRows states, int rows, std::span<float> logits) override {
        const std::span<const float> hidden = states.host();
        for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
            tiny_logits(weights_, static_cast<TokenId>(hidden[i * kTinyDim + 1]),
                        static_cast<TokenId>(hidden[i * kTinyDim]),
                        logits.subspan(i * kTinyVocab, kTinyVocab));
        }
    }
    [[nodiscard]] bool has_head(HeadId /*id*/) const override { return true; }
    [[nodiscard]] MemoryUse memory_use() const override { return {}; }
    [[nodiscard]] std::string equality_class() const override { return "tiny"; }

    std::shared_ptr<FakeFeatures> features = {};

private:
    static constexpr std::int32_t kSlots = 256;
    float& key(int layer, KvSlot slot) {
        PACE_CHECK(slot >= 0 && slot < kSlots, "a slot that does not exist");
        return keys_[static_cast<std::size_t>(layer) * kSlots + static_cast<std::size_t>(slot)];
    }

    ModelConfig config_;
    std::uint64_t weights_;
    int first_layer_;
    int last_layer_;
    std::vector<float> keys_;  // [layers, slots]
};

}  // namespace paceline::testing
