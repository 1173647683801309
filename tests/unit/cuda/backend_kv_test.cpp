// Keys and values taken out of a device and put into a CPU's cache, and the other way round.
#include "tests/unit/backend/kv_suite.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("slots travel between a CPU and a device that store them as one type") {
    std::mt19937 rng{92};
    for (const char* fixture : {"llama-f32", "qwen2-f16"}) {
        const ModelFile file = open_fixture(fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kText);
        const std::vector<KvSlot> from = home_slots(kText);
        for (const KvType kv : {KvType::F32, KvType::F16, KvType::BF16}) {
            CAPTURE(fixture);
            CAPTURE(static_cast<int>(kv));
            const auto cpu = make_backend(file, {.kv = kv});
            const auto gpu = make_cuda(file, {.kv = kv});
            const std::vector<float> of_cpu = states_of(*cpu, text_rows(*cpu, tokens, from));
            const std::vector<float> of_gpu = states_of(*gpu, text_rows(*gpu, tokens, from));
            const auto cpu_went_on = make_backend(file, {.kv = kv});
            const auto gpu_went_on = make_cuda(file, {.kv = kv});
            const std::vector<KvSlot> to = scattered_slots(kText, gpu_went_on->kv_slots());
            const std::vector<KvSlot> to_cpu = scattered_slots(kText, cpu_went_on->kv_slots());
            copy_slots(*cpu, from, *gpu_went_on, to);
            copy_slots(*gpu, from, *cpu_went_on, to_cpu);
            // Not the bits: each rounds in ways of its own. Another order of a key's numbers, or
            // keys for values, would be off by as much as the numbers are large.
            const double most = 2.0 * worst_error(of_cpu, of_gpu) + 1e-4;
            CHECK(most < 0.1);
            const auto rest_error = [&](Backend& backend, const std::vector<KvSlot>& slots,
                                        const std::vector<float>& all) {
                return worst_error(states_of(backend, text_rows(backend, tokens, slots, kCopied)),
                                   std::span(all).subspan(kCopied * dim));
            };
            CHECK(rest_error(*gpu_went_on, to, of_gpu) < most);
            CHECK(rest_error(*cpu_went_on, to_cpu, of_cpu) < most);
        }
    }
}

}  // namespace
}  // namespace paceline
