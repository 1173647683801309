// Groups of emulated devices: a small model whose parts are unequal, and what a backend answers.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "model/weights/synthetic/synthetic_model.hpp"
#include "tests/unit/backend/kv_suite.hpp"
#include "tests/unit/backend/row_suite.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/one_go_call.hpp"

namespace paceline::testing {

inline constexpr int kDevices = 8;
inline constexpr Position kTextRows = 20;

/// Eight devices; one again at the end.
class EightDevices {
public:
    /// `peers`: they can reach each other's memory.
    explicit EightDevices(bool peers = true) {
        cuda::emulated::set_devices(kDevices);
        cuda::emulated::set_peers_possible(peers);
    }
    ~EightDevices() {
        cuda::emulated::set_ahead(-1);
        cuda::emulated::set_peers_possible(true);
        cuda::emulated::set_devices(1);
    }
    EightDevices(const EightDevices&) = delete;
    EightDevices& operator=(const EightDevices&) = delete;
};

inline CudaOptions on_devices(CudaOptions options, int count) {
    for (int device = 1; device < count; ++device) options.others.push_back(device);
    return options;
}

/// 8 KV heads; 6 tiles of hidden states, 10 of an MLP and 17 of the vocabulary, the last one not
/// whole: with 8 devices some have nothing of a matrix.
inline ModelFile small_model() {
    Result<ModelFile> file =
        random_model("group.toml",
                     "layers = 3\ndim = 96\nheads = 16\nkv_heads = 8\nhead_dim = 16\n"
                     "ffn_dim = 160\nvocab_size = 261\n");
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string{} : file.error().what));
    return std::move(file).value();
}

/// What a backend answers.
struct Answers {
    std::vector<float> numbers;  // states and logits
    std::vector<std::vector<std::byte>> kv;
    std::vector<std::optional<TokenId>> tokens;
    std::vector<TokenId> candidates;
};

inline void append(std::vector<float>& to, std::span<const float> numbers) {
    to.insert(to.end(), numbers.begin(), numbers.end());
}

/// A prefill, the same five rows three times (launched, recorded, replayed), a tree, and draws.
inline Answers answers_of(CudaBackend& backend) {
    std::mt19937 rng{391};
    Answers answers;
    const ModelConfig& config = backend.config();
    const std::vector<TokenId> tokens = random_tokens(rng, config.vocab_size, kTextRows);
    const std::vector<KvSlot> slots = home_slots(kTextRows);
    const std::vector<float> states = states_of(backend, text_rows(backend, tokens, slots));
    append(answers.numbers, states);
    for (int round = 0; round < 3; ++round)
        append(answers.numbers,
               states_of(backend, text_rows(backend, tokens, slots, kTextRows - 5)));
    const std::vector<KvSlot> beyond = slots_beyond(rng, backend, kTextRows);
    const std::vector<Node> nodes = random_tree(rng, config.vocab_size, 9, beyond);
    append(answers.numbers, states_of(backend, tree_rows(config, slots, nodes)));
    append(answers.numbers, logits_of(backend, HeadId::Final, states));
    answers.kv = kv_of(backend, slots);
    Call call{backend, 10, 1};
    REQUIRE(backend.run_and_draw(call.rows, call.hidden, {call.jobs, true}, call.tokens, nullptr) ==
            RunOutcome::Done);
    answers.tokens = call.tokens;
    append(answers.numbers, call.hidden);
    REQUIRE(backend.run_and_draw_candidates(HeadId::Final, call.rows, {}, {call.jobs}, call.best,
                                            nullptr) == RunOutcome::Done);
    for (const std::vector<Candidate>& best : call.best) {
        for (const Candidate& one : best) answers.candidates.push_back(one.token);
    }
    return answers;
}

inline void check_same(const Answers& got, const Answers& want) {
    CHECK(same_bits(got.numbers, want.numbers));
    CHECK(got.kv == want.kv);
    CHECK(got.tokens == want.tokens);
    CHECK(got.candidates == want.candidates);
}

}  // namespace paceline::testing
