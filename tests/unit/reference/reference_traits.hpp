// ReferenceTraits: the reference backend for the suite of all backends
// (tests/unit/backend/what.hpp). It has float32 copies of the stored weights, one thread and no
// limit of rows: of a What it takes layers, slots, heads, adapter and the type of the cache.
#pragma once

#include <memory>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

struct ReferenceTraits {
    static constexpr bool kHasDtypes = false;
    static constexpr Setting kSettings[] = {
        {"llama-untied-f16", Dtype::Auto, KvType::F32, 40},
        {"llama-untied-f16", Dtype::Auto, KvType::F16, 40},
        {"llama-untied-f16", Dtype::Auto, KvType::BF16, 40},
        {"qwen2-f16", Dtype::Auto, KvType::F32, 40},
        {"qwen2-f16", Dtype::Auto, KvType::F16, 40},
        {"qwen2-f16", Dtype::Auto, KvType::BF16, 40},
        {"qwen3-bf16", Dtype::Auto, KvType::F32, 40},
        {"qwen3-bf16", Dtype::Auto, KvType::F16, 40},
        {"qwen3-bf16", Dtype::Auto, KvType::BF16, 40},
        {"mistral-q8_0", Dtype::Auto, KvType::F32, 40},
        {"mistral-q8_0", Dtype::Auto, KvType::F16, 40},
        {"mistral-q8_0", Dtype::Auto, KvType::BF16, 40},
        {"llama-yarn-f16", Dtype::Auto, KvType::F32, 40},
        {"llama3-bf16", Dtype::Auto, KvType::F32, 40},
    };
    static constexpr Way kWays[] = {{40, false, 0}, {3, false, 0}, {32, false, 0}, {7, true, 0}};
    static constexpr std::size_t kPrefixes[] = {4, 31};
    static constexpr int kPrefixBatch = 1;
    static constexpr std::size_t kNodeStep = 1;
    static constexpr std::size_t kChainTokens = 40;
    static constexpr std::size_t kPairTokens = 40;

    // Both sides carry float32 between steps and transformers also sums in it, so they differ by
    // some 1e-6. What is promised to users is 1e-4; an error of the arithmetic shows as 1e-2 and
    // more.
    static constexpr double kGoldenTolerance = 1e-5;

    static constexpr Build kBuilds[] = {{0}};
    static constexpr std::size_t kHeadRows[] = {8};
    static constexpr std::size_t kHeadRowStep = 13;

    static constexpr int kCancelRounds = 5;
    static constexpr Build kStaleBuilds[] = {{0}};
    static constexpr int kStaleRounds = 2;
    static constexpr int kQuestionsMin = 0;  // it computes them all

    static std::unique_ptr<Backend> make(const ModelFile& file, const What& what) {
        return std::make_unique<ReferenceBackend>(
            file, ReferenceOptions{.first_layer = what.first_layer,
                                   .last_layer = what.last_layer,
                                   .kv_slots = what.kv_slots > 0 ? what.kv_slots : 512,
                                   .kv_type = what.kv.value_or(KvType::F32),
                                   .final_head = what.final_head,
                                   .heads = what.heads,
                                   .adapter = what.adapter});
    }
    static std::vector<std::optional<Isa>> isas() { return {std::nullopt}; }
};

}  // namespace paceline::testing
