// An exit's adapter: twins, row invariance, whose keys it sees, what is refused, what it weighs.
#include <cmath>
#include <functional>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

std::vector<float> normal_numbers(std::mt19937& rng, std::size_t count, float mean, float spread) {
    std::normal_distribution<float> normal(mean, spread);
    std::vector<float> numbers(count);
    for (float& x : numbers) x = normal(rng);
    return numbers;
}

/// Twice as many query heads as the target has, over one KV head more.
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

std::vector<float> logits_of(Backend& backend, std::span<const float> x) {
    const int rows = static_cast<int>(x.size()) / backend.config().dim;
    std::vector<float> logits(static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(backend.config().vocab_size));
    backend.head(HeadId::Adapter, x, rows, logits);
    return logits;
}

double worst_error(std::span<const float> got, std::span<const float> want) {
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(want[i]) && want[i] == got[i]) continue;
        largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
        const double off = std::fabs(static_cast<double>(got[i]) - want[i]);
        if (!(off < 1e30)) return off;
        error = std::max(error, off);
    }
    return error / largest;
}

/// A text of `count` rows, then two siblings after it in scratch slots and a row below the second.
struct Tree {
    std::vector<KvSlot> slots;
    std::vector<KvSlot> left, right, below;
    std::vector<Row> rows;

    Tree(const Backend& backend, Position count) : slots{home_slots(count)} {
        for (Position p = 0; p < count; ++p) rows.push_back(sequence_row(backend, 0, p, slots));
        const KvSlot scratch = (count / kKvPageSlots + 2) * kKvPageSlots;
        left = {scratch + 5};
        right = {scratch + 11};
        below = {scratch + 11, scratch + 3};
        for (const std::vector<KvSlot>* path : {&left, &right, &below}) {
            Row row = rows.back();
            row.path_slots = path->data();
            row.path_count = static_cast<std::int32_t>(path->size());
            row.prefix_count = count;
            row.position = count - 1 + row.path_count;
            row.slot = path->back();
            rows.push_back(row);
        }
    }
};

TEST_CASE("an adapter's logits agree with the reference backend's, in a text and in a tree") {
    std::mt19937 rng{71};
    const std::tuple<const char*, Dtype, double> settings[] = {
        {"llama-f32", Dtype::F32, 1e-5},
        {"llama-untied-f16", Dtype::Auto, 3e-2},
        {"llama-q4_1", Dtype::Auto, 5e-2},
    };
    for (const auto& [fixture, dtype, tolerance] : settings) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const AdapterSpec adapter = random_adapter(rng, file.config());
        const KvType kv = dtype == Dtype::F32 ? KvType::F32 : KvType::F16;
        const auto fast = make_backend(file, {.dtype = dtype,
                                              .kv = kv,
                                              .first_layer = 1,
                                              .last_layer = 2,
                                              .threads = 2,
                                              .adapter = adapter});
        ReferenceBackend plain{file,
                               {.first_layer = 1,
                                .last_layer = 2,
                                .kv_slots = 1024,
                                .kv_type = kv,
                                .adapter = adapter}};
        REQUIRE(fast->has_adapter());
        REQUIRE(plain.has_adapter());
        const Tree tree{*fast, 300};
        const std::vector<float> hidden = normal_numbers(
            rng, tree.rows.size() * static_cast<std::size_t>(file.config().dim), 0.0f, 2.0f);
        const std::vector<float> x = run(*fast, tree.rows, hidden);
        const std::vector<float> want = run(plain, tree.rows, hidden);
        CHECK(worst_error(x, want) < tolerance);
        CHECK(worst_error(logits_of(*fast, x), logits_of(plain, want)) < tolerance);
        CHECK(worst_error(x, hidden) > 2 * tolerance);  // it does something
    }
}

TEST_CASE("an adapter's rows have the same bits in chunks of any size, on any number of threads") {
    std::mt19937 rng{72};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const AdapterSpec adapter = random_adapter(rng, file.config());
    for (const Isa isa : runnable_isas()) {
        CpuOptions options{.last_layer = 1, .isa = isa, .adapter = adapter};
        const auto alone = make_backend(file, options);
        const Tree tree{*alone, 90};
        const std::vector<float> hidden = normal_numbers(rng, tree.rows.size() * dim, 0.0f, 2.0f);
        std::vector<float> want;
        for (std::size_t r = 0; r < tree.rows.size(); ++r) {
            const std::vector<float> row = run(*alone, std::span{tree.rows}.subspan(r, 1),
                                               std::span{hidden}.subspan(r * dim, dim));
            want.insert(want.end(), row.begin(), row.end());
        }
        for (const int threads : {1, 2, 3}) {
            options.threads = threads;
            options.rows_max = threads == 2 ? 7 : 256;
            const auto together = make_backend(file, options);
            const std::vector<float> got = run(*together, tree.rows, hidden);
            CHECK(same_bits(got, want));
            CHECK(same_bits(logits_of(*together, got), logits_of(*alone, want)));
        }
    }
}

TEST_CASE("an adapter's keys are its own: the layers' text and bits do not change with it") {
    std::mt19937 rng{73};
    const ModelFile file = open_fixture("llama-untied-f16");
    const auto bare = make_backend(file, {.last_layer = 1});
    const auto with =
        make_backend(file, {.last_layer = 1, .adapter = random_adapter(rng, file.config())});
    const std::vector<KvSlot> slots = home_slots(20);
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::vector<float> first;
    for (Position p = 0; p < 20; ++p) {
        const Row row = sequence_row(*bare, 3 + p, p, slots);
        std::vector<float> a(dim);
        std::vector<float> b(dim);
        REQUIRE(bare->run_layers({&row, 1}, a, nullptr) == RunOutcome::Done);
        REQUIRE(with->run_layers({&row, 1}, b, nullptr) == RunOutcome::Done);
        CHECK(same_bits(a, b));
        (void)run(*with, {&row, 1}, b);
    }
    CHECK(bare->kv_bytes() == with->kv_bytes());
    CHECK(bare->equality_class() == with->equality_class());
    CHECK_FALSE(bare->has_adapter());
}

TEST_CASE("rows that an adapter never saw leave its candidates finite") {
    std::mt19937 rng{74};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend =
        make_backend(file, {.last_layer = 1, .adapter = random_adapter(rng, file.config())});
    const std::vector<KvSlot> slots = home_slots(50);
    const Row row = sequence_row(*backend, 0, 49, slots);
    const std::vector<float> hidden =
        normal_numbers(rng, static_cast<std::size_t>(file.config().dim), 0.0f, 2.0f);
    for (const float x : run(*backend, {&row, 1}, hidden)) CHECK(std::isfinite(x));
}

TEST_CASE("the logits of a short list alone are those among the whole vocabulary") {
    std::mt19937 rng{75};
    const ModelFile file = open_fixture("llama-q4_1");
    const AdapterSpec adapter = random_adapter(rng, file.config());
    const std::vector<TokenId> list = {2, 3, 9, 40};
    const auto backend = make_backend(file, {.last_layer = 1,
                                             .rows_max = 4,
                                             .threads = 2,
                                             .heads = {{.tokens = list}},
                                             .adapter = adapter});
    const std::vector<float> hidden =
        normal_numbers(rng, 9 * static_cast<std::size_t>(file.config().dim), 0.0f, 2.0f);
    const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
    for (const HeadId id : {HeadId{1}, HeadId::Adapter}) {
        const std::span<const TokenId> tokens = backend->short_list(id);
        REQUIRE(tokens.size() == (id == HeadId{1} ? list.size() : adapter.tokens.size()));
        std::vector<float> all(9 * vocab);
        backend->head(id, hidden, 9, all);
        std::vector<float> listed(9 * tokens.size());
        backend->head_listed(id, hidden, 9, listed);
        std::vector<float> want;
        for (std::size_t r = 0; r < 9; ++r) {
            for (const TokenId t : tokens)
                want.push_back(all[r * vocab + static_cast<std::size_t>(t)]);
        }
        CHECK(same_bits(listed, want));
    }
}

TEST_CASE("planned bytes of a segment count its adapter, with a short list and without") {
    std::mt19937 rng{76};
    for (const char* fixture : {"llama-q4_1", "llama-untied-f16", "llama-f32"}) {
        const ModelFile file = open_fixture(fixture);
        CpuOptions options{.last_layer = 1, .adapter = random_adapter(rng, file.config())};
        CHECK(make_backend(file, options)->memory_use().weight_bytes ==
              packed_bytes(file, options));
        options.adapter->tokens.clear();
        const auto whole = make_backend(file, options);
        CHECK(whole->memory_use().weight_bytes == packed_bytes(file, options));
        CHECK(whole->short_list(HeadId::Adapter).empty());
        const std::vector<float> x =
            normal_numbers(rng, static_cast<std::size_t>(file.config().dim), 0.0f, 2.0f);
        for (const float logit : logits_of(*whole, x)) CHECK(std::isfinite(logit));
    }
}

TEST_CASE("adapters that make no sense are refused with field and value in the text") {
    std::mt19937 rng{77};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto refused = [&](const std::function<void(AdapterSpec&)>& spoil,
                             const std::string& part) {
        AdapterSpec spec = random_adapter(rng, file.config());
        spoil(spec);
        const auto backend = make_cpu_backend(file, {.kv_slots = 32, .adapter = spec});
        REQUIRE_FALSE(backend.ok());
        CHECK(backend.error().code == Errc::BadArgument);
        CAPTURE(backend.error().what);
        CHECK(backend.error().what.find(part) != std::string::npos);
    };
    refused([](AdapterSpec& s) { s.head_dim = 7; }, "adapter.head_dim = 7");
    refused([](AdapterSpec& s) { s.kv_heads = 0; }, "adapter.kv_heads = 0");
    refused([](AdapterSpec& s) { ++s.heads; }, "must be a multiple of kv_heads");
    refused([](AdapterSpec& s) { s.heads = 1 << 30; }, "adapter.heads = 1073741824");
    refused([](AdapterSpec& s) { s.q.pop_back(); }, "adapter.q has");
    refused([](AdapterSpec& s) { s.out_norm.clear(); }, "adapter.out_norm has 0 numbers");
    refused([](AdapterSpec& s) { s.v[3] = std::nanf(""); }, "adapter.v[3] is not a finite");
    refused([](AdapterSpec& s) { s.tokens = {4, 4}; }, "adapter.tokens[1] = 4, must be above");
}

}  // namespace
}  // namespace paceline
