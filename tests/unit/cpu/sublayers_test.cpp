#include <atomic>
#include <thread>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("segments chained in any split of the layers give the bits of the whole model") {
    std::mt19937 rng{51};
    const ModelFile file = open_fixture("llama-q4_1");
    const int layers = file.config().layers;
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 50);
    const auto whole = make_backend(file, {});
    const std::vector<float> want = sequence_logits(*whole, tokens, 16);
    for (int cut = 1; cut < layers; ++cut) {
        const auto first = make_backend(file, {.last_layer = cut, .threads = 2});
        const auto second = make_backend(file, {.first_layer = cut});
        Backend* segments[] = {first.get(), second.get()};
        CHECK(same_bits(sequence_logits(segments, tokens, 9, home_slots(tokens.size())), want));
    }
}

TEST_CASE(
    "rows that start, stop and skip at different sub-layers agree with the reference backend") {
    std::mt19937 rng{52};
    for (const char* fixture : {"llama-f32", "qwen3-bf16"}) {
        const ModelFile file = open_fixture(fixture);
        const ModelConfig& config = file.config();
        const auto dim = static_cast<std::size_t>(config.dim);
        const auto fast =
            make_backend(file, {.dtype = Dtype::F32, .kv = KvType::F32, .threads = 2});
        ReferenceBackend plain{file, {.kv_slots = 1024, .kv_type = KvType::F32}};
        const std::vector<TokenId> prefix = random_tokens(rng, config.vocab_size, 20);
        const std::vector<KvSlot> slots = home_slots(64);
        (void)sequence_logits(*fast, prefix, 8);
        (void)sequence_logits(plain, prefix, 8);

        SublayerMask mask;
        mask.skip(1);
        mask.skip(2);
        const KvSlot own_slots[] = {20, 33, 50, 21, 64, 99};
        std::vector<std::vector<float>> stacks[2];
        std::vector<float> hidden[2];
        for (int b = 0; b < 2; ++b) {
            std::vector<Row> rows;
            for (int i = 0; i < 6; ++i) {
                // Six continuations of the prefix, side by side: a row that starts late writes no
                // keys in the layers before, so nobody else may look there.
                Row row;
                row.token = 7 + i;
                row.position = 20;
                row.slot = own_slots[i];
                row.prefix_slots = slots.data();
                row.prefix_count = 20;
                row.path_slots = own_slots + i;
                row.path_count = 1;
                row.first = i % 3;  // 0: embedded; 1, 2: from a given hidden state
                row.last = config.sublayers() - i % 2;
                if (i >= 3) row.mask = &mask;
                stacks[b].emplace_back(static_cast<std::size_t>(row.last - row.first) * dim);
                rows.push_back(row);
            }
            for (std::size_t i = 0; i < rows.size(); ++i) rows[i].stack = stacks[b][i].data();
            hidden[b].resize(rows.size() * dim);
            for (std::size_t i = 0; i < hidden[b].size(); ++i)
                hidden[b][i] = 0.1f * static_cast<float>(i % 13) - 0.6f;
            Backend& backend = b == 0 ? static_cast<Backend&>(*fast) : plain;
            REQUIRE(backend.run_layers(rows, hidden[b], nullptr) == RunOutcome::Done);
        }
        CAPTURE(fixture);
        CHECK(deviation(hidden[0], hidden[1], config.dim).relative < 1e-4);
        for (std::size_t i = 0; i < 6; ++i)
            CHECK(deviation(stacks[0][i], stacks[1][i], config.dim).relative < 1e-4);
    }
}

TEST_CASE("the stack's last entry is the hidden state that comes out") {
    const ModelFile file = open_fixture("llama-q4_1");
    const ModelConfig& config = file.config();
    const auto dim = static_cast<std::size_t>(config.dim);
    for (const int threads : {1, 2}) {
        const auto backend = make_backend(file, {.threads = threads});
        const std::vector<KvSlot> slots = home_slots(8);
        std::vector<float> stack(static_cast<std::size_t>(config.sublayers()) * dim);
        std::vector<Row> rows;
        for (Position p = 0; p < 3; ++p) rows.push_back(sequence_row(*backend, 5 + p, p, slots));
        rows[1].stack = stack.data();
        std::vector<float> hidden(rows.size() * dim);
        REQUIRE(backend->run_layers(rows, hidden, nullptr) == RunOutcome::Done);
        CHECK(same_bits(std::span(stack).last(dim), std::span(hidden).subspan(dim, dim)));
    }
}

TEST_CASE("a cancelled call stops early, says so, and the next call is whole") {
    const ModelFile file = open_fixture("llama-q4_1");
    const ModelConfig& config = file.config();
    for (const int threads : {1, 2}) {
        const auto backend = make_backend(file, {.threads = threads});
        const std::vector<KvSlot> slots = home_slots(8);
        const std::vector<Row> rows = {sequence_row(*backend, 5, 0, slots)};
        std::vector<float> hidden(static_cast<std::size_t>(config.dim));
        CancelToken cancel;
        cancel.cancel();
        CHECK(backend->run_layers(rows, hidden, &cancel) == RunOutcome::Cancelled);
        cancel.reset();
        CHECK(backend->run_layers(rows, hidden, &cancel) == RunOutcome::Done);
        std::vector<float> again(hidden.size());
        CHECK(backend->run_layers(rows, again, nullptr) == RunOutcome::Done);
        CHECK(same_bits(hidden, again));
    }
}

TEST_CASE("a call can be cancelled from another thread at any time without a hang") {
    std::mt19937 rng{53};
    const ModelFile file = open_fixture("llama-q4_1");
    const ModelConfig& config = file.config();
    const auto backend = make_backend(file, {.threads = 3});
    const std::vector<KvSlot> slots = home_slots(64);
    std::vector<Row> rows;
    for (Position p = 0; p < 64; ++p) rows.push_back(sequence_row(*backend, p, p, slots));
    std::vector<float> hidden(rows.size() * static_cast<std::size_t>(config.dim));
    int cancelled = 0;
    for (int round = 0; round < 50; ++round) {
        CancelToken cancel;
        std::atomic<bool> started{false};
        std::thread other{[&] {
            while (!started.load()) std::this_thread::yield();
            for (int i = 0; i < 20 * round; ++i) std::this_thread::yield();
            cancel.cancel();
        }};
        started.store(true);
        if (backend->run_layers(rows, hidden, &cancel) == RunOutcome::Cancelled) ++cancelled;
        other.join();
    }
    MESSAGE("cancelled ", cancelled, " of 50 calls before they were done");
    CHECK(backend->run_layers(rows, hidden, nullptr) == RunOutcome::Done);
}

}  // namespace
}  // namespace paceline
