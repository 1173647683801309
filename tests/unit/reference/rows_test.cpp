// What rows promise: the same bits however they are grouped, wherever their keys lie, whichever
// segments they pass, and nothing from the sub-layers that they skip.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "model/reference/matmul.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/reference/rms_norm.hpp"
#include "model/weights/model_file.hpp"
#include "tests/support/parity.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::testing {
namespace {

/// A fixture and a reference over the whole of it.
struct Subject {
    explicit Subject(const std::string& name, KvType kv_type = KvType::F32)
        : golden{load_golden(fixtures(), name)},
          file{ModelFile::open(golden.model_path).value()},
          backend{file, {.kv_slots = 96, .kv_type = kv_type}} {}

    [[nodiscard]] std::size_t dim() const { return static_cast<std::size_t>(file.config().dim); }
    [[nodiscard]] int count() const { return static_cast<int>(golden.tokens.size()); }

    /// Hidden states [rows, dim] after the rows' last sub-layers.
    std::vector<float> run(const std::vector<Row>& rows) {
        std::vector<float> hidden(rows.size() * dim());
        REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
        return hidden;
    }

    /// Writes keys and values of the first `count` tokens to their home slots.
    void prefill(std::size_t count) {
        (void)sequence_logits(backend, std::span(golden.tokens).first(count), 16);
    }

    [[nodiscard]] std::vector<float> embedding(TokenId token) const {
        std::vector<float> row(dim());
        dequantize_row(file.embedding(), token, row);
        return row;
    }

    Golden golden;
    ModelFile file;
    ReferenceBackend backend;
};

/// Whether `body` ends the process by abort().
template <class Body>
bool aborts(Body body) {
    std::fflush(nullptr);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL);
        if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
        body();
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST_CASE("a chunk, single rows and waves of any size give the same bits") {
    for (const char* name : {"llama-untied-f16", "qwen2-f16", "qwen3-bf16", "mistral-q8_0"}) {
        for (const KvType kv_type : {KvType::F32, KvType::F16, KvType::BF16}) {
            CAPTURE(name);
            Subject subject(name, kv_type);
            const auto logits = [&](int wave_rows) {
                return sequence_logits(subject.backend, subject.golden.tokens, wave_rows);
            };
            const std::vector<float> whole = logits(subject.count());
            CHECK(same_bits(logits(1), whole));
            CHECK(same_bits(logits(3), whole));
            CHECK(same_bits(logits(32), whole));
        }
    }
}

TEST_CASE("keys may lie in any slots") {
    Subject subject("llama-yarn-f16");
    const std::vector<KvSlot> slots =
        scattered_slots(subject.golden.tokens.size(), subject.backend.kv_slots());
    Backend* const segments[] = {&subject.backend};
    const std::vector<float> scattered = sequence_logits(segments, subject.golden.tokens, 7, slots);
    CHECK(same_bits(scattered, sequence_logits(subject.backend, subject.golden.tokens, 7)));
}

TEST_CASE("a path after the prefix sees what a prefix table alone would") {
    Subject subject("qwen3-bf16");
    const std::vector<float> expected =
        sequence_logits(subject.backend, std::span(subject.golden.tokens).first(12), 12);
    const int vocab_size = subject.golden.vocab_size;

    // The same tokens again: ten as the prefix, the last two as a path in far slots.
    const std::vector<KvSlot> prefix = home_slots(10);
    const std::array<KvSlot, 2> path{70, 33};
    std::vector<Row> rows(2);
    for (std::size_t i = 0; i < 2; ++i) {
        rows[i] = {.token = subject.golden.tokens[10 + i],
                   .position = static_cast<Position>(10 + i),
                   .slot = path[i],
                   .prefix_slots = prefix.data(),
                   .prefix_count = 10,
                   .path_slots = path.data(),
                   .path_count = static_cast<std::int32_t>(i + 1),
                   .last = subject.file.config().sublayers()};
    }
    const std::vector<float> hidden = subject.run(rows);
    std::vector<float> logits(2 * static_cast<std::size_t>(vocab_size));
    subject.backend.head(HeadId::Final, hidden, 2, logits);
    CHECK(
        same_bits(logits, std::span(expected).subspan(10 * static_cast<std::size_t>(vocab_size))));
}

// root (position 4) with two children (5), of which the second has a child (6): each branch must
// come out as if it had been decoded alone.
TEST_CASE("branches of a tree do not see each other") {
    Subject subject("llama3-bf16");
    const std::array<TokenId, 4> tokens{17, 200, 9, 301};  // root, child a, child b, child of b
    const std::array<KvSlot, 1> to_root{4};
    const std::array<KvSlot, 2> to_a{4, 60};
    const std::array<KvSlot, 3> to_b_child{4, 61, 90};
    const std::vector<KvSlot> prefix = home_slots(4);
    subject.prefill(4);

    const auto node = [&](std::size_t token, std::span<const KvSlot> path) {
        return Row{.token = tokens[token],
                   .position = 3 + static_cast<Position>(path.size()),
                   .slot = path.back(),
                   .prefix_slots = prefix.data(),
                   .prefix_count = 4,
                   .path_slots = path.data(),
                   .path_count = static_cast<std::int32_t>(path.size()),
                   .last = subject.file.config().sublayers()};
    };
    const std::vector<float> tree =
        subject.run({node(0, to_root), node(1, to_a), node(2, std::span(to_b_child).first(2)),
                     node(3, to_b_child)});

    const auto alone = [&](std::vector<TokenId> branch) {
        std::vector<TokenId> sequence(subject.golden.tokens.begin(),
                                      subject.golden.tokens.begin() + 4);
        sequence.insert(sequence.end(), branch.begin(), branch.end());
        const std::vector<KvSlot> slots = home_slots(sequence.size());
        std::vector<Row> rows;
        for (std::size_t p = 0; p < sequence.size(); ++p) {
            rows.push_back(
                sequence_row(subject.backend, sequence[p], static_cast<Position>(p), slots));
        }
        const std::vector<float> hidden = subject.run(rows);
        return std::vector<float>(hidden.end() - static_cast<std::ptrdiff_t>(subject.dim()),
                                  hidden.end());
    };
    const auto of_tree = [&](std::size_t row) {
        return std::span(tree).subspan(row * subject.dim(), subject.dim());
    };
    CHECK(same_bits(of_tree(0), alone({17})));
    CHECK(same_bits(of_tree(1), alone({17, 200})));
    CHECK(same_bits(of_tree(2), alone({17, 9})));
    CHECK(same_bits(of_tree(3), alone({17, 9, 301})));
}

TEST_CASE("a chain of segments is the whole model") {
    Subject subject("llama-untied-f16");  // three layers
    for (const KvType kv_type : {KvType::F32, KvType::BF16}) {
        ReferenceBackend whole(subject.file, {.kv_slots = 64, .kv_type = kv_type});
        ReferenceBackend front(subject.file, {.last_layer = 1, .kv_slots = 64, .kv_type = kv_type});
        ReferenceBackend back(subject.file, {.first_layer = 1, .kv_slots = 64, .kv_type = kv_type});
        CHECK(back.last_layer() == 3);
        CHECK(front.memory_use().weight_bytes < whole.memory_use().weight_bytes);
        Backend* const segments[] = {&front, &back};
        const std::vector<KvSlot> slots = home_slots(subject.golden.tokens.size());
        CHECK(same_bits(sequence_logits(segments, subject.golden.tokens, 5, slots),
                        sequence_logits(whole, subject.golden.tokens, 5)));
    }
}

TEST_CASE("a row may stop at any sub-layer and go on from there in a later call") {
    Subject subject("qwen2-f16");
    const std::vector<KvSlot> slots = home_slots(6);
    std::vector<Row> rows;
    for (Position p = 0; p < 6; ++p) {
        rows.push_back(sequence_row(subject.backend,
                                    subject.golden.tokens[static_cast<std::size_t>(p)], p, slots));
    }
    const std::vector<float> whole = subject.run(rows);
    const int end = subject.file.config().sublayers();
    for (int stop = 0; stop <= end; ++stop) {
        CAPTURE(stop);
        for (Row& row : rows) row.first = 0, row.last = stop;
        std::vector<float> hidden = subject.run(rows);
        for (Row& row : rows) row.first = stop, row.last = end;
        REQUIRE(subject.backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
        CHECK(same_bits(hidden, whole));
    }
}

TEST_CASE("rows of one call may start and stop at different sub-layers") {
    Subject subject("llama-f32");
    subject.prefill(10);
    const std::vector<KvSlot> slots = home_slots(12);
    const Row deep = sequence_row(subject.backend, 7, 10, slots);
    const std::vector<float> expected = subject.run({deep});

    Row begun = deep;
    begun.last = 1;
    std::vector<float> hidden = subject.run({begun});
    hidden.resize(2 * subject.dim());
    Row resumed = deep;
    resumed.first = 1;
    Row fresh = sequence_row(subject.backend, 8, 11, slots);
    fresh.last = 2;
    REQUIRE(subject.backend.run_layers(std::array{resumed, fresh}, hidden, nullptr) ==
            RunOutcome::Done);
    CHECK(same_bits(std::span(hidden).first(subject.dim()), expected));
    const std::vector<float> shallow = subject.run({fresh});
    CHECK(same_bits(std::span(hidden).subspan(subject.dim()), shallow));
}

TEST_CASE("a row that skips everything keeps its embedding and writes no keys") {
    Subject subject("llama-q4_1");
    const std::vector<float> before = sequence_logits(subject.backend, subject.golden.tokens, 40);
    SublayerMask nothing;
    for (int s = 0; s < subject.file.config().sublayers(); ++s) nothing.skip(s);
    const std::vector<KvSlot> slots = home_slots(40);
    Row skipping = sequence_row(subject.backend, 5, 20, slots);
    skipping.mask = &nothing;
    CHECK(same_bits(subject.run({skipping}), subject.embedding(5)));

    // Position 20's keys are still those of the sequence: its successor comes out as before.
    const std::vector<float> hidden =
        subject.run({sequence_row(subject.backend, subject.golden.tokens[39], 39, slots)});
    std::vector<float> logits(static_cast<std::size_t>(subject.golden.vocab_size));
    subject.backend.head(HeadId::Final, hidden, 1, logits);
    CHECK(same_bits(logits, std::span(before).last(logits.size())));
}

TEST_CASE("the mask belongs to the row, and its stack shows the residual after each sub-layer") {
    Subject subject("qwen3-bf16");
    subject.prefill(5);
    const std::vector<KvSlot> prefix = home_slots(5);
    const std::array<KvSlot, 2> own{50, 51};
    SublayerMask mask;
    mask.skip(1);
    mask.skip(2);
    std::vector<float> full_stack(4 * subject.dim());
    std::vector<float> masked_stack(4 * subject.dim());
    Row full{.token = 3,
             .position = 5,
             .slot = 50,
             .prefix_slots = prefix.data(),
             .prefix_count = 5,
             .path_slots = own.data(),
             .path_count = 1,
             .last = 4,
             .stack = full_stack.data()};
    Row masked = full;
    masked.slot = own[1];
    masked.path_slots = &own[1];
    masked.mask = &mask;
    masked.stack = masked_stack.data();
    const std::vector<float> hidden = subject.run({full, masked});

    const auto after = [&](const std::vector<float>& stack, std::size_t sublayer) {
        return std::span(stack).subspan(sublayer * subject.dim(), subject.dim());
    };
    CHECK(same_bits(after(full_stack, 0), after(masked_stack, 0)));
    CHECK(!same_bits(after(full_stack, 1), after(full_stack, 0)));
    CHECK(same_bits(after(masked_stack, 1), after(masked_stack, 0)));
    CHECK(same_bits(after(masked_stack, 2), after(masked_stack, 0)));
    CHECK(!same_bits(after(masked_stack, 3), after(masked_stack, 0)));
    CHECK(same_bits(after(full_stack, 3), std::span(hidden).first(subject.dim())));
    CHECK(same_bits(after(masked_stack, 3), std::span(hidden).subspan(subject.dim())));

    // Alone, the masked row has the same bits; without its mask it has not.
    CHECK(same_bits(subject.run({masked}), std::span(hidden).subspan(subject.dim())));
    CHECK(!same_bits(std::span(hidden).first(subject.dim()),
                     std::span(hidden).subspan(subject.dim())));
}

TEST_CASE("a fresh value is rounded to the cache's type before its first use") {
    Subject subject("llama-f32", KvType::BF16);
    const LayerTensors& layer = subject.file.layer(0);
    const reference::ReferenceWeights weights(subject.file, 0, 1);
    const reference::LayerWeights& first = weights.layer(0);

    // A first token attends to itself alone: its attention is its own value, per head group.
    std::vector<float> expected = subject.embedding(42);
    std::vector<float> normed(subject.dim());
    std::vector<float> value(static_cast<std::size_t>(layer.v.rows));
    reference::rms_norm(expected, first.attn_norm, subject.file.config().norm_epsilon, normed);
    reference::matmul(first.v, normed, {}, value);
    std::vector<float> attended;
    const auto head_dim = static_cast<std::size_t>(subject.file.config().head_dim);
    for (std::size_t head = 0; head < 4; ++head) {  // four heads read two KV heads
        for (std::size_t d = 0; d < head_dim; ++d) {
            attended.push_back(bfloat_to_float(float_to_bfloat(value[head / 2 * head_dim + d])));
        }
    }
    std::vector<float> update(subject.dim());
    reference::matmul(first.attn_out, attended, {}, update);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += update[i];

    const std::vector<KvSlot> slots = home_slots(1);
    Row row = sequence_row(subject.backend, 42, 0, slots);
    row.last = 1;
    CHECK(same_bits(subject.run({row}), expected));
}

TEST_CASE("a cancelled call stops, and the next one computes as if it had never been") {
    Subject subject("llama-f32");
    const std::vector<KvSlot> slots = home_slots(1);
    const std::array rows{sequence_row(subject.backend, 1, 0, slots)};
    const std::vector<float> expected = subject.run({rows[0]});
    CancelToken cancel;
    cancel.cancel();
    std::vector<float> hidden(subject.dim());
    CHECK(subject.backend.run_layers(rows, hidden, &cancel) == RunOutcome::Cancelled);
    CHECK(!same_bits(hidden, expected));
    cancel.reset();
    CHECK(subject.backend.run_layers(rows, hidden, &cancel) == RunOutcome::Done);
    CHECK(same_bits(hidden, expected));
}

TEST_CASE("another thread can cancel a call") {
    Subject subject("llama-f32");
    const std::vector<KvSlot> slots = home_slots(1);
    const std::array rows{sequence_row(subject.backend, 1, 0, slots)};
    std::vector<float> hidden(subject.dim());
    CancelToken cancel;
    std::atomic<bool> running{false};
    std::thread canceller([&] {
        while (!running.load()) std::this_thread::yield();
        cancel.cancel();
    });
    RunOutcome outcome = RunOutcome::Done;
    for (int call = 0; call < 100'000 && outcome == RunOutcome::Done; ++call) {
        outcome = subject.backend.run_layers(rows, hidden, &cancel);
        running.store(true);
    }
    canceller.join();
    CHECK(outcome == RunOutcome::Cancelled);
}

TEST_CASE("rows that break the contract end the process") {
    Subject subject("llama-f32");
    const std::vector<KvSlot> slots = home_slots(4);
    const Row good = sequence_row(subject.backend, 1, 0, slots);
    const auto run = [&](const std::vector<Row>& rows) {
        std::vector<float> hidden(rows.size() * subject.dim());
        (void)subject.backend.run_layers(rows, hidden, nullptr);
    };
    CHECK(!aborts([&] { run({good}); }));

    Row bad = good;
    bad.token = subject.golden.vocab_size;
    CHECK(aborts([&] { run({bad}); }));
    bad = good;
    bad.slot = 1;  // its last visible key is in slot 0
    CHECK(aborts([&] { run({bad}); }));
    bad = good;
    bad.position = 1;  // sees one key too few
    CHECK(aborts([&] { run({bad}); }));
    bad = good;
    bad.last = 5;  // two layers have four sub-layers
    CHECK(aborts([&] { run({bad}); }));
    const std::array<KvSlot, 1> beyond{96};
    bad = good;
    bad.prefix_slots = beyond.data();
    bad.slot = 96;
    CHECK(aborts([&] { run({bad}); }));
    CHECK(aborts([&] { run({good, good}); }));  // both write slot 0
}

TEST_CASE("the equality class tells weights and KV type apart") {
    const Subject subject("llama-f32");
    const Subject other("llama-q4_1");
    const ReferenceBackend same(subject.file, {.kv_slots = 7});
    const ReferenceBackend narrow(subject.file, {.kv_slots = 7, .kv_type = KvType::F16});
    CHECK(same.equality_class() == subject.backend.equality_class());
    CHECK(narrow.equality_class() != subject.backend.equality_class());
    CHECK(other.backend.equality_class() != subject.backend.equality_class());
}

}  // namespace
}  // namespace paceline::testing
