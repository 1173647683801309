// What crosses between host and device in a call, how often somebody waits, and how a wave is stopped
// that is under way. On a device that keeps what it is given, as a GPU does.
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/one_go_call.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using cuda::emulated::Traffic;

/// Streams keep what they are given until somebody waits, as on a GPU.
class Lazy {
public:
    Lazy() { cuda::emulated::set_lazy(true); }
    ~Lazy() { cuda::emulated::set_lazy(false); }
    Lazy(const Lazy&) = delete;
    Lazy& operator=(const Lazy&) = delete;
};

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
    const Lazy lazy;
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

TEST_CASE("rows that nothing is drawn behind keep what stood there, and cost no head") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {});
    Call call{*backend, 4, 1};
    for (DrawJob& job : call.jobs) job.params = nullptr;
    call.tokens.assign(4, TokenId{77});
    const std::uint64_t before = cuda::emulated::launches();
    REQUIRE(backend->run_and_draw(call.rows, {}, {call.jobs}, call.tokens, nullptr) ==
            RunOutcome::Done);
    CHECK(cuda::emulated::launches() - before ==
          2 + 6 * static_cast<std::uint64_t>(file.config().layers));
    CHECK(call.tokens == std::vector<std::optional<TokenId>>(4, TokenId{77}));
}

/// Says yes from the nth time on that it is asked about its first row.
class DyingRows final : public CancelToken::RowWatch {
public:
    DyingRows(std::size_t living, int asks) : living_{living}, asks_{asks} {}
    [[nodiscard]] bool dead(std::size_t row) const override {
        if (row == 0) --asks_;
        return row >= living_ && asks_ < 0;
    }

private:
    std::size_t living_;  // rows below never die
    mutable int asks_;
};

std::uint64_t launches_of(CudaBackend& backend, Call& call, const CancelToken* cancel) {
    const std::uint64_t before = cuda::emulated::launches();
    CHECK(backend.run_and_draw(call.rows, {}, {call.jobs}, call.tokens, cancel) ==
          RunOutcome::Done);
    return cuda::emulated::launches() - before;
}

TEST_CASE("a wave whose rows have all died is stopped, and the rest of the call goes on") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {.rows_max = 8});
    Call want{*backend, 16, 1};
    (void)launches_of(*backend, want, nullptr);
    const std::uint64_t whole = launches_of(*backend, want, nullptr);
    const Lazy lazy;

    const DyingRows second_half{8, 0};  // dead before their wave begins
    CancelToken cancel;
    cancel.watch_rows(&second_half);
    Call got{*backend, 16, 1};
    CHECK(launches_of(*backend, got, &cancel) == whole / 2);
    for (std::size_t r = 0; r < 8; ++r) CHECK(got.tokens[r] == want.tokens[r]);

    const DyingRows one_lives{1, 0};
    cancel.watch_rows(&one_lives);
    Call alive{*backend, 8, 1};
    CHECK(launches_of(*backend, alive, &cancel) == whole / 2);
    CHECK(alive.tokens[0] == want.tokens[0]);
}

/// A sequence's keys, as they are in the cache.
std::vector<std::byte> keys_of(const Backend& backend, std::span<const KvSlot> slots) {
    std::vector<std::byte> all;
    std::vector<std::byte> one(backend.kv_bytes());
    for (const KvSlot slot : slots) {
        backend.read_kv(slot, one);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

/// Cancels the call when it is asked for the fifth time; its rows live.
class Cancels final : public CancelToken::RowWatch {
public:
    explicit Cancels(CancelToken& token) : token_{token} {}
    [[nodiscard]] bool dead(std::size_t /*row*/) const override {
        if (++asked_ == 5) token_.cancel();
        return false;
    }

private:
    CancelToken& token_;
    mutable int asked_ = 0;
};

TEST_CASE("what a stopped wave has not computed yet it does not compute any more") {
    const ModelFile file = open_fixture("llama-f32");
    for (const bool graphs : {false, true}) {
        const auto backend = make_cuda(file, {.graphs = graphs});
        const Lazy lazy;
        Call want{*backend, 8, 1};
        for (int round = 0; round < 3; ++round) (void)launches_of(*backend, want, nullptr);
        const std::vector<std::byte> keys = keys_of(*backend, want.slots);
        for (const bool cancelled : {false, true}) {
            // Another text in the same slots: its keys would replace the old ones layer by layer.
            Call call{*backend, 8, 1};
            for (Row& row : call.rows) row.token += 7;
            call.tokens.assign(8, TokenId{-5});
            CancelToken cancel;
            const DyingRows all_die{0, 4};  // with their tables sent, and two kernels begun
            const Cancels cancels{cancel};
            cancel.watch_rows(&all_die);
            if (cancelled) cancel.watch_rows(&cancels);
            CHECK(backend->run_and_draw(call.rows, {}, {call.jobs}, call.tokens, &cancel) ==
                  (cancelled ? RunOutcome::Cancelled : RunOutcome::Done));
            CHECK(call.tokens == std::vector<std::optional<TokenId>>(8, TokenId{-5}));
            CHECK(keys_of(*backend, want.slots) == keys);
        }
        Call again{*backend, 8, 1};
        (void)launches_of(*backend, again, nullptr);
        CHECK(again.tokens == want.tokens);
        CHECK(keys_of(*backend, want.slots) == keys);
    }
}

}  // namespace
}  // namespace paceline
