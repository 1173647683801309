// CudaTraits: the CUDA backend, on whatever device the program is linked to, for the suite of all
// backends (tests/unit/backend/what.hpp). The emulated device is slow: what runs is chosen for its
// paths.
#pragma once

#include "tests/unit/backend/what.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline::testing {

struct CudaTraits {
    static constexpr bool kHasDtypes = true;
    /// Every type of weights with every type of cache that has a path of its own. Past a border of
    /// splits once for each type of cache; the others are as good in a short text.
    static constexpr Setting kSettings[] = {
        {"llama-f32", Dtype::F32, KvType::F32, 70},
        {"llama-f32", Dtype::F32, KvType::BF16, 70},
        {"qwen3-bf16", Dtype::BF16, KvType::BF16, 70},
        {"qwen2-f16", Dtype::Int8, KvType::F16, 132},
        {"mistral-q8_0", Dtype::Q4, KvType::F32, 132},
        {"llama-q4_1", Dtype::Auto, KvType::BF16, 132},
        // Blocks with a scale per 32 and per 16 numbers; q, k and v of several types.
        {"llama-small-blocks", Dtype::Auto, KvType::BF16, 70},
        {"llama-q4_k_m", Dtype::Auto, KvType::BF16, 70},
        {"qwen3-k-mix", Dtype::Auto, KvType::BF16, 70},
    };
    static constexpr Way kWays[] = {
        {132, true, 24, 1, false},
        {37, true, 64},
        {64, false, 64, 1, false},
        {132, true, 64},
    };
    static constexpr std::size_t kPrefixes[] = {1, 125};
    static constexpr int kPrefixBatch = 64;
    static constexpr std::size_t kNodeStep = 10;
    static constexpr std::size_t kChainTokens = 25;
    static constexpr std::size_t kPairTokens = 40;

    static constexpr double kGoldenTolerance = 1e-4;
    static constexpr Near kNear[] = {
        {Dtype::BF16, KvType::F32, 0.05},  {Dtype::BF16, KvType::F16, 0.05},
        {Dtype::BF16, KvType::BF16, 0.05}, {Dtype::Int8, KvType::F32, 0.1},
        {Dtype::Int8, KvType::F16, 0.1},   {Dtype::Int8, KvType::BF16, 0.1},
        {Dtype::Q4, KvType::F32, 1.0},     {Dtype::Q4, KvType::F16, 1.0},
        {Dtype::Q4, KvType::BF16, 1.0},
    };

    static constexpr Build kBuilds[] = {{64}, {17}, {5}};
    static constexpr std::size_t kHeadRows[] = {8, 9, 17};  // beside the sizes of kernels
    static constexpr std::size_t kHeadRowStep = 13;
    static constexpr KvType kNarrowKv = KvType::BF16;
    static constexpr Position kAdapterTokens = 140;
    static constexpr double kAdapterTolerance = 1e-4;

    static constexpr Build kStaleBuilds[] = {{7}};
    static constexpr int kStaleRounds = 1;
    static constexpr int kQuestionsMin = 1;  // before each batch

    static CudaOptions options(const What& what) {
        CudaOptions options{.dtype = what.dtype,
                            .first_layer = what.first_layer,
                            .last_layer = what.last_layer,
                            .kv_slots = what.kv_slots > 0 ? what.kv_slots : 512,
                            .graphs = what.graphs,
                            .final_head = what.final_head,
                            .heads = what.heads,
                            .adapter = what.adapter,
                            .skipped = what.skipped};
        options.kv = what.kv.value_or(options.kv);
        options.rows_max = what.rows_max.value_or(options.rows_max);
        return options;
    }
    static std::unique_ptr<Backend> make(const ModelFile& file, const What& what) {
        return make_cuda(file, options(what));
    }
    static Error refused(const ModelFile& file, const What& what) {
        return testing::refused(file, options(what));
    }
    static std::vector<std::optional<Isa>> isas() { return {std::nullopt}; }
};

}  // namespace paceline::testing
