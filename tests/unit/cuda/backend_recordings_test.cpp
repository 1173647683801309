// Recordings of one backend: batches of any number of rows have the bits that they have without.
#include "model/cuda/batch_tables.hpp"
#include "model/cuda/cuda_unsupported.hpp"
#include "tests/unit/cuda/one_go_call.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

void run(CudaBackend& backend, Call& call) {
    std::fill(call.hidden.begin(), call.hidden.end(), 0.0f);
    REQUIRE(backend.run_and_draw(call.rows, call.hidden, {call.jobs, true}, call.tokens, nullptr) ==
            RunOutcome::Done);
    REQUIRE(backend.run_and_draw_candidates(HeadId::Final, call.rows, {}, {call.jobs}, call.best,
                                            nullptr) == RunOutcome::Done);
}

TEST_CASE("recordings of one backend serve batches of any number of rows") {
    const ModelFile file = open_fixture("tiny-chat");
    const auto plain = make_cuda(file, {.dtype = Dtype::BF16, .graphs = false});
    const auto backend = make_cuda(file, {.dtype = Dtype::BF16});
    // Twice up and down: each size is launched, recorded and replayed between the others.
    for (const Position count : {1, 8, 2, 5, 3, 8, 1, 4, 2, 5, 1, 3, 8}) {
        CAPTURE(count);
        Call want{*plain, count, 1};
        run(*plain, want);
        Call got{*backend, count, 1};
        run(*backend, got);
        CHECK(same_bits(got.hidden, want.hidden));
        got.check_same(want);
    }
}

TEST_CASE("larger batches have one recording a size, whatever rows attention is planned for") {
    CHECK(grid_rows(1) == 8);
    // No more tile counts than recording_bytes() reckons with: three up to 8 rows, then one a size.
    for (int group = 1; group <= cuda::kAttentionGroupMax; ++group) {
        CAPTURE(group);
        for (int rows = 9; rows <= cuda::kBatchRows; ++rows) {
            const auto tiles = [&](int planned) {
                return cuda::attention_tiles(cuda::attention_unit_rows(planned, group), group);
            };
            CHECK(tiles(rows) == tiles(grid_rows(rows)));
        }
    }
}

}  // namespace
}  // namespace paceline
