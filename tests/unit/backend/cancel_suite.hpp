// Cancelled calls, and rows that become stale while they run: they are dropped, and all other rows
// keep their bits.
#pragma once

#include <atomic>
#include <thread>

#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/stale_rows.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

TEST_CASE_TEMPLATE_DEFINE(
    "a call that is cancelled before it begins says so, and the next one is whole",
    Traits,
    CancelledBefore) {
    const ModelFile file = open_fixture("llama-q4_1");
    for (const int threads : {1, 2}) {
        CAPTURE(threads);
        const auto backend = Traits::make(file, {.threads = threads});
        Text want{*backend, 30};
        REQUIRE(want.run(*backend) == RunOutcome::Done);
        Text before{*backend, 30, 8};
        REQUIRE(before.run(*backend) == RunOutcome::Done);
        Text text{*backend, 30};
        CancelToken cancel;
        cancel.cancel();
        CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
        CHECK_FALSE(same_bits(text.hidden, want.hidden));
        cancel.reset();
        CHECK(text.run(*backend, &cancel) == RunOutcome::Done);
        CHECK(same_bits(text.hidden, want.hidden));
    }
}

TEST_CASE_TEMPLATE_DEFINE("a call can be cancelled from another thread at any time without a hang",
                          Traits,
                          CancelledByAnother) {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = Traits::make(file, {.threads = 3});
    Text text{*backend, 64};
    for (int round = 0; round < Traits::kCancelRounds; ++round) {
        CancelToken cancel;
        std::atomic<bool> started{false};
        std::thread other{[&] {
            while (!started.load()) std::this_thread::yield();
            for (int i = 0; i < 20 * round; ++i) std::this_thread::yield();
            cancel.cancel();
        }};
        started.store(true);
        (void)text.run(*backend, &cancel);
        other.join();
        CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
    }
    CHECK(text.run(*backend) == RunOutcome::Done);

    Text short_text{*backend, 1};
    CancelToken cancel;
    std::atomic<bool> running{false};
    std::thread other{[&] {
        while (!running.load()) std::this_thread::yield();
        cancel.cancel();
    }};
    RunOutcome outcome = RunOutcome::Done;
    for (int call = 0; call < 100'000 && outcome == RunOutcome::Done; ++call) {
        outcome = short_text.run(*backend, &cancel);
        running.store(true);
    }
    other.join();
    CHECK(outcome == RunOutcome::Cancelled);
}

/// A batch in which about half of the rows go stale, against the same batch with all of them.
template <class Traits>
void check_living(Backend& backend, std::mt19937& rng) {
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    const int count = 1 + static_cast<int>(rng() % 40);
    const StaleBatch batch(backend.config(), rng, count);
    const std::vector<float> want = states_of(backend, batch.rows);
    std::vector<int> after;
    for (int i = 0; i < count; ++i) {
        const bool goes_stale = i > 0 && rng() % 2 == 0;
        after.push_back(goes_stale ? static_cast<int>(rng() % 12) : StaleAfter::kNever);
    }
    const StaleAfter watch(after);
    CancelToken token;
    token.watch_rows(&watch);
    std::vector<float> got(want.size());
    REQUIRE(backend.run_layers(batch.rows, got, &token) == RunOutcome::Done);
    CHECK(watch.asked() >= Traits::kQuestionsMin);
    for (std::size_t r = 0; r < batch.rows.size(); ++r) {
        if (after[r] != StaleAfter::kNever) continue;
        CAPTURE(r);
        CHECK(
            same_bits(std::span(got).subspan(r * dim, dim), std::span(want).subspan(r * dim, dim)));
    }
}

TEST_CASE_TEMPLATE_DEFINE("whichever rows go stale at whichever border, the living keep their bits",
                          Traits,
                          StaleRows) {
    std::mt19937 rng{81};
    for (const char* fixture : {"llama-q4_1", "qwen3-bf16"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        for (const Build& build : Traits::kStaleBuilds) {
            CAPTURE(build.rows_max);
            CAPTURE(build.threads);
            const auto backend =
                Traits::make(file, {.rows_max = build.rows_max, .threads = build.threads});
            feed_stale_prefix(*backend, rng);
            for (int round = 0; round < Traits::kStaleRounds; ++round)
                check_living<Traits>(*backend, rng);
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE("a call all of whose rows go stale is cancelled only if its token is",
                          Traits,
                          StaleAndCancelled) {
    std::mt19937 rng{83};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = Traits::make(file, {.threads = 3});
    feed_stale_prefix(*backend, rng);
    const StaleBatch batch(file.config(), rng, 9);
    std::vector<float> hidden(batch.rows.size() * static_cast<std::size_t>(file.config().dim));
    for (int round = 0; round < 20; ++round) {
        const StaleAfter watch(std::vector<int>(9, round % 7));
        CancelToken token;
        token.watch_rows(&watch);
        if (round % 2 == 0) token.cancel();
        const RunOutcome outcome = backend->run_layers(batch.rows, hidden, &token);
        CHECK((outcome == RunOutcome::Cancelled) == (round % 2 == 0));
    }
}

}  // namespace paceline::testing
