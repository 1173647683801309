// A row's bits depend on the row alone: waves, chunks, slots, graphs, trees, the order of threads.
#include <algorithm>
#include <numeric>

#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

struct Setting {
    const char* fixture;
    Dtype dtype;
    KvType kv;
};
/// Every type of weights with every type of cache that has a path of its own.
constexpr Setting kSettings[] = {
    {"llama-f32", Dtype::F32, KvType::F32},    {"llama-f32", Dtype::F32, KvType::BF16},
    {"qwen3-bf16", Dtype::BF16, KvType::BF16}, {"qwen2-f16", Dtype::Int8, KvType::F16},
    {"mistral-q8_0", Dtype::Q4, KvType::F32},  {"llama-q4_1", Dtype::Auto, KvType::BF16},
};
/// Past two borders of splits: a context of more than 256 positions.
constexpr Setting kLongSettings[] = {
    {"tiny-chat", Dtype::BF16, KvType::BF16},
    {"tiny-chat", Dtype::Q4, KvType::F16},
};

CudaOptions options_of(const Setting& setting) {
    return {.dtype = setting.dtype, .kv = setting.kv};
}

std::vector<float> row_by_row(const ModelFile& file,
                              CudaOptions options,
                              std::span<const TokenId> tokens) {
    options.graphs = false;
    const auto backend = make_cuda(file, options);
    return sequence_logits(*backend, tokens, 1);
}

struct Way {
    int wave;
    int rows_max;
    bool graphs;
    bool scattered;  // slots; otherwise at home
};

/// Feeds `tokens` in each way and compares.
void check_waves(const ModelFile& file,
                 CudaOptions options,
                 std::span<const TokenId> tokens,
                 std::initializer_list<Way> ways) {
    const std::vector<float> want = row_by_row(file, options, tokens);
    for (const Way& way : ways) {
        CAPTURE(way.wave);
        CAPTURE(way.rows_max);
        CAPTURE(way.graphs);
        CAPTURE(way.scattered);
        options.rows_max = way.rows_max;
        options.graphs = way.graphs;
        const auto backend = make_cuda(file, options);
        Backend* segments[] = {backend.get()};
        const std::vector<KvSlot> slots = way.scattered
                                              ? scattered_slots(tokens.size(), backend->kv_slots())
                                              : home_slots(tokens.size());
        CHECK(same_bits(sequence_logits(segments, tokens, way.wave, slots), want));
    }
}

TEST_CASE("waves and chunks of any size, graphs and slots leave each row's bits as row by row") {
    std::mt19937 rng{41};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        CAPTURE(name(setting.dtype));
        CAPTURE(name(setting.kv));
        const ModelFile file = open_fixture(setting.fixture);
        // Past a border of splits once for each type of cache; the others are as good in a short text.
        const bool is_long = &setting - kSettings >= 3;
        const std::vector<TokenId> tokens =
            random_tokens(rng, file.config().vocab_size, is_long ? 132 : 70);
        check_waves(file, options_of(setting), tokens,
                    {{132, 24, false, true},
                     {37, 64, true, true},
                     {64, 64, false, false},
                     {132, 64, true, true}});
    }
}

TEST_CASE("the same past 256 positions, where a row has three splits to merge") {
    std::mt19937 rng{42};
    const Setting& setting = kLongSettings[0];
    const ModelFile file = open_fixture(setting.fixture);
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 262);
    check_waves(file, options_of(setting), tokens, {{37, 64, true, true}, {262, 64, false, false}});
}

TEST_CASE("row counts beside the borders of the sizes of kernels give equal bits") {
    std::mt19937 rng{43};
    for (const Setting& setting : {kSettings[0], kSettings[2], kSettings[5]}) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 66);
        check_waves(file, options_of(setting), tokens,
                    {{2, 64, true, false},
                     {8, 5, false, true},
                     {9, 64, true, true},
                     {16, 64, true, false},
                     {17, 64, true, true},
                     {32, 64, false, false},
                     {33, 64, true, true},
                     {63, 64, true, false},
                     {65, 64, true, true},
                     {66, 33, true, false}});
    }
}

TEST_CASE("the order in which the device's threads run changes no bit") {
    std::mt19937 rng{44};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 12);
        const std::vector<float> want = row_by_row(file, options_of(setting), tokens);
        for (const cuda::emulated::Order order : cuda::all_orders()) {
            const cuda::OrderScope scope{order};
            const auto backend = make_cuda(file, options_of(setting));
            CHECK(same_bits(sequence_logits(*backend, tokens, 12), want));
        }
    }
}

TEST_CASE("two segments chained give the bits of the whole model") {
    std::mt19937 rng{45};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 25);
        const std::vector<float> want = row_by_row(file, options_of(setting), tokens);
        CudaOptions options = options_of(setting);
        options.last_layer = 1;
        const auto first = make_cuda(file, options);
        options.first_layer = 1;
        options.last_layer = -1;
        const auto second = make_cuda(file, options);
        Backend* segments[] = {first.get(), second.get()};
        CHECK(same_bits(sequence_logits(segments, tokens, 13, home_slots(25)), want));
    }
}

/// A node of a tree below a prefix, with the slots and tokens of its path, its own last.
struct Node {
    std::vector<KvSlot> path;
    std::vector<TokenId> text;
};

std::vector<Node> random_tree(std::mt19937& rng,
                              int vocab_size,
                              std::size_t count,
                              std::span<const KvSlot> free_slots) {
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t parent = rng() % (i + 1);  // i: the prefix itself
        Node node = parent == i ? Node{} : nodes[parent];
        node.path.push_back(free_slots[i]);
        node.text.push_back(static_cast<TokenId>(rng() % static_cast<unsigned>(vocab_size)));
        nodes.push_back(std::move(node));
    }
    return nodes;
}

void check_tree(const Setting& setting, std::size_t prefix_length, std::mt19937& rng) {
    const ModelFile file = open_fixture(setting.fixture);
    const ModelConfig& config = file.config();
    const auto vocab = static_cast<std::size_t>(config.vocab_size);
    const auto backend = make_cuda(file, options_of(setting));
    const std::vector<TokenId> prefix = random_tokens(rng, config.vocab_size, prefix_length);
    const std::vector<KvSlot> slots = home_slots(prefix_length);
    (void)sequence_logits(*backend, prefix, 64);
    std::vector<KvSlot> free_slots(static_cast<std::size_t>(backend->kv_slots()) - prefix_length);
    std::iota(free_slots.begin(), free_slots.end(), static_cast<KvSlot>(prefix_length));
    std::shuffle(free_slots.begin(), free_slots.end(), rng);
    const std::vector<Node> nodes = random_tree(rng, config.vocab_size, 1 + rng() % 40, free_slots);
    std::vector<Row> rows;
    for (const Node& node : nodes) {
        Row row;
        row.token = node.text.back();
        row.position = static_cast<Position>(prefix_length + node.path.size()) - 1;
        row.slot = node.path.back();
        row.prefix_slots = slots.data();
        row.prefix_count = static_cast<std::int32_t>(prefix_length);
        row.path_slots = node.path.data();
        row.path_count = static_cast<std::int32_t>(node.path.size());
        row.last = config.sublayers();
        rows.push_back(row);
    }
    std::vector<float> hidden(rows.size() * static_cast<std::size_t>(config.dim));
    REQUIRE(backend->run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    std::vector<float> logits(rows.size() * vocab);
    backend->head(HeadId::Final, hidden, static_cast<int>(rows.size()), logits);

    // Alone: after the same prefix, the path row by row where its slots would be at home.
    const auto alone = make_cuda(file, options_of(setting));
    (void)sequence_logits(*alone, prefix, 64);
    const std::vector<KvSlot> home = home_slots(prefix_length + nodes.size());
    for (std::size_t i = 0; i < rows.size(); i += 10) {
        std::vector<float> state(static_cast<std::size_t>(config.dim));
        for (std::size_t p = 0; p < nodes[i].text.size(); ++p) {
            const Row row = sequence_row(*alone, nodes[i].text[p],
                                         static_cast<Position>(prefix_length + p), home);
            REQUIRE(alone->run_layers({&row, 1}, state, nullptr) == RunOutcome::Done);
        }
        std::vector<float> want(vocab);
        alone->head(HeadId::Final, state, 1, want);
        CHECK(same_bits(std::span(logits).subspan(i * vocab, vocab), want));
    }
}

TEST_CASE("nodes of a random tree have the bits of their paths fed alone") {
    std::mt19937 rng{46};
    for (const Setting& setting : kSettings) {
        for (const std::size_t prefix : {std::size_t{1}, std::size_t{125}}) {
            CAPTURE(setting.fixture);
            CAPTURE(prefix);
            check_tree(setting, prefix, rng);
        }
    }
    for (const Setting& setting : kLongSettings) check_tree(setting, 250, rng);
}

TEST_CASE("rows of two requests in one wave do not touch each other's bits") {
    std::mt19937 rng{47};
    const ModelFile file = open_fixture("llama-q4_1");
    const ModelConfig& config = file.config();
    const std::vector<TokenId> texts[2] = {random_tokens(rng, config.vocab_size, 40),
                                           random_tokens(rng, config.vocab_size, 40)};
    const auto backend = make_cuda(file, {});
    const std::vector<KvSlot> all = scattered_slots(80, backend->kv_slots());
    const std::span<const KvSlot> slots[2] = {std::span(all).first(40), std::span(all).last(40)};
    const auto vocab = static_cast<std::size_t>(config.vocab_size);
    std::vector<float> got[2];
    for (Position p = 0; p < 40; p += 10) {
        std::vector<Row> rows;
        for (Position i = p; i < p + 10; ++i) {
            for (int r = 0; r < 2; ++r)
                rows.push_back(
                    sequence_row(*backend, texts[r][static_cast<std::size_t>(i)], i, slots[r]));
        }
        std::vector<float> hidden(rows.size() * static_cast<std::size_t>(config.dim));
        REQUIRE(backend->run_layers(rows, hidden, nullptr) == RunOutcome::Done);
        std::vector<float> logits(rows.size() * vocab);
        backend->head(HeadId::Final, hidden, static_cast<int>(rows.size()), logits);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto row = std::span(logits).subspan(i * vocab, vocab);
            got[i % 2].insert(got[i % 2].end(), row.begin(), row.end());
        }
    }
    for (int r = 0; r < 2; ++r) CHECK(same_bits(got[r], row_by_row(file, {}, texts[r])));
}

}  // namespace
}  // namespace paceline
