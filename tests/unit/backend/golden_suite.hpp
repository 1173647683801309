// Logits of the fixtures against transformers', and of narrower types against those of float32.
#pragma once

#include <vector>

#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

TEST_CASE_TEMPLATE_DEFINE(
    "f32 logits agree with transformers on every architecture, and so do the tokens that follow",
    Traits,
    GoldenLogits) {
    for (const std::string& fixture : golden_names()) {
        const Golden golden = load_golden(fixtures(), fixture);
        CAPTURE(fixture);
        REQUIRE(golden.continuation_margin > 10.0 * Traits::kGoldenTolerance);
        const ModelFile file = open_fixture(fixture);
        REQUIRE(file.config().vocab_size == golden.vocab_size);
        std::vector<TokenId> tokens = golden.tokens;
        tokens.insert(tokens.end(), golden.continuation.begin(), golden.continuation.end());
        for (const std::optional<Isa>& isa : Traits::isas()) {
            CAPTURE(static_cast<int>(isa.value_or(Isa::Portable)));
            const auto backend =
                Traits::make(file, {.dtype = Dtype::F32, .kv = KvType::F32, .isa = isa});
            const std::vector<float> logits =
                sequence_logits(*backend, tokens, static_cast<int>(tokens.size()));
            const Deviation worst = deviation(std::span(logits).first(golden.logits.size()),
                                              golden.logits, golden.vocab_size);
            CAPTURE(worst.row);
            CAPTURE(worst.column);
            CHECK(worst.relative < Traits::kGoldenTolerance);
            const std::vector<TokenId> best = argmax_of_rows(logits, golden.vocab_size);
            const auto follows = best.begin() + std::ssize(golden.tokens);
            CHECK(std::vector<TokenId>(best.begin(), follows) == golden.argmax);
            CHECK(std::vector<TokenId>(follows - 1, best.end() - 1) == golden.continuation);
        }
    }
}

/// How far the golden logits of llama-f32 are off with other types.
template <class Traits>
double off_golden(Dtype dtype, KvType kv) {
    const Golden golden = load_golden(fixtures(), "llama-f32");
    const auto backend = Traits::make(open_fixture("llama-f32"), {.dtype = dtype, .kv = kv});
    return deviation(sequence_logits(*backend, golden.tokens, 8), golden.logits, golden.vocab_size)
        .relative;
}

// The weights are random, so nothing averages out: the bounds only tell rounding from a bug.
TEST_CASE_TEMPLATE_DEFINE("every dtype and cache type stays near the f32 logits of the same file",
                          Traits,
                          NearFloat) {
    for (const Near& near : Traits::kNear) {
        CAPTURE(name(near.dtype));
        CAPTURE(name(near.kv));
        CHECK(off_golden<Traits>(near.dtype, near.kv) < near.bound);
    }
}

TEST_CASE_TEMPLATE_DEFINE("narrow cache types move the logits a little, and not more",
                          Traits,
                          NarrowCaches) {
    const double with_f16 = off_golden<Traits>(Dtype::F32, KvType::F16);
    const double with_bf16 = off_golden<Traits>(Dtype::F32, KvType::BF16);
    CHECK(with_f16 > 1e-5);
    CHECK(with_f16 < 2e-3);
    CHECK(with_bf16 > with_f16);
    CHECK(with_bf16 < 2e-2);
}

}  // namespace paceline::testing
