// The reference against transformers, for every architecture and stored type.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "model/reference/reference_backend.hpp"
#include "model/weights/model_file.hpp"
#include "tests/support/parity.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::testing {
namespace {

// Both sides carry float32 between steps and transformers also sums in it, so they differ by
// some 1e-6. What is promised to users is 1e-4; an error of the arithmetic shows as 1e-2 and more.
constexpr double kTolerance = 1e-5;

ModelFile open_model(const std::string& path) {
    Result<ModelFile> file = ModelFile::open(path);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string() : file.error().what));
    return std::move(file).value();
}

TEST_CASE("the reference agrees with transformers on every fixture") {
    for (const std::string& name : golden_names()) {
        CAPTURE(name);
        const Golden golden = load_golden(fixtures(), name);
        const ModelFile file = open_model(golden.model_path);
        REQUIRE(file.config().vocab_size == golden.vocab_size);
        ReferenceBackend backend(file, {.kv_slots = 64});

        const std::vector<float> logits =
            sequence_logits(backend, golden.tokens, static_cast<int>(golden.tokens.size()));
        const Deviation worst = deviation(logits, golden.logits, golden.vocab_size);
        CAPTURE(worst.row);
        CAPTURE(worst.column);
        CHECK(worst.relative < kTolerance);
        CHECK(argmax_of_rows(logits, golden.vocab_size) == golden.argmax);
    }
}

TEST_CASE("the reference continues each fixture with the tokens of transformers") {
    for (const std::string& name : golden_names()) {
        CAPTURE(name);
        const Golden golden = load_golden(fixtures(), name);
        REQUIRE(golden.continuation_margin > 10.0 * kTolerance);
        const ModelFile file = open_model(golden.model_path);
        ReferenceBackend backend(file, {.kv_slots = 64});

        std::vector<TokenId> tokens = golden.tokens;
        tokens.insert(tokens.end(), golden.continuation.begin(), golden.continuation.end());
        const std::vector<TokenId> next = argmax_of_rows(
            sequence_logits(backend, tokens, static_cast<int>(tokens.size())), golden.vocab_size);
        const std::vector<TokenId> continued(next.begin() + std::ssize(golden.tokens) - 1,
                                             next.end() - 1);
        CHECK(continued == golden.continuation);
    }
}

TEST_CASE("narrow KV types move the logits a little, and not more") {
    const Golden golden = load_golden(fixtures(), "llama-f32");
    const ModelFile file = open_model(golden.model_path);
    const auto deviation_with = [&](KvType type) {
        ReferenceBackend backend(file, {.kv_slots = 64, .kv_type = type});
        return deviation(sequence_logits(backend, golden.tokens, 1), golden.logits,
                         golden.vocab_size)
            .relative;
    };
    const double with_f16 = deviation_with(KvType::F16);
    const double with_bf16 = deviation_with(KvType::BF16);
    CHECK(with_f16 > kTolerance);
    CHECK(with_f16 < 5e-3);
    CHECK(with_bf16 > with_f16);
    CHECK(with_bf16 < 5e-2);
}

}  // namespace
}  // namespace paceline::testing
