// CpuTraits: the CPU backend for the suite of all backends (tests/unit/backend/what.hpp).
#pragma once

#include "tests/unit/backend/what.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline::testing {

struct CpuTraits {
    static constexpr bool kHasDtypes = true;
    static constexpr std::size_t kLong = 300;  // crosses a border between two attention splits
    static constexpr Setting kSettings[] = {
        {"llama-f32", Dtype::F32, KvType::F32, kLong},
        {"llama-f32", Dtype::BF16, KvType::BF16, kLong},
        {"qwen3-bf16", Dtype::Auto, KvType::F16, kLong},
        {"qwen2-f16", Dtype::Int8, KvType::F16, kLong},
        {"llama-untied-f16", Dtype::Auto, KvType::F16, kLong},
        {"llama-q4_1", Dtype::Auto, KvType::F16, kLong},
        {"llama-q4_0", Dtype::Auto, KvType::F16, kLong},
        {"mistral-q8_0", Dtype::Q4, KvType::F32, kLong},
        {"llama-small-blocks", Dtype::Auto, KvType::F16, kLong},
        {"llama-q4_k_m", Dtype::Auto, KvType::F16, kLong},
        {"qwen3-k-mix", Dtype::Auto, KvType::F16, kLong},
    };
    static constexpr Way kWays[] = {
        {kLong, false, 256, 1}, {kLong, true, 256, 1}, {64, false, 256, 2}, {64, true, 256, 2},
        {8, false, 5, 3},       {8, true, 5, 3},       {2, false, 64, 2},   {2, true, 64, 2},
        {37, false, 16, 4},     {37, true, 16, 4},
    };
    static constexpr std::size_t kPrefixes[] = {1, 31, 250};
    static constexpr int kPrefixBatch = 1;
    static constexpr std::size_t kNodeStep = 1;
    static constexpr std::size_t kChainTokens = 50;
    static constexpr std::size_t kPairTokens = 70;

    static constexpr double kGoldenTolerance = 1e-4;
    static constexpr Near kNear[] = {
        {Dtype::BF16, KvType::F32, 0.03},  {Dtype::BF16, KvType::F16, 0.03},
        {Dtype::BF16, KvType::BF16, 0.05}, {Dtype::Int8, KvType::F32, 0.1},
        {Dtype::Int8, KvType::F16, 0.1},   {Dtype::Int8, KvType::BF16, 0.1},
        {Dtype::Q4, KvType::F32, 1.0},     {Dtype::Q4, KvType::F16, 1.0},
        {Dtype::Q4, KvType::BF16, 1.0},
    };

    static constexpr Build kBuilds[] = {{256, 1}, {5, 2}, {64, 3}};
    static constexpr std::size_t kHeadRows[] = {3, 8, 9, 17, 64};
    static constexpr std::size_t kHeadRowStep = 1;
    static constexpr KvType kNarrowKv = KvType::F16;
    static constexpr Position kAdapterTokens = 300;
    static constexpr double kAdapterTolerance = 1e-5;

    static constexpr int kCancelRounds = 50;
    static constexpr Build kStaleBuilds[] = {{64, 1}, {64, 2}, {64, 3}, {7, 2}};
    static constexpr int kStaleRounds = 25;
    static constexpr int kQuestionsMin = 2;  // before the call, and at borders of sub-layers

    static CpuOptions options(const What& what) {
        CpuOptions options{.dtype = what.dtype,
                           .first_layer = what.first_layer,
                           .last_layer = what.last_layer,
                           .kv_slots = what.kv_slots > 0 ? what.kv_slots : 1024,
                           .threads = what.threads,
                           .isa = what.isa,
                           .final_head = what.final_head,
                           .heads = what.heads,
                           .adapter = what.adapter,
                           .skipped = what.skipped};
        options.kv = what.kv.value_or(options.kv);
        options.rows_max = what.rows_max.value_or(options.rows_max);
        return options;
    }
    static std::unique_ptr<Backend> make(const ModelFile& file, const What& what) {
        return make_backend(file, options(what));
    }
    static Error refused(const ModelFile& file, const What& what) {
        const Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file, options(what));
        REQUIRE_FALSE(backend.ok());
        return backend.error();
    }
    static std::vector<std::optional<Isa>> isas() {
        const std::vector<Isa> all = runnable_isas();
        return {all.begin(), all.end()};
    }
};

}  // namespace paceline::testing
