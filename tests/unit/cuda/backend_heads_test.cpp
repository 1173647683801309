// Heads and the adapter of the CUDA backend against the reference, and their rows' bits.
#include <cmath>
#include <limits>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> normal_numbers(std::mt19937& rng, std::size_t count, float mean, float spread) {
    std::normal_distribution<float> normal(mean, spread);
    std::vector<float> numbers(count);
    for (float& x : numbers) x = normal(rng);
    return numbers;
}

std::vector<TokenId> random_list(std::mt19937& rng, int vocab_size) {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < vocab_size; ++t) {
        if (rng() % 3 == 0 || t == vocab_size - 1) tokens.push_back(t);
    }
    return tokens;
}

/// Every kind of head there is; transforms are near the identity.
std::vector<HeadSpec> all_heads(std::mt19937& rng, const ModelConfig& config) {
    const auto n = static_cast<std::size_t>(config.dim);
    std::vector<float> t = normal_numbers(rng, n * n, 0.0f, 0.05f);
    for (std::size_t i = 0; i < n; ++i) t[i * n + i] += 1.0f;
    return {{.transform = t},
            {.transform = t, .norm_first = false},
            {.tokens = random_list(rng, config.vocab_size)},
            {.transform = t, .tokens = random_list(rng, config.vocab_size)},
            {.transform = t, .tokens = {0, config.vocab_size - 1}, .norm_first = false},
            {}};
}

std::vector<float> random_hidden(std::mt19937& rng, int rows, const ModelConfig& config) {
    const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(config.dim);
    return normal_numbers(rng, count, 0.0f, 2.0f);
}

std::vector<float> logits_of(Backend& backend, HeadId head, std::span<const float> hidden) {
    const int rows = static_cast<int>(hidden.size()) / backend.config().dim;
    std::vector<float> logits(static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(backend.config().vocab_size));
    backend.head(head, hidden, rows, logits);
    return logits;
}

/// The largest error over the largest number; -inf must stand at the same places.
double worst_error(std::span<const float> got, std::span<const float> want) {
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(want[i]) || std::isinf(got[i])) {
            if (want[i] != got[i]) return static_cast<double>(kInfinity);
            continue;
        }
        if (!std::isfinite(got[i])) return static_cast<double>(kInfinity);
        largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
        error = std::max(error, std::fabs(static_cast<double>(got[i]) - want[i]));
    }
    return error / largest;
}

TEST_CASE("every head of any segment agrees with the reference backend's") {
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
            const auto backend = make_cuda(file, {.dtype = dtype,
                                                  .first_layer = first,
                                                  .last_layer = first + 1,
                                                  .final_head = true,
                                                  .heads = heads});
            ReferenceBackend plain{file,
                                   {.first_layer = first,
                                    .last_layer = first + 1,
                                    .kv_slots = 32,
                                    .final_head = true,
                                    .heads = heads}};
            const std::vector<float> hidden = random_hidden(rng, 3, file.config());
            for (int head = 0; head <= static_cast<int>(heads.size()); ++head) {
                CAPTURE(fixture);
                CAPTURE(name(dtype));
                CAPTURE(head);
                const auto id = static_cast<HeadId>(head);
                REQUIRE(backend->has_head(id));
                CHECK(worst_error(logits_of(*backend, id, hidden), logits_of(plain, id, hidden)) <
                      tolerance);
            }
        }
    }
}

TEST_CASE("a row's logits have the same bits alone, among others and in chunks") {
    std::mt19937 rng{62};
    const std::pair<const char*, Dtype> settings[] = {{"llama-q4_1", Dtype::Auto},
                                                      {"llama-untied-f16", Dtype::Auto},
                                                      {"llama-f32", Dtype::F32},
                                                      {"mistral-q8_0", Dtype::Int8}};
    for (const auto& [fixture, dtype] : settings) {
        const ModelFile file = open_fixture(fixture);
        const ModelConfig& config = file.config();
        const auto dim = static_cast<std::size_t>(config.dim);
        const auto vocab = static_cast<std::size_t>(config.vocab_size);
        CudaOptions options{
            .dtype = dtype, .last_layer = 1, .final_head = true, .heads = all_heads(rng, config)};
        const auto alone = make_cuda(file, options);
        options.rows_max = 5;
        const auto chunks = make_cuda(file, options);
        const std::vector<float> hidden = random_hidden(rng, 66, config);
        for (int head = 0; head <= static_cast<int>(options.heads.size()); ++head) {
            CAPTURE(fixture);
            CAPTURE(head);
            const auto id = static_cast<HeadId>(head);
            const std::vector<float> all = logits_of(*alone, id, hidden);
            for (std::size_t r = 0; r < 66; r += 13) {
                CHECK(same_bits(logits_of(*alone, id, std::span(hidden).subspan(r * dim, dim)),
                                std::span(all).subspan(r * vocab, vocab)));
            }
            for (const std::size_t rows : {std::size_t{8}, std::size_t{9}, std::size_t{17}}) {
                const auto part = std::span(hidden).first(rows * dim);
                CHECK(same_bits(logits_of(*alone, id, part), std::span(all).first(rows * vocab)));
                CHECK(same_bits(logits_of(*chunks, id, part), std::span(all).first(rows * vocab)));
            }
        }
    }
}

TEST_CASE("a short list gives the final head's own bits for its tokens and -inf for the others") {
    std::mt19937 rng{63};
    for (const char* fixture : {"llama-q4_1", "llama-f32", "llama-q4_0", "mistral-q8_0"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const std::vector<TokenId> tokens = random_list(rng, file.config().vocab_size);
        const auto backend = make_cuda(file, {.heads = {{.tokens = tokens}}});
        const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
        const std::vector<float> hidden = random_hidden(rng, 5, file.config());
        const std::vector<float> all = logits_of(*backend, HeadId::Final, hidden);
        std::vector<float> want(all.size(), -kInfinity);
        std::vector<float> want_listed;
        for (std::size_t row = 0; row < all.size(); row += vocab) {
            for (const TokenId t : tokens) {
                want[row + static_cast<std::size_t>(t)] = all[row + static_cast<std::size_t>(t)];
                want_listed.push_back(all[row + static_cast<std::size_t>(t)]);
            }
        }
        CHECK(same_bits(logits_of(*backend, HeadId{1}, hidden), want));
        REQUIRE(backend->short_list(HeadId{1}).size() == tokens.size());
        std::vector<float> listed(5 * tokens.size());
        backend->head_listed(HeadId{1}, hidden, 5, listed);
        CHECK(same_bits(listed, want_listed));
    }
}

TEST_CASE("the heads that a segment has are those it was given, and its layers do not change") {
    std::mt19937 rng{64};
    const ModelFile file = open_fixture("llama-untied-f16");
    const auto bare = make_cuda(file, {.last_layer = 1});
    const auto with = make_cuda(
        file, {.last_layer = 1, .final_head = true, .heads = all_heads(rng, file.config())});
    CHECK_FALSE(bare->has_head(HeadId::Final));
    CHECK_FALSE(bare->has_head(HeadId{1}));
    CHECK_FALSE(bare->has_adapter());
    CHECK(with->has_head(HeadId::Final));
    CHECK(with->has_head(HeadId{6}));
    CHECK_FALSE(with->has_head(HeadId{7}));
    CHECK(bare->equality_class() == with->equality_class());
    const std::vector<KvSlot> slots = home_slots(9);
    std::vector<Row> rows;
    for (Position p = 0; p < 9; ++p) rows.push_back(sequence_row(*bare, 3 + p, p, slots));
    std::vector<float> a(rows.size() * static_cast<std::size_t>(file.config().dim));
    std::vector<float> b(a.size());
    REQUIRE(bare->run_layers(rows, a, nullptr) == RunOutcome::Done);
    REQUIRE(with->run_layers(rows, b, nullptr) == RunOutcome::Done);
    CHECK(same_bits(a, b));
}

/// Twice as many query heads as KV heads, of which it has one more than the target.
AdapterSpec random_adapter(std::mt19937& rng, const ModelConfig& config) {
    AdapterSpec spec;
    spec.kv_heads = config.kv_heads + 1;
    spec.heads = 2 * spec.kv_heads;
    spec.head_dim = config.head_dim;
    const auto dim = static_cast<std::size_t>(config.dim);
    const auto q_dim = static_cast<std::size_t>(spec.heads * spec.head_dim);
    const auto kv_dim = static_cast<std::size_t>(spec.kv_heads * spec.head_dim);
    const float spread = 1.0f / std::sqrt(static_cast<float>(dim));
    spec.attn_norm = normal_numbers(rng, dim, 1.0f, 0.1f);
    spec.q = normal_numbers(rng, q_dim * dim, 0.0f, spread);
    spec.k = normal_numbers(rng, kv_dim * dim, 0.0f, spread);
    spec.v = normal_numbers(rng, kv_dim * dim, 0.0f, spread);
    spec.attn_out = normal_numbers(rng, dim * q_dim, 0.0f, 0.2f);
    spec.out_norm = normal_numbers(rng, dim, 1.0f, 0.1f);
    for (TokenId t = 1; t < config.vocab_size; t += 1 + static_cast<TokenId>(rng() % 4))
        spec.tokens.push_back(t);
    return spec;
}

std::vector<float> run(Backend& backend, std::span<const Row> rows, std::span<const float> hidden) {
    std::vector<float> out(hidden.size());
    REQUIRE(backend.run_adapter(rows, hidden, out, nullptr) == RunOutcome::Done);
    return out;
}

/// A text of `count` rows, then two siblings after it in scratch slots and a row below the second.
struct Tree {
    std::vector<KvSlot> slots;
    std::vector<KvSlot> paths[3];
    std::vector<Row> rows;

    Tree(const Backend& backend, Position count)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        const KvSlot scratch = (count / kKvPageSlots + 2) * kKvPageSlots;
        paths[0] = {scratch + 5};
        paths[1] = {scratch + 11};
        paths[2] = {scratch + 11, scratch + 3};
        for (Position p = 0; p < count; ++p) rows.push_back(sequence_row(backend, 0, p, slots));
        for (const std::vector<KvSlot>& path : paths) {
            Row row = rows.back();
            row.path_slots = path.data();
            row.path_count = static_cast<std::int32_t>(path.size());
            row.prefix_count = count;
            row.position = count - 1 + row.path_count;
            row.slot = path.back();
            rows.push_back(row);
        }
    }
};

TEST_CASE("an adapter agrees with the reference backend's, in a text and in a tree") {
    std::mt19937 rng{71};
    const std::tuple<const char*, Dtype, double> settings[] = {
        {"llama-f32", Dtype::F32, 1e-4},
        {"llama-untied-f16", Dtype::Auto, 3e-2},
        {"llama-q4_1", Dtype::Auto, 5e-2},
    };
    for (const auto& [fixture, dtype, tolerance] : settings) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const AdapterSpec adapter = random_adapter(rng, file.config());
        const KvType kv = dtype == Dtype::F32 ? KvType::F32 : KvType::BF16;
        const auto backend = make_cuda(
            file,
            {.dtype = dtype, .kv = kv, .first_layer = 1, .last_layer = 2, .adapter = adapter});
        ReferenceBackend plain{file,
                               {.first_layer = 1,
                                .last_layer = 2,
                                .kv_slots = 512,
                                .kv_type = kv,
                                .adapter = adapter}};
        REQUIRE(backend->has_adapter());
        const Tree tree{*backend, 140};
        const std::vector<float> hidden =
            random_hidden(rng, static_cast<int>(tree.rows.size()), file.config());
        const std::vector<float> x = run(*backend, tree.rows, hidden);
        const std::vector<float> want = run(plain, tree.rows, hidden);
        CHECK(worst_error(x, want) < tolerance);
        CHECK(worst_error(logits_of(*backend, HeadId::Adapter, x),
                          logits_of(plain, HeadId::Adapter, want)) < tolerance);
        CHECK(worst_error(x, hidden) > 2 * tolerance);  // it does something
    }
}

TEST_CASE("an adapter's rows have the same bits alone and in chunks of any size") {
    std::mt19937 rng{72};
    for (const auto& [fixture, dtype] :
         {std::pair{"llama-q4_1", Dtype::Auto}, {"llama-f32", Dtype::F32}}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        CudaOptions options{
            .dtype = dtype, .last_layer = 1, .adapter = random_adapter(rng, file.config())};
        const auto alone = make_cuda(file, options);
        const Tree tree{*alone, 90};
        const std::vector<float> hidden =
            random_hidden(rng, static_cast<int>(tree.rows.size()), file.config());
        std::vector<float> want;
        for (std::size_t r = 0; r < tree.rows.size(); ++r) {
            const std::vector<float> row = run(*alone, std::span{tree.rows}.subspan(r, 1),
                                               std::span{hidden}.subspan(r * dim, dim));
            want.insert(want.end(), row.begin(), row.end());
        }
        for (const int rows_max : {64, 17, 7}) {
            options.rows_max = rows_max;
            const auto together = make_cuda(file, options);
            CHECK(same_bits(run(*together, tree.rows, hidden), want));
        }
    }
}

TEST_CASE("an adapter's keys are its own: the layers' text and bits do not change with it") {
    std::mt19937 rng{73};
    const ModelFile file = open_fixture("llama-untied-f16");
    const auto bare = make_cuda(file, {.last_layer = 1});
    const auto with =
        make_cuda(file, {.last_layer = 1, .adapter = random_adapter(rng, file.config())});
    const std::vector<KvSlot> slots = home_slots(20);
    std::vector<float> a(static_cast<std::size_t>(file.config().dim));
    std::vector<float> b(a.size());
    for (Position p = 0; p < 20; ++p) {
        const Row row = sequence_row(*bare, 3 + p, p, slots);
        REQUIRE(bare->run_layers({&row, 1}, a, nullptr) == RunOutcome::Done);
        REQUIRE(with->run_layers({&row, 1}, b, nullptr) == RunOutcome::Done);
        CHECK(same_bits(a, b));
        (void)run(*with, {&row, 1}, b);
    }
    // Rows that an adapter never saw leave its candidates finite.
    const std::vector<KvSlot> more = home_slots(50);
    const Row late = sequence_row(*with, 0, 49, more);
    for (const float x : run(*with, {&late, 1}, a)) CHECK(std::isfinite(x));
}

}  // namespace
}  // namespace paceline
