// The CUDA backend's logits against transformers' and against the CPU backend's.
#include "tests/support/source_tree.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("f32 logits agree with transformers to 1e-4 on every architecture") {
    for (const std::string& fixture : golden_names()) {
        CAPTURE(fixture);
        const Golden golden = load_golden(fixtures(), fixture);
        const ModelFile file = open_fixture(fixture);
        const auto backend = make_cuda(file, {.dtype = Dtype::F32, .kv = KvType::F32});
        const std::vector<float> logits =
            sequence_logits(*backend, golden.tokens, static_cast<int>(golden.tokens.size()));
        CHECK(deviation(logits, golden.logits, golden.vocab_size).relative < 1e-4);
        CHECK(argmax_of_rows(logits, golden.vocab_size) == golden.argmax);
    }
}

TEST_CASE("every dtype and cache type stays near the f32 logits of the same file") {
    const Golden golden = load_golden(fixtures(), "llama-f32");
    const ModelFile file = open_fixture("llama-f32");
    // The weights are random, so nothing averages out: the bounds only tell rounding from a bug.
    const std::pair<Dtype, double> bounds[] = {
        {Dtype::BF16, 0.05}, {Dtype::Int8, 0.1}, {Dtype::Q4, 1.0}};
    for (const auto& [dtype, bound] : bounds) {
        for (const KvType kv : {KvType::F32, KvType::F16, KvType::BF16}) {
            CAPTURE(name(dtype));
            CAPTURE(name(kv));
            const auto backend = make_cuda(file, {.dtype = dtype, .kv = kv});
            const std::vector<float> logits = sequence_logits(*backend, golden.tokens, 8);
            CHECK(deviation(logits, golden.logits, golden.vocab_size).relative < bound);
        }
    }
}

TEST_CASE(
    "the numbers of a file's own blocks are kept: logits are near the CPU's of the same dtype") {
    for (const char* fixture : {"llama-q4_0", "llama-q4_1", "mistral-q8_0"}) {
        CAPTURE(fixture);
        const Golden golden = load_golden(fixtures(), fixture);
        const ModelFile file = open_fixture(fixture);
        const auto gpu = make_cuda(file, {.kv = KvType::F32});
        // The same numbers in float: what is left is the rounding of activations.
        const auto cpu = make_backend(file, {.dtype = Dtype::F32, .kv = KvType::F32});
        const std::vector<float> got = sequence_logits(*gpu, golden.tokens, 5);
        const std::vector<float> want = sequence_logits(*cpu, golden.tokens, 5);
        CHECK(deviation(got, want, golden.vocab_size).relative < 0.05);
    }
}

}  // namespace
}  // namespace paceline
