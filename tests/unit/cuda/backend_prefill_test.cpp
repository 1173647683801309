// Calls of many rows: batches of any size leave each row's bits as they are, and what they keep
// too.
#include <algorithm>
#include <numeric>

#include "model/weights/synthetic/synthetic_model.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

struct Setting {
    const char* fixture;
    Dtype dtype;
    KvType kv;
    std::size_t tokens;
};
/// Every type of weights and of cache; one past two borders of splits.
constexpr Setting kSettings[] = {
    {"tiny-chat", Dtype::BF16, KvType::BF16, 300},
    {"llama-f32", Dtype::F32, KvType::F32, 200},
    {"qwen2-f16", Dtype::Int8, KvType::F16, 200},
    {"llama-q4_1", Dtype::Auto, KvType::BF16, 200},
};
constexpr int kBatches[] = {64, 128, 256};

std::unique_ptr<CudaBackend> make_with(const ModelFile& file, const Setting& setting, int rows) {
    return make_cuda(file, {.dtype = setting.dtype, .kv = setting.kv, .rows_max = rows});
}

/// A text in one call, then a few rows that see what it left, `step` rows a call.
std::vector<float> states_of(Backend& backend, std::span<const TokenId> tokens, std::size_t step) {
    constexpr std::size_t kBehind = 3;
    const std::vector<KvSlot> slots = scattered_slots(tokens.size(), backend.kv_slots());
    std::vector<Row> rows;
    for (std::size_t p = 0; p < tokens.size(); ++p)
        rows.push_back(sequence_row(backend, tokens[p], static_cast<Position>(p), slots));
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    std::vector<float> hidden(rows.size() * dim);
    const auto run = [&](std::size_t first, std::size_t count) {
        REQUIRE(backend.run_layers(std::span(rows).subspan(first, count),
                                   std::span(hidden).subspan(first * dim, count * dim),
                                   nullptr) == RunOutcome::Done);
    };
    const std::size_t text = rows.size() - kBehind;
    for (std::size_t first = 0; first < text; first += step)
        run(first, std::min(step, text - first));
    for (std::size_t first = text; first < rows.size(); ++first) run(first, 1);
    return hidden;
}

TEST_CASE("a prefill in batches of 64, 128 or 256 rows has the bits that it has in small ones") {
    std::mt19937 rng{91};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens =
            random_tokens(rng, file.config().vocab_size, setting.tokens);
        const auto small = make_with(file, setting, 7);
        const std::vector<float> want = states_of(*small, tokens, tokens.size());
        for (const int rows_max : kBatches) {
            CAPTURE(rows_max);
            const auto backend = make_with(file, setting, rows_max);
            CHECK(same_bits(states_of(*backend, tokens, tokens.size()), want));
        }
    }
}

TEST_CASE(
    "calls between the sizes of kernels give the bits of any other, and recordings stay right") {
    std::mt19937 rng{92};
    const Setting& setting = kSettings[3];
    const ModelFile file = open_fixture(setting.fixture);
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 150);
    const auto small = make_with(file, setting, 7);
    const std::vector<float> want = states_of(*small, tokens, tokens.size());
    const auto backend = make_with(file, setting, 256);
    for (const std::size_t step : {8, 65, 8, 127, 64, 129, 64}) {
        CAPTURE(step);
        CHECK(same_bits(states_of(*backend, tokens, step), want));
    }
}

SublayerMask mask_of(std::initializer_list<int> sublayers) {
    SublayerMask mask;
    for (const int sublayer : sublayers) mask.skip(sublayer);
    return mask;
}

/// A tree after a prefix, and siblings of its root that start, stop and skip anywhere: one call.
class MixedCall {
public:
    MixedCall(const ModelConfig& config, int prefix, int nodes, int siblings)
        : config_{config}, prefix_{home_slots(static_cast<std::size_t>(prefix))} {
        KvSlot slot = prefix;
        for (int i = 0; i < nodes; ++i) {
            std::vector<KvSlot> path;
            if (i > 0) path = paths_[static_cast<std::size_t>((i - 1) / 2)];
            path.push_back(slot++);
            paths_.push_back(std::move(path));
        }
        for (int i = 0; i < siblings; ++i) paths_.push_back({slot++});
        for (std::size_t i = 0; i < paths_.size(); ++i)
            add(i, i >= static_cast<std::size_t>(nodes));
        for (std::size_t i = 0; i < rows_.size() * dim(); ++i)
            given_.push_back(0.1f * static_cast<float>(i % 13) - 0.6f);
    }
    MixedCall(const MixedCall&) = delete;
    MixedCall& operator=(const MixedCall&) = delete;
    ~MixedCall() = default;

    struct Result {
        std::vector<float> hidden;
        std::vector<float> stacks;
    };
    Result run(Backend& backend) {
        Result result{given_, {}};
        const auto entries = static_cast<std::size_t>(config_.sublayers()) * dim();
        result.stacks.assign(rows_.size() * entries, 0.0f);
        for (std::size_t i = 0; i < rows_.size(); i += 9)
            rows_[i].stack = result.stacks.data() + i * entries;
        REQUIRE(backend.run_layers(rows_, result.hidden, nullptr) == RunOutcome::Done);
        return result;
    }

private:
    [[nodiscard]] std::size_t dim() const { return static_cast<std::size_t>(config_.dim); }

    void add(std::size_t i, bool is_sibling) {
        const auto n = static_cast<int>(i);
        Row row;
        row.token = 1 + n % 90;
        row.position = static_cast<Position>(prefix_.size() + paths_[i].size()) - 1;
        row.slot = paths_[i].back();
        row.prefix_slots = prefix_.data();
        row.prefix_count = static_cast<std::int32_t>(prefix_.size());
        row.path_slots = paths_[i].data();
        row.path_count = static_cast<std::int32_t>(paths_[i].size());
        row.last = config_.sublayers();
        if (is_sibling) {
            row.first = n % 3;
            row.last -= n % 2;
            if (n % 4 != 0) row.mask = &masks_[i % std::size(masks_)];
        }
        rows_.push_back(row);
    }

    const ModelConfig& config_;
    const SublayerMask masks_[3] = {mask_of({1, 2}), mask_of({0}), mask_of({0, 1, 2, 3})};
    std::vector<KvSlot> prefix_;
    std::vector<std::vector<KvSlot>> paths_;
    std::vector<Row> rows_;
    std::vector<float> given_;
};

TEST_CASE("a large call of a tree and of rows that skip has the bits that each row has alone") {
    std::mt19937 rng{93};
    constexpr int kPrefix = 125;  // the tree grows over a border of splits
    for (const Setting& setting : {kSettings[1], kSettings[3]}) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        MixedCall call{file.config(), kPrefix, 100, 60};
        const std::vector<TokenId> prefix = random_tokens(rng, file.config().vocab_size, kPrefix);
        MixedCall::Result want;
        for (const int rows_max : {1, 64, 128, 256}) {
            CAPTURE(rows_max);
            const auto backend = make_with(file, setting, rows_max);
            (void)sequence_logits(*backend, prefix, kPrefix);
            const MixedCall::Result got = call.run(*backend);
            if (rows_max == 1) want = got;
            CHECK(same_bits(got.hidden, want.hidden));
            CHECK(same_bits(got.stacks, want.stacks));
        }
    }
}

TEST_CASE("logits and draws of more rows than a head takes at once are those of each alone") {
    std::mt19937 rng{94};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {.rows_max = 256});
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
    constexpr std::size_t kRows = 150;
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kRows);
    const std::vector<float> hidden = states_of(*backend, tokens, kRows);
    std::vector<float> logits(kRows * vocab);
    backend->head(HeadId::Final, hidden, kRows, logits);
    const SamplingParams greedy;
    std::vector<std::optional<TokenId>> drawn(kRows);
    backend->draw(hidden, std::vector<DrawJob>(kRows, DrawJob{&greedy, 9}), drawn);
    const std::vector<TokenId> best = argmax_of_rows(logits, file.config().vocab_size);
    for (std::size_t r = 0; r < kRows; ++r) {
        std::vector<float> alone(vocab);
        backend->head(HeadId::Final, std::span(hidden).subspan(r * dim, dim), 1, alone);
        CHECK(same_bits(std::span(logits).subspan(r * vocab, vocab), alone));
        CHECK(drawn[r] == best[r]);
    }
}

constexpr const char* kLongShape =
    "name = \"long\"\nlayers = 1\ndim = 32\nheads = 2\nkv_heads = 1\nhead_dim = 16\nffn_dim = 64\n"
    "vocab_size = 64\ncontext_length = 8192\ntied_embeddings = false\nrope_base = 10000.0\n"
    "type = \"bf16\"\n";

/// Rows of positions first .. first + count - 1; the keys below were not written: all zeros.
std::vector<Row> rows_from(const Backend& backend,
                           Position first,
                           int count,
                           std::span<const KvSlot> slots) {
    std::vector<Row> rows;
    for (Position p = first; p < first + count; ++p)
        rows.push_back(sequence_row(backend, 1 + p % 60, p, slots));
    return rows;
}

TEST_CASE("a batch has fewer rows where they see more keys than there is room for, 64 at least") {
    const Result<ModelFile> file = random_model("long", kLongShape);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string{} : file.error().what));
    const std::vector<KvSlot> slots = home_slots(4096);
    const auto backend = make_cuda(file.value(), {.kv_slots = 4096, .rows_max = 128, .random = 1});
    const auto batch_rows = [&](Position first, int count) {
        return backend->batch_rows(rows_from(*backend, first, count, slots));
    };
    CHECK(batch_rows(0, 40) == 40);
    CHECK(batch_rows(0, 300) == 128);
    CHECK(batch_rows(2048 - 128, 300) == 128);  // 16 splits each: room for all
    CHECK(batch_rows(2048, 300) == 16 * 128 / 17);
    CHECK(batch_rows(4096 - 128, 128) == 64);
    CHECK(batch_rows(4096 - 64, 64) == 64);
}

TEST_CASE("rows of batches that were cut for their keys have the bits of any other batches") {
    const Result<ModelFile> file = random_model("long", kLongShape);
    REQUIRE(file.ok());
    const std::vector<KvSlot> slots = home_slots(4096);
    std::vector<float> want;
    for (const int rows_max : {16, 128}) {
        CAPTURE(rows_max);
        const auto backend =
            make_cuda(file.value(), {.kv_slots = 4096, .rows_max = rows_max, .random = 1});
        const std::vector<Row> rows = rows_from(*backend, 4096 - 100, 100, slots);
        std::vector<float> hidden(rows.size() * 32);
        REQUIRE(backend->run_layers(rows, hidden, nullptr) == RunOutcome::Done);
        if (want.empty()) want = hidden;
        CHECK(same_bits(hidden, want));
    }
}

TEST_CASE("the workspace of an 8B model with 8,192 tokens of context stays below half a GiB") {
    const Result<ModelFile> file =
        open_random_model(source_tree() + "/configs/shapes/llama-8b.toml");
    REQUIRE(file.ok());
    const auto use = [&](int rows_max) {
        return cuda_memory(file.value(), {.kv_slots = 8192, .rows_max = rows_max});
    };
    const MemoryUse usual = cuda_memory(file.value(), {.kv_slots = 8192});
    CHECK(usual.workspace_bytes < std::uint64_t{512} << 20U);
    CHECK(usual.pinned_bytes < std::uint64_t{64} << 20U);
    // Logits and draws do not grow with the rows of a batch.
    CHECK(use(1024).workspace_bytes < 2 * usual.workspace_bytes);
    CHECK(use(64).workspace_bytes < usual.workspace_bytes);
}

}  // namespace
}  // namespace paceline
