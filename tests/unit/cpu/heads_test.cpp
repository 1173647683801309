// Heads beside the final one: twins, row invariance, what is refused, what they weigh.
#include <cmath>
#include <limits>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A matrix near the identity, so that logits stay of a common size.
std::vector<float> random_transform(std::mt19937& rng, int dim) {
    std::normal_distribution<float> normal(0.0f, 0.05f);
    const auto n = static_cast<std::size_t>(dim);
    std::vector<float> matrix(n * n);
    for (float& x : matrix) x = normal(rng);
    for (std::size_t i = 0; i < n; ++i) matrix[i * n + i] += 1.0f;
    return matrix;
}

/// About a third of the vocabulary, with its last token.
std::vector<TokenId> random_list(std::mt19937& rng, int vocab_size) {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < vocab_size; ++t) {
        if (rng() % 3 == 0 || t == vocab_size - 1) tokens.push_back(t);
    }
    return tokens;
}

/// Every kind of head there is.
std::vector<HeadSpec> all_heads(std::mt19937& rng, const ModelConfig& config) {
    const std::vector<float> t = random_transform(rng, config.dim);
    return {{.transform = t},
            {.transform = t, .norm_first = false},
            {.tokens = random_list(rng, config.vocab_size)},
            {.transform = t, .tokens = random_list(rng, config.vocab_size)},
            {.transform = t, .tokens = {0, config.vocab_size - 1}, .norm_first = false},
            {}};
}

std::vector<float> random_hidden(std::mt19937& rng, int rows, int dim) {
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> hidden(static_cast<std::size_t>(rows) * static_cast<std::size_t>(dim));
    for (float& x : hidden) x = normal(rng);
    return hidden;
}

std::vector<float> logits_of(Backend& backend, int head, std::span<const float> hidden) {
    const int rows = static_cast<int>(hidden.size()) / backend.config().dim;
    std::vector<float> logits(static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(backend.config().vocab_size));
    backend.head(static_cast<HeadId>(head), hidden, rows, logits);
    return logits;
}

/// The largest relative error of a row's finite logits; -inf must stand at the same places.
double worst_error(std::span<const float> got, std::span<const float> want) {
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(want[i]) || std::isinf(got[i])) {
            if (want[i] != got[i]) return kInfinity;
            continue;
        }
        largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
        error = std::max(error, std::fabs(static_cast<double>(got[i]) - want[i]));
    }
    return error / largest;
}

TEST_CASE("every head of a segment in the middle agrees with the reference backend's") {
    std::mt19937 rng{61};
    const std::tuple<const char*, Dtype, double> settings[] = {
        {"llama-f32", Dtype::F32, 1e-5},         {"llama-f32", Dtype::BF16, 2e-2},
        {"llama-q4_1", Dtype::Auto, 3e-2},       {"llama-untied-f16", Dtype::Auto, 2e-2},
        {"llama-untied-f16", Dtype::Int8, 5e-2},
    };
    for (const auto& [fixture, dtype, tolerance] : settings) {
        const ModelFile file = open_fixture(fixture);
        const std::vector<HeadSpec> heads = all_heads(rng, file.config());
        for (const int first : {0, 1}) {
            const auto fast = make_backend(file, {.dtype = dtype,
                                                  .first_layer = first,
                                                  .last_layer = first + 1,
                                                  .threads = 2,
                                                  .final_head = true,
                                                  .heads = heads});
            ReferenceBackend plain{file,
                                   {.first_layer = first,
                                    .last_layer = first + 1,
                                    .kv_slots = 32,
                                    .final_head = true,
                                    .heads = heads}};
            const std::vector<float> hidden = random_hidden(rng, 3, file.config().dim);
            for (int head = 0; head <= static_cast<int>(heads.size()); ++head) {
                CAPTURE(fixture);
                CAPTURE(head);
                REQUIRE(fast->has_head(static_cast<HeadId>(head)));
                CHECK(worst_error(logits_of(*fast, head, hidden), logits_of(plain, head, hidden)) <
                      tolerance);
            }
        }
    }
}

TEST_CASE("a row's logits have the same bits alone, among 64 rows and on three threads") {
    std::mt19937 rng{62};
    const std::pair<const char*, Dtype> settings[] = {{"llama-q4_1", Dtype::Auto},
                                                      {"llama-untied-f16", Dtype::Auto},
                                                      {"llama-f32", Dtype::F32},
                                                      {"mistral-q8_0", Dtype::Int8}};
    for (const auto& [fixture, dtype] : settings) {
        const ModelFile file = open_fixture(fixture);
        const std::vector<HeadSpec> heads = all_heads(rng, file.config());
        const std::vector<float> hidden = random_hidden(rng, 64, file.config().dim);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
        for (const Isa isa : runnable_isas()) {
            CpuOptions options{
                .dtype = dtype, .last_layer = 1, .isa = isa, .final_head = true, .heads = heads};
            const auto alone = make_backend(file, options);
            for (int head = 0; head <= static_cast<int>(heads.size()); ++head) {
                std::vector<float> want;
                for (std::size_t r = 0; r < 64; ++r) {
                    const std::vector<float> row =
                        logits_of(*alone, head, std::span(hidden).subspan(r * dim, dim));
                    want.insert(want.end(), row.begin(), row.end());
                }
                for (const int threads : {1, 2, 3}) {
                    options.threads = threads;
                    options.rows_max = threads == 2 ? 5 : 64;
                    const auto together = make_backend(file, options);
                    for (const std::size_t rows :
                         {std::size_t{3}, std::size_t{8}, std::size_t{64}}) {
                        CAPTURE(fixture);
                        CAPTURE(head);
                        CAPTURE(threads);
                        CAPTURE(rows);
                        CHECK(same_bits(
                            logits_of(*together, head, std::span(hidden).first(rows * dim)),
                            std::span(want).first(rows * vocab)));
                    }
                }
            }
        }
    }
}

TEST_CASE("a short list gives the final head's own bits for its tokens and -inf for the others") {
    std::mt19937 rng{63};
    for (const char* fixture : {"llama-q4_1", "llama-f32", "llama-q4_0", "mistral-q8_0"}) {
        const ModelFile file = open_fixture(fixture);
        const std::vector<TokenId> tokens = random_list(rng, file.config().vocab_size);
        const auto backend = make_backend(file, {.threads = 2, .heads = {{.tokens = tokens}}});
        const std::vector<float> hidden = random_hidden(rng, 5, file.config().dim);
        const std::vector<float> all = logits_of(*backend, 0, hidden);
        std::vector<float> want(all.size(), -kInfinity);
        for (std::size_t row = 0; row < all.size();
             row += static_cast<std::size_t>(file.config().vocab_size)) {
            for (const TokenId t : tokens)
                want[row + static_cast<std::size_t>(t)] = all[row + static_cast<std::size_t>(t)];
        }
        CHECK(same_bits(logits_of(*backend, 1, hidden), want));
    }
}

TEST_CASE("the heads that a segment has are those it was given") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto middle = make_backend(file, {.last_layer = 1});
    CHECK_FALSE(middle->has_head(HeadId::Final));
    const auto lens = make_backend(file, {.last_layer = 1, .final_head = true});
    CHECK(lens->has_head(HeadId::Final));
    CHECK_FALSE(lens->has_head(static_cast<HeadId>(1)));
    const auto short_list = make_backend(file, {.last_layer = 1, .heads = {{.tokens = {1, 5}}}});
    CHECK_FALSE(short_list->has_head(HeadId::Final));
    CHECK(short_list->has_head(static_cast<HeadId>(1)));
    CHECK_FALSE(short_list->has_head(static_cast<HeadId>(2)));
    CHECK(middle->equality_class() == lens->equality_class());
    CHECK(middle->equality_class() == short_list->equality_class());
}

TEST_CASE("hidden states of a segment do not depend on the heads it has") {
    std::mt19937 rng{64};
    const ModelFile file = open_fixture("llama-untied-f16");
    const auto bare = make_backend(file, {.last_layer = 1});
    const auto with = make_backend(
        file, {.last_layer = 1, .final_head = true, .heads = all_heads(rng, file.config())});
    const std::vector<KvSlot> slots = home_slots(9);
    std::vector<Row> rows;
    for (Position p = 0; p < 9; ++p) rows.push_back(sequence_row(*bare, 3 + p, p, slots));
    std::vector<float> hidden[2];
    for (int b = 0; b < 2; ++b) {
        hidden[b].resize(rows.size() * static_cast<std::size_t>(file.config().dim));
        Backend& backend = b == 0 ? *bare : *with;
        REQUIRE(backend.run_layers(rows, hidden[b], nullptr) == RunOutcome::Done);
    }
    CHECK(same_bits(hidden[0], hidden[1]));
}

TEST_CASE("planned bytes of a segment count its heads") {
    std::mt19937 rng{65};
    for (const char* fixture : {"llama-q4_1", "llama-untied-f16", "llama-f32"}) {
        const ModelFile file = open_fixture(fixture);
        std::uint64_t before = 0;
        const std::vector<std::vector<HeadSpec>> lists = {
            {}, {{.tokens = {3, 4, 8}}}, all_heads(rng, file.config())};
        for (const std::vector<HeadSpec>& heads : lists) {
            CpuOptions options{.last_layer = 1, .heads = heads};
            const auto backend = make_backend(file, options);
            const std::uint64_t bytes = backend->memory_use().weight_bytes;
            CHECK(bytes == packed_bytes(file, options));
            CHECK(bytes > before);
            before = bytes;
        }
    }
}

TEST_CASE("heads that make no sense are refused with field and value in the text") {
    const ModelFile file = open_fixture("llama-q4_1");
    const int vocab = file.config().vocab_size;
    const auto refused = [&](HeadSpec spec) {
        const auto backend =
            make_cpu_backend(file, {.kv_slots = 32, .heads = {HeadSpec{}, std::move(spec)}});
        REQUIRE_FALSE(backend.ok());
        CHECK(backend.error().code == Errc::BadArgument);
        return backend.error().what;
    };
    const auto has = [](const std::string& text, const std::string& part) {
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    has(refused({.transform = {1.0f, 2.0f}}), "heads[1].transform has 2 numbers");
    has(refused({.tokens = {4, -1}}), "heads[1].tokens[1] = -1");
    has(refused({.tokens = {vocab}}), "heads[1].tokens[0] = " + std::to_string(vocab));
    has(refused({.tokens = {4, 4}}), "heads[1].tokens[1] = 4, must be above");
    has(refused({.tokens = {9, 4}}), "heads[1].tokens[1] = 4, must be above the one before it (9)");
    std::vector<float> broken(static_cast<std::size_t>(file.config().dim) *
                              static_cast<std::size_t>(file.config().dim));
    broken[7] = std::nanf("");
    has(refused({.transform = broken}), "heads[1].transform[7] is not a finite number");
}

}  // namespace
}  // namespace paceline
