#include "tests/support/source_tree.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("f32 logits agree with transformers to 1e-4 on every architecture and instruction set") {
    for (const std::string& fixture : golden_names()) {
        const Golden golden = load_golden(fixtures(), fixture);
        const ModelFile file = open_fixture(fixture);
        for (const Isa isa : runnable_isas()) {
            CAPTURE(fixture);
            CAPTURE(name(isa));
            const auto backend =
                make_backend(file, {.dtype = Dtype::F32, .kv = KvType::F32, .isa = isa});
            const std::vector<float> logits =
                sequence_logits(*backend, golden.tokens, static_cast<int>(golden.tokens.size()));
            CHECK(deviation(logits, golden.logits, golden.vocab_size).relative < 1e-4);
            CHECK(argmax_of_rows(logits, golden.vocab_size) == golden.argmax);
        }
    }
}

TEST_CASE("every dtype and cache type stays near the f32 logits of the same file") {
    const Golden golden = load_golden(fixtures(), "llama-f32");
    const ModelFile file = open_fixture("llama-f32");
    // The weights are random, so nothing averages out: the bounds only tell rounding from a bug.
    const std::pair<Dtype, double> bounds[] = {
        {Dtype::BF16, 0.03}, {Dtype::Int8, 0.1}, {Dtype::Q4, 1.0}};
    for (const auto& [dtype, bound] : bounds) {
        CAPTURE(name(dtype));
        const auto backend = make_backend(file, {.dtype = dtype, .kv = KvType::F32});
        const std::vector<float> logits = sequence_logits(*backend, golden.tokens, 8);
        CHECK(deviation(logits, golden.logits, golden.vocab_size).relative < bound);
    }
    for (const auto& [kv, bound] : {std::pair{KvType::F16, 2e-3}, {KvType::BF16, 2e-2}}) {
        CAPTURE(name(kv));
        const auto backend = make_backend(file, {.dtype = Dtype::F32, .kv = kv});
        const std::vector<float> logits = sequence_logits(*backend, golden.tokens, 8);
        CHECK(deviation(logits, golden.logits, golden.vocab_size).relative < bound);
    }
}

}  // namespace
}  // namespace paceline
