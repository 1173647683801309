// How many bytes cross between host and device in a call, how often the host waits, and how many
// kernels run: counts of the emulated device, with streams that keep their work as a GPU's do.
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/one_go_call.hpp"
#include "tests/unit/cuda/stop_watches.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using cuda::emulated::Traffic;

Traffic since(const Traffic& before) {
    const Traffic now = cuda::emulated::traffic();
    return {now.bytes_to_device - before.bytes_to_device, now.bytes_to_host - before.bytes_to_host,
            now.waits - before.waits};
}

TEST_CASE("a device that does later what it is told now gives the same, in one go or not") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto plain = make_cuda(file, {});
    Call want{*plain, 40, 1};
    want.one_by_one(*plain, HeadId::Final);
    const auto backend = make_cuda(file, {.rows_max = 16});
    const LazyStreams lazy;
    Call got{*backend, 40, 1};
    for (int round = 0; round < 3; ++round) {  // launched, recorded, replayed
        std::fill(got.hidden.begin(), got.hidden.end(), 0.0f);
        REQUIRE(backend->run_and_draw(got.rows, got.hidden, {got.jobs, true}, got.tokens,
                                      nullptr) == RunOutcome::Done);
        CHECK(same_bits(got.hidden, want.hidden));
        REQUIRE(backend->run_and_draw_candidates(HeadId::Final, got.rows, {}, {got.jobs}, got.best,
                                                 nullptr) == RunOutcome::Done);
        got.check_same(want);
    }
    Call again{*backend, 40, 1};
    again.one_by_one(*backend, HeadId::Final);
    again.check_same(want);
}

TEST_CASE("a step is one wait, and nothing but ids crosses to the host") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {});
    const auto dim = static_cast<std::uint64_t>(file.config().dim);
    for (const int count : {1, 5, 64}) {
        Call call{*backend, count, 1};
        for (int round = 0; round < 3; ++round) {
            const auto rows = static_cast<std::uint64_t>(count);
            Traffic before = cuda::emulated::traffic();
            REQUIRE(backend->run_and_draw(call.rows, {}, {call.jobs}, call.tokens, nullptr) ==
                    RunOutcome::Done);
            CHECK(since(before).waits == 1);
            CHECK(since(before).bytes_to_host == rows * sizeof(TokenId));
            before = cuda::emulated::traffic();
            REQUIRE(backend->run_and_draw_candidates(HeadId::Final, call.rows, {}, {call.jobs},
                                                     call.best, nullptr) == RunOutcome::Done);
            CHECK(since(before).waits == 1);
            CHECK(since(before).bytes_to_host < rows * 256);
            before = cuda::emulated::traffic();
            REQUIRE(backend->run_layers(call.rows, call.hidden, nullptr) == RunOutcome::Done);
            CHECK(since(before).waits == 1);
            CHECK(since(before).bytes_to_host == rows * dim * sizeof(float));
        }
    }
}

TEST_CASE("the last segment of a chain is given hidden states, and gives none back") {
    const ModelFile file = open_fixture("llama-f32");
    const auto whole = make_cuda(file, {});
    Call want{*whole, 6, 1};
    want.one_by_one(*whole, HeadId::Final);
    const auto front = make_cuda(file, {.last_layer = 1});
    const auto back = make_cuda(file, {.first_layer = 1});
    Call between{*front, 6, 1};
    REQUIRE(front->run_layers(between.rows, between.hidden, nullptr) == RunOutcome::Done);
    Call got{*back, 6, 1};
    got.hidden = between.hidden;
    const Traffic before = cuda::emulated::traffic();
    REQUIRE(back->run_and_draw(got.rows, got.hidden, {got.jobs}, got.tokens, nullptr) ==
            RunOutcome::Done);
    CHECK(since(before).bytes_to_host == 6 * sizeof(TokenId));
    CHECK(got.tokens == want.tokens);
}

std::uint64_t launches_of(CudaBackend& backend, Call& call, const CancelToken* cancel) {
    const std::uint64_t before = cuda::emulated::launches();
    CHECK(backend.run_and_draw(call.rows, {}, {call.jobs}, call.tokens, cancel) ==
          RunOutcome::Done);
    return cuda::emulated::launches() - before;
}

TEST_CASE("rows that nothing is drawn after cost no head") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {});
    Call call{*backend, 4, 1};
    for (DrawJob& job : call.jobs) job.params = nullptr;
    CHECK(launches_of(*backend, call, nullptr) ==
          2 + 6 * static_cast<std::uint64_t>(file.config().layers));
}

TEST_CASE("a call that is cancelled before it begins launches no kernel") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {});
    Text text{*backend, 30};
    CancelToken cancel;
    cancel.cancel();
    const std::uint64_t before = cuda::emulated::launches();
    CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
    CHECK(cuda::emulated::launches() == before);
}

TEST_CASE(
    "a batch whose rows are all stale launches no kernel, one with a live row launches them all") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {.rows_max = 8});
    Call want{*backend, 16, 1};
    (void)launches_of(*backend, want, nullptr);
    const std::uint64_t whole = launches_of(*backend, want, nullptr);
    const LazyStreams lazy;
    CancelToken cancel;
    const DeadRows second_batch{8};
    cancel.watch_rows(&second_batch);
    Call half{*backend, 16, 1};
    CHECK(launches_of(*backend, half, &cancel) == whole / 2);
    const DeadRows all_but_one{1};
    cancel.watch_rows(&all_but_one);
    Call alive{*backend, 8, 1};
    CHECK(launches_of(*backend, alive, &cancel) == whole / 2);
}

}  // namespace
}  // namespace paceline
