// EagleBackend around a layer on a GPU: the suite of both, and what the device draws after rows.
#include <optional>
#include <vector>

#include "tests/unit/cuda/eagle/cuda_eagle_fixture.hpp"
#include "tests/unit/cuda/one_go_call.hpp"

namespace paceline::testing {
namespace {

struct CudaEagleTraits {
    static constexpr std::size_t kTokens = 12;
    static constexpr std::size_t kLongTokens = 40;
    static constexpr const char* kFixtures[] = {"llama-q4_1", "llama-f32"};

    static std::unique_ptr<EagleBackend> make(const EagleFixture& eagle,
                                              const CpuOptions& options) {
        return cuda_eagle(eagle, {.dtype = options.dtype,
                                  .kv = options.kv == KvType::F32 ? KvType::F32 : KvType::BF16,
                                  .kv_slots = options.kv_slots,
                                  .rows_max = options.rows_max});
    }
};

TEST_CASE_TEMPLATE_INVOKE(EagleAgrees, CudaEagleTraits);
TEST_CASE_TEMPLATE_INVOKE(EagleRows, CudaEagleTraits);
TEST_CASE_TEMPLATE_INVOKE(EagleTrees, CudaEagleTraits);
TEST_CASE_TEMPLATE_INVOKE(EagleFeatures, CudaEagleTraits);
TEST_CASE_TEMPLATE_INVOKE(EagleCancelled, CudaEagleTraits);

TEST_CASE("with bf16 weights an EAGLE draft on a GPU is near its plain reference, with any join") {
    for (const std::vector<int>& layers : {std::vector<int>{}, {1, 2}}) {
        const EagleFixture eagle{"qwen3-bf16", layers};
        std::mt19937 random{31};
        const std::vector<TokenId> tokens =
            random_tokens(random, eagle.target.config().vocab_size, 70);
        const auto states = eagle.some_states(random, tokens.size(), 1);
        const std::vector<float> want = eagle.plain(tokens, states);
        for (const int rows_max : {512, 24}) {  // states in one batch, and in several
            CAPTURE(rows_max);
            const auto backend = cuda_eagle(eagle, {.rows_max = rows_max});
            const std::vector<KvSlot> slots = scattered_slots(tokens.size(), 1024);
            give(*backend, slots, states, tokens.size());
            const std::vector<float> got = states_of(*backend, text_rows(*backend, tokens, slots));
            CHECK(worst_error(got, want) < 0.05);
            CHECK(backend->steps() == 1);
        }
    }
}

/// Rows in `steps` steps: the first ones read the target's features, the last ones each other.
struct StepRows {
    std::vector<KvSlot> slots;
    std::vector<Row> rows;

    StepRows(EagleBackend& backend, const EagleFixture& eagle, Position count, Position unknown)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        std::mt19937 random{32};
        const auto states = eagle.some_states(random, slots.size(), 1);
        give(backend, slots, states, slots.size() - static_cast<std::size_t>(unknown));
        for (Position p = 0; p < count; ++p)
            rows.push_back(sequence_row(backend, 1 + p % 100, p, slots));
    }
};

TEST_CASE("candidates and tokens after rows of an EAGLE draft are those of its hidden states") {
    const EagleFixture eagle{"llama-q4_1"};
    for (const Position unknown : {0, 4}) {
        CAPTURE(unknown);
        const auto plain = cuda_eagle(eagle, {.final_head = true});
        const StepRows of_plain{*plain, eagle, 20, unknown};
        Call want{*plain, 20, 2};
        want.hidden = states_of(*plain, of_plain.rows);
        DeviceSampler& sampler = *plain->device_sampler();
        for (std::size_t r = 0; r < want.rows.size(); ++r) {
            if (want.jobs[r].params == nullptr) continue;
            const auto row = std::span<const float>{want.hidden}.subspan(
                r * static_cast<std::size_t>(plain->config().dim),
                static_cast<std::size_t>(plain->config().dim));
            const std::span jobs{&want.jobs[r], 1};
            sampler.draw(row, jobs, std::span{want.tokens}.subspan(r, 1));
            sampler.draw_candidates(kEagleHead, row, jobs, std::span{want.best}.subspan(r, 1));
        }
        const auto backend = cuda_eagle(eagle, {.final_head = true});
        const StepRows of{*backend, eagle, 20, unknown};
        Call got{*backend, 20, 2};
        for (int round = 0; round < 3; ++round) {  // launched, recorded, replayed
            CAPTURE(round);
            REQUIRE(backend->run_and_draw(of.rows, got.hidden, {got.jobs, true}, got.tokens,
                                          nullptr) == RunOutcome::Done);
            CHECK(backend->steps() == 1 + std::max(0, unknown - 1));
            CHECK(same_bits(got.hidden, want.hidden));
            REQUIRE(backend->run_and_draw_candidates(kEagleHead, of.rows, {}, {got.jobs}, got.best,
                                                     nullptr) == RunOutcome::Done);
            got.check_same(want);
        }
        // Hidden states that stay on the device.
        RowMemory memory = backend->make_rows(of.rows.size());
        REQUIRE(backend->run_layers(of.rows, memory.rows, nullptr) == RunOutcome::Done);
        std::vector<float> copied(memory.rows.size());
        backend->copy(memory.rows, copied);
        CHECK(same_bits(copied, want.hidden));
    }
}

}  // namespace
}  // namespace paceline::testing
