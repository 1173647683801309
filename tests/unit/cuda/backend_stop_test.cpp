// Calls that are cancelled and rows that die before their batch begins: what is computed, what the
// cache holds after them, and that the next call is whole. backend_cut_test.cpp stops batches that
// are running.
#include "tests/unit/cuda/one_go_call.hpp"
#include "tests/unit/cuda/stop_watches.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("a call that is cancelled before it begins writes no key") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {});
    Text before{*backend, 30, 8};
    REQUIRE(before.run(*backend) == RunOutcome::Done);
    const auto keys = kv_of(*backend, before.slots);
    Text text{*backend, 30};
    CancelToken cancel;
    cancel.cancel();
    CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
    CHECK(kv_of(*backend, text.slots) == keys);
    CHECK(text.run(*backend) == RunOutcome::Done);
    CHECK(kv_of(*backend, text.slots) != keys);
}

TEST_CASE(
    "a call that is cancelled between two batches computes none after, and the next is whole") {
    const ModelFile file = open_fixture("llama-q4_1");
    for (const auto& [rows_max, count] : {std::pair{2, 120}, {70, 200}}) {
        CAPTURE(rows_max);
        const auto backend = make_cuda(file, {.rows_max = rows_max});
        Text want{*backend, count};
        REQUIRE(want.run(*backend) == RunOutcome::Done);
        const auto new_keys = kv_of(*backend, want.slots);
        Text before{*backend, count, 8};
        REQUIRE(before.run(*backend) == RunOutcome::Done);
        const auto old_keys = kv_of(*backend, before.slots);
        Text text{*backend, count};
        CancelToken cancel;
        const CancelsAtRow watch{cancel, static_cast<std::size_t>(count / 2)};
        cancel.watch_rows(&watch);
        CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
        const auto keys = kv_of(*backend, text.slots);
        REQUIRE(watch.at() >= static_cast<std::size_t>(count / 2));
        for (std::size_t r = 0; r < keys.size(); ++r) {
            REQUIRE(new_keys[r] != old_keys[r]);
            CHECK(keys[r] == (r < watch.at() ? new_keys[r] : old_keys[r]));
        }
        Text again{*backend, count};
        CHECK(again.run(*backend) == RunOutcome::Done);
        CHECK(same_bits(again.hidden, want.hidden));
        CHECK(kv_of(*backend, again.slots) == new_keys);
    }
}

TEST_CASE("rows that nothing is drawn after keep the token that stood there") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {});
    Call call{*backend, 4, 1};
    for (DrawJob& job : call.jobs) job.params = nullptr;
    call.tokens.assign(4, TokenId{77});
    REQUIRE(backend->run_and_draw(call.rows, {}, {call.jobs}, call.tokens, nullptr) ==
            RunOutcome::Done);
    CHECK(call.tokens == std::vector<std::optional<TokenId>>(4, TokenId{77}));
}

/// A call of 16 rows in two batches of 8, with `watch` or without, over the keys of another text.
struct TwoBatches {
    Call call;
    std::vector<std::vector<std::byte>> keys;

    TwoBatches(CudaBackend& backend, const CancelToken::RowWatch* watch) : call{backend, 16, 1} {
        Text before{backend, 16, 8};
        REQUIRE(before.run(backend) == RunOutcome::Done);
        call.tokens.assign(16, TokenId{-5});
        CancelToken cancel;
        cancel.watch_rows(watch);
        CHECK(backend.run_and_draw(call.rows, {}, {call.jobs}, call.tokens, &cancel) ==
              RunOutcome::Done);
        keys = kv_of(backend, call.slots);
    }
};

TEST_CASE("a batch whose rows are all stale is not computed, and the rest of the call is") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {.rows_max = 8});
    Text before{*backend, 16, 8};
    REQUIRE(before.run(*backend) == RunOutcome::Done);
    const auto old_keys = kv_of(*backend, before.slots);
    const TwoBatches want{*backend, nullptr};
    const LazyStreams lazy;
    const DeadRows second_batch{8};
    const TwoBatches half{*backend, &second_batch};
    for (std::size_t r = 0; r < 16; ++r) {
        REQUIRE(want.keys[r] != old_keys[r]);
        CHECK(half.keys[r] == (r < 8 ? want.keys[r] : old_keys[r]));
        CHECK(half.call.tokens[r] == (r < 8 ? want.call.tokens[r] : TokenId{-5}));
    }
    const TwoBatches again{*backend, nullptr};
    CHECK(again.keys == want.keys);
    CHECK(again.call.tokens == want.call.tokens);
}

TEST_CASE("a batch with one live row is computed, stale rows beside it or not") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {.rows_max = 8});
    const TwoBatches want{*backend, nullptr};
    const LazyStreams lazy;
    const DeadRows all_but_nine{9};
    const TwoBatches alive{*backend, &all_but_nine};
    for (std::size_t r = 0; r < 9; ++r) {
        CHECK(alive.keys[r] == want.keys[r]);
        CHECK(alive.call.tokens[r] == want.call.tokens[r]);
    }
}

}  // namespace
}  // namespace paceline
