// Batches that are stopped while the device computes them: cancelled at a poll, cancelled by
// another thread, left by all of their rows.
//
// The evidence is the cache. A batch runs over the keys of another text, and each of its layers
// replaces them: after a stop layers below the cut have the keys of an uncancelled run, layers
// above it the old ones. On a GPU some blocks of the kernel that runs when the stop arrives have
// read the row count before and some read it after, so the layer at the cut may be mixed there
// (backend.hpp: nothing may read it).
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "model/cuda/cuda_unsupported.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "tests/unit/cuda/one_go_call.hpp"
#include "tests/unit/cuda/stop_watches.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using Clock = std::chrono::steady_clock;

#ifdef PACELINE_EMULATED_DEVICE
constexpr bool kEmulated = true;
constexpr const char* kShape =
    "layers = 4\ndim = 64\nheads = 4\nkv_heads = 2\nffn_dim = 96\nvocab_size = 256\n";
constexpr int kManyRows = 70;
constexpr int kParts = 6;  // of a batch's polls or time; one attempt stops at the begin of each
#else
// A layer has 285 MB of weights, which take 60 us to read at 4.8 TB/s; its six launches take the
// host some 20 us (3 us each, an estimate). So most of a batch of 2 ms is still to come when the
// host begins to poll.
constexpr bool kEmulated = false;
constexpr const char* kShape =
    "layers = 32\ndim = 4096\nheads = 32\nkv_heads = 8\nffn_dim = 8192\nvocab_size = 1024\n";
constexpr int kManyRows = 200;
constexpr int kParts = 12;
#endif
constexpr int kRoundsMax = 20;  // a busy host may be late in all attempts of a round

/// Counts the polls of a batch; at one of them acts, and may declare all rows stale from then on.
class Polls final : public CancelToken::RowWatch {
public:
    Polls() = default;
    Polls(int at, std::function<void()> act, bool kills)
        : at_{at}, act_{std::move(act)}, kills_{kills} {}
    [[nodiscard]] bool stale(std::size_t row) const override {
        if (row == 0 && ++count_ == at_) act_();
        return kills_ && count_ >= at_;
    }
    [[nodiscard]] int count() const { return count_; }
    [[nodiscard]] bool acted() const { return at_ > 0 && count_ >= at_; }

private:
    int at_ = 0;
    std::function<void()> act_;
    bool kills_ = false;
    mutable int count_ = 0;
};

enum class Through : std::uint8_t { Layers, Draws };

/// A backend on synthetic weights, a text, and what an uncancelled call over another text's keys
/// leaves.
class Batch {
public:
    Batch(CudaBackend& backend, int rows, Through through)
        : backend_{backend}, through_{through}, call_{backend, rows, 1} {
        Text before{backend, rows, 8};
        REQUIRE(before.run(backend) == RunOutcome::Done);
        old_keys_ = kv_of(backend, call_.slots);
        // Launched, recorded, replayed: the last one is what is to be stopped.
        for (int round = 0; round < 3; ++round) {
            const Polls polls;
            CancelToken token;
            token.watch_rows(&polls);
            const auto begin = Clock::now();
            REQUIRE(run(token) == RunOutcome::Done);
            time_ = Clock::now() - begin;
            polls_ = polls.count();
        }
        new_keys_ = kv_of(backend, call_.slots);
        want_ = call_.hidden;
        want_tokens_ = call_.tokens;
        for (std::size_t layer = 0; layer < layers(); ++layer) {
            for (std::size_t r = 0; r < old_keys_.size(); ++r)
                REQUIRE_FALSE(equal(old_keys_[r], new_keys_[r], layer));
        }
    }

    [[nodiscard]] int polls() const { return polls_; }
    [[nodiscard]] Clock::duration time() const { return time_; }

    /// Puts the other text's keys back, and marks what a call that ends gives.
    void prepare() {
        for (std::size_t r = 0; r < old_keys_.size(); ++r)
            backend_.write_kv(call_.slots[r], old_keys_[r]);
        call_.tokens.assign(call_.tokens.size(), TokenId{-5});
    }

    [[nodiscard]] RunOutcome run(const CancelToken& token) {
        if (through_ == Through::Layers)
            return backend_.run_layers(call_.rows, call_.hidden, &token);
        return backend_.run_and_draw(call_.rows, {}, {call_.jobs}, call_.tokens, &token);
    }

    /// Of a call that was stopped: checks its keys and tokens. Whether it was cut strictly in the
    /// middle.
    [[nodiscard]] bool check_stopped() const {
        // Heads take 64 rows at a time: those of the first rows may have ended before the stop.
        for (std::size_t r = 0; r < call_.tokens.size(); ++r) {
            const bool drawn = call_.tokens.size() > cuda::kBatchRows &&
                               r < static_cast<std::size_t>(cuda::kBatchRows) &&
                               call_.tokens[r] == want_tokens_[r];
            CHECK((drawn || call_.tokens[r] == TokenId{-5}));
        }
        const auto keys = kv_of(backend_, call_.slots);
        std::size_t layer = 0;
        while (layer < layers() && all_equal(keys, new_keys_, layer)) ++layer;
        const std::size_t whole = layer;
        const bool mixed = layer < layers() && !all_equal(keys, old_keys_, layer);
        if (kEmulated) CHECK_FALSE(mixed);  // there a kernel runs whole or not at all
        if (mixed) ++layer;
        const std::size_t untouched = layer;
        for (; layer < layers(); ++layer) {
            CAPTURE(layer);
            CHECK(all_equal(keys, old_keys_, layer));
        }
        return whole > 0 && untouched < layers();
    }

    /// Of a call that ran to its end.
    void check_whole() const {
        CHECK(kv_of(backend_, call_.slots) == new_keys_);
        if (through_ == Through::Layers) CHECK(same_bits(call_.hidden, want_));
        if (through_ == Through::Draws) CHECK(call_.tokens == want_tokens_);
    }

    void check_next_call() {
        const CancelToken token;
        REQUIRE(run(token) == RunOutcome::Done);
        check_whole();
    }

private:
    using Keys = std::vector<std::vector<std::byte>>;

    [[nodiscard]] std::size_t layers() const {
        return static_cast<std::size_t>(backend_.config().layers);
    }
    /// Whether two slots hold the same in a layer: layers lie one after the other (cuda_pages.cpp).
    [[nodiscard]] bool equal(std::span<const std::byte> a,
                             std::span<const std::byte> b,
                             std::size_t layer) const {
        const std::size_t bytes = backend_.kv_bytes() / layers();
        return std::ranges::equal(a.subspan(layer * bytes, bytes), b.subspan(layer * bytes, bytes));
    }
    [[nodiscard]] bool all_equal(const Keys& a, const Keys& b, std::size_t layer) const {
        for (std::size_t r = 0; r < a.size(); ++r) {
            if (!equal(a[r], b[r], layer)) return false;
        }
        return true;
    }

    CudaBackend& backend_;
    Through through_;
    Call call_;
    Keys old_keys_, new_keys_;
    std::vector<float> want_;
    std::vector<std::optional<TokenId>> want_tokens_;
    int polls_ = 0;
    Clock::duration time_{};
};

/// Runs `attempt(part)` for parts of a batch's length until one was cut strictly in the middle.
void until_cut_in_the_middle(Batch& batch, const std::function<bool(int)>& attempt) {
    bool cut = false;
    for (int round = 0; round < kRoundsMax && !cut; ++round) {
        for (int part = 0; part < kParts; ++part) {
            CAPTURE(part);
            batch.prepare();
            const bool in_the_middle = attempt(part);
            cut = cut || in_the_middle;
            batch.check_next_call();
        }
    }
    REQUIRE(cut);
}

/// Every kind of batch on backends with recordings and without; left out where memory is too small.
void for_each_batch(const std::function<void(Batch&)>& work) {
    const Result<ModelFile> file = random_model("cut.toml", kShape);
    REQUIRE(file.ok());
    CudaOptions options{.last_layer = file.value().config().layers, .kv_slots = 512, .random = 1};
    const std::uint64_t needed = device_bytes(options, cuda_memory(file.value(), options));
    if (const std::uint64_t free = cuda::use_device(0).free_bytes; free < needed) {
        MESSAGE("left out: needs ", needed >> 20U, " MiB of device memory, free are ", free >> 20U);
        return;
    }
    const LazyStreams lazy;
    for (const bool graphs : {false, true}) {
        CAPTURE(graphs);
        options.graphs = graphs;
        const auto backend = make_cuda(file.value(), options);
        for (const Through through : {Through::Layers, Through::Draws}) {
            for (const int rows : {8, kManyRows}) {
                if (graphs && rows > cuda::kBatchRows) continue;  // never recorded
                CAPTURE(rows);
                CAPTURE(static_cast<int>(through));
                Batch batch{*backend, rows, through};
                work(batch);
            }
        }
    }
}

/// The poll that `part` of a batch's polls stand before; the first is asked before anything is
/// launched.
int poll_of(const Batch& batch, int part) {
    return 1 + batch.polls() * part / kParts;
}

TEST_CASE(
    "a batch cancelled at a poll has new keys below the cut and old ones above, the next is "
    "whole") {
    for_each_batch([](Batch& batch) {
        until_cut_in_the_middle(batch, [&](int part) {
            CancelToken token;
            const Polls polls{poll_of(batch, part), [&] { token.cancel(); }, false};
            token.watch_rows(&polls);
            const RunOutcome outcome = batch.run(token);
            CHECK(outcome == (polls.acted() ? RunOutcome::Cancelled : RunOutcome::Done));
            if (polls.acted()) return batch.check_stopped();
            batch.check_whole();
            return false;
        });
    });
}

TEST_CASE(
    "a batch all of whose rows die is cut the same way, and is cancelled only if its token is") {
    for_each_batch([](Batch& batch) {
        until_cut_in_the_middle(batch, [&](int part) {
            const bool cancels = part % 2 == 1;  // the token as well, at the same poll
            CancelToken token;
            const auto act = [&] {
                if (cancels) token.cancel();
            };
            const Polls polls{poll_of(batch, part), act, true};
            token.watch_rows(&polls);
            const RunOutcome outcome = batch.run(token);
            CHECK(outcome == (token.cancelled() ? RunOutcome::Cancelled : RunOutcome::Done));
            if (polls.acted()) return batch.check_stopped();
            batch.check_whole();
            return false;
        });
    });
}

TEST_CASE("a batch cancelled by another thread after longer and longer delays is whole or cut") {
    for_each_batch([](Batch& batch) {
        until_cut_in_the_middle(batch, [&](int part) {
            CancelToken token;
            std::atomic<bool> asked{false};
            // The emulated device has no time: there the poll of a number waits for the other
            // thread.
            const Polls polls{poll_of(batch, part),
                              [&] {
                                  asked = true;
                                  asked.notify_one();
                                  while (kEmulated && !token.cancelled()) std::this_thread::yield();
                              },
                              false};
            token.watch_rows(&polls);
            const auto begin = Clock::now();
            std::jthread other{[&] {
                if (kEmulated) asked.wait(false);  // without taking a core from what runs beside
                while (!kEmulated && Clock::now() - begin < batch.time() * part / kParts)
                    std::this_thread::yield();
                token.cancel();
            }};
            const RunOutcome outcome = batch.run(token);
            other.join();
            if (outcome == RunOutcome::Cancelled) return batch.check_stopped();
            batch.check_whole();
            return false;
        });
    });
}

}  // namespace
}  // namespace paceline
