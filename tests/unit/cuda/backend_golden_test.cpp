// The CUDA backend's logits against transformers' and against the CPU backend's.
#include "tests/support/source_tree.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE(
    "the numbers of a file's own blocks are kept: logits are near the CPU's of the same dtype") {
    for (const char* fixture : {"llama-q4_0", "llama-q4_1", "mistral-q8_0", "llama-small-blocks",
                                "llama-q4_k_m", "qwen3-k-mix"}) {
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
