// Tests of the reference backend alone: when a value is rounded, and that a violated precondition
// aborts. What holds of every backend is in suite_test.cpp.
#include <array>
#include <csignal>
#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "model/reference/matmul.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/reference/rms_norm.hpp"
#include "tests/unit/backend/fixture.hpp"

namespace paceline::testing {
namespace {

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

TEST_CASE("a fresh value is rounded to the cache's type before its first use") {
    const ModelFile file = open_fixture("llama-f32");
    ReferenceBackend backend{file, {.kv_slots = 32, .kv_type = KvType::BF16}};
    const LayerTensors& layer = file.layer(0);
    const reference::ReferenceWeights weights(file, 0, 1);
    const reference::LayerWeights& first = weights.layer(0);

    // A first token attends to itself alone: its attention is its own value, per head group.
    std::vector<float> expected(static_cast<std::size_t>(file.config().dim));
    dequantize_row(file.embedding(), 42, expected);
    std::vector<float> normed(expected.size());
    std::vector<float> value(static_cast<std::size_t>(layer.v.rows));
    reference::rms_norm(expected, first.attn_norm, file.config().norm_epsilon, normed);
    reference::matmul(first.v, normed, {}, value);
    std::vector<float> attended;
    const auto head_dim = static_cast<std::size_t>(file.config().head_dim);
    for (std::size_t head = 0; head < 4; ++head) {  // four heads read two KV heads
        for (std::size_t d = 0; d < head_dim; ++d) {
            attended.push_back(bfloat_to_float(float_to_bfloat(value[head / 2 * head_dim + d])));
        }
    }
    std::vector<float> update(expected.size());
    reference::matmul(first.attn_out, attended, {}, update);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += update[i];

    const std::vector<KvSlot> slots = home_slots(1);
    Row row = sequence_row(backend, 42, 0, slots);
    row.last = 1;
    CHECK(same_bits(states_of(backend, {&row, 1}), expected));
}

TEST_CASE("rows that break the contract end the process") {
    const ModelFile file = open_fixture("llama-f32");
    ReferenceBackend backend{file, {.kv_slots = 96}};
    const std::vector<KvSlot> slots = home_slots(4);
    const Row good = sequence_row(backend, 1, 0, slots);
    const auto run = [&](const std::vector<Row>& rows) {
        std::vector<float> hidden(rows.size() * static_cast<std::size_t>(file.config().dim));
        (void)backend.run_layers(rows, hidden, nullptr);
    };
    CHECK(!aborts([&] { run({good}); }));

    Row bad = good;
    bad.token = file.config().vocab_size;
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

}  // namespace
}  // namespace paceline::testing
