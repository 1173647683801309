// A merged target against its reference implementation, whose matrices were merged in float64
// beforehand.
#pragma once

#include <tuple>

#include "model/weights/lora.hpp"
#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/what.hpp"
#include "tests/unit/weights/lora_builder.hpp"

namespace paceline::testing {

/// A fixture, the LoRA that is merged into it, and its reference. Owns their files.
struct MergedPair {
    test::TestFolder folder;
    std::string path = (folder.path() / "lora.safetensors").string();
    ModelFile plain;
    ModelFile merged;
    ModelFile reference;

    MergedPair(const std::string& fixture, const test::LoraOf& what)
        : plain{open_fixture(fixture)},
          merged{merge(fixture, what)},
          reference{test::merged_reference(plain, path, folder)} {}

private:
    ModelFile merge(const std::string& fixture, const test::LoraOf& what) const {
        test::lora_of(plain, what).write(path);
        Result<ModelFile> made = merge_lora(open_fixture(fixture), path);
        REQUIRE_MESSAGE(made.ok(), (made.ok() ? std::string{} : made.error().what));
        return std::move(made).value();
    }
};

template <class Traits>
std::vector<float> logits_with(const ModelFile& file, Dtype dtype) {
    constexpr TokenId kTokens[] = {5, 17, 99, 3, 250, 42, 7, 8};
    const auto backend = Traits::make(file, {.dtype = dtype, .kv = KvType::F32});
    return sequence_logits(*backend, kTokens, 4);
}

TEST_CASE_TEMPLATE_DEFINE("a merged target computes what its reference does on every architecture",
                          Traits,
                          MergedTarget) {
    for (const std::string& fixture : golden_names()) {
        CAPTURE(fixture);
        const MergedPair pair{fixture, {}};
        const std::vector<float> want = logits_with<Traits>(pair.reference, Dtype::F32);
        const std::vector<float> got = logits_with<Traits>(pair.merged, Dtype::F32);
        CHECK(worst_error(got, want) < 1e-4);
        CHECK(worst_error(logits_with<Traits>(pair.plain, Dtype::F32), want) > 3e-2);
    }
}

TEST_CASE_TEMPLATE_DEFINE("f32 logits of a merged target agree with transformers' merge",
                          Traits,
                          MergedGolden) {
    for (const std::string fixture : {"llama-q4_1", "qwen2-f16"}) {
        CAPTURE(fixture);
        const Golden golden = load_golden(fixtures(), fixture + ".lora");
        REQUIRE(golden.continuation_margin > 10.0 * Traits::kGoldenTolerance);
        Result<ModelFile> file = merge_lora(
            open_fixture(fixture), fixtures() + "/models/" + fixture + ".lora.safetensors");
        REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string{} : file.error().what));
        const auto backend = Traits::make(file.value(), {.dtype = Dtype::F32, .kv = KvType::F32});
        std::vector<TokenId> tokens = golden.tokens;
        tokens.insert(tokens.end(), golden.continuation.begin(), golden.continuation.end());
        const std::vector<float> logits =
            sequence_logits(*backend, tokens, static_cast<int>(tokens.size()));
        const Deviation worst = deviation(std::span(logits).first(golden.logits.size()),
                                          golden.logits, golden.vocab_size);
        CHECK(worst.relative < Traits::kGoldenTolerance);
        const std::vector<TokenId> best = argmax_of_rows(logits, golden.vocab_size);
        const auto follows = best.begin() + std::ssize(golden.tokens);
        CHECK(std::vector<TokenId>(follows - 1, best.end() - 1) == golden.continuation);
    }
}

TEST_CASE_TEMPLATE_DEFINE("each kind of matrix is merged by itself, in its own layer",
                          Traits,
                          MergedKinds) {
    for (const char* fixture : {"llama-q4_1", "qwen2-f16"}) {
        for (const auto& [stem, member] : test::lora_kinds()) {
            const std::string name = "blk.1." + stem;
            CAPTURE(fixture);
            CAPTURE(name);
            const MergedPair pair{fixture, {.share = 0.5, .only = {name}}};
            CHECK(pair.merged.lora()->tensors == 1);
            const std::vector<float> want = logits_with<Traits>(pair.reference, Dtype::F32);
            const std::vector<float> got = logits_with<Traits>(pair.merged, Dtype::F32);
            CHECK(worst_error(got, want) < 1e-4);
            CHECK(worst_error(logits_with<Traits>(pair.plain, Dtype::F32), want) > 3e-3);
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE("a merged matrix is packed as its reference is in the same type",
                          Traits,
                          MergedDtypes) {
    // 4-bit blocks of a file become int8 under auto: rounding the sum to 4 bits would cost more.
    const std::tuple<const char*, Dtype, Dtype> cases[] = {
        {"llama-q4_1", Dtype::Auto, Dtype::Int8},
        {"llama-q4_0", Dtype::Auto, Dtype::Int8},
        {"llama-q4_0", Dtype::Q4, Dtype::Q4},
        {"llama-q4_1", Dtype::BF16, Dtype::BF16},
        {"mistral-q8_0", Dtype::Auto, Dtype::Int8},
        {"qwen3-bf16", Dtype::Auto, Dtype::BF16},
        {"llama-untied-f16", Dtype::Int8, Dtype::Int8},
        {"llama-untied-f16", Dtype::BF16, Dtype::BF16}};
    for (const auto& [fixture, of_merged, of_reference] : cases) {
        CAPTURE(fixture);
        CAPTURE(name(of_merged));
        const MergedPair pair{fixture, {.half = true}};
        const std::vector<float> want = logits_with<Traits>(pair.reference, of_reference);
        // The sums differ in the last bit of a float32, which moves a few numbers by one step.
        CHECK(worst_error(logits_with<Traits>(pair.merged, of_merged), want) < 1e-2);
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "matrices that a LoRA does not name keep their bits, and the class differs",
    Traits,
    MergedElsewhere) {
    const MergedPair pair{"llama-q4_1", {.only = {"blk.1.attn_v"}}};
    const What first{.last_layer = 1};
    const auto plain = Traits::make(pair.plain, first);
    const auto merged = Traits::make(pair.merged, first);
    Text one{*plain, 6};
    Text other{*merged, 6};
    REQUIRE(one.run(*plain) == RunOutcome::Done);
    REQUIRE(other.run(*merged) == RunOutcome::Done);
    CHECK(same_bits(one.hidden, other.hidden));
    CHECK(plain->equality_class() != merged->equality_class());
}

}  // namespace paceline::testing
