// The promise the whole product rests on: a row's bits depend on the row alone.
#include <algorithm>
#include <numeric>

#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr int kTextLength = 300;  // crosses a border between two attention splits

struct Setting {
    const char* fixture;
    Dtype dtype;
    KvType kv;
};
constexpr Setting kSettings[] = {
    {"llama-f32", Dtype::F32, KvType::F32},   {"llama-f32", Dtype::BF16, KvType::BF16},
    {"qwen3-bf16", Dtype::Auto, KvType::F16}, {"qwen2-f16", Dtype::Int8, KvType::F16},
    {"llama-q4_1", Dtype::Auto, KvType::F16}, {"llama-q4_0", Dtype::Auto, KvType::F16},
    {"mistral-q8_0", Dtype::Q4, KvType::F32},
};

/// Logits of a text fed row by row on one thread: what every other way must reproduce.
std::vector<float> row_by_row(const ModelFile& file,
                              CpuOptions options,
                              std::span<const TokenId> tokens) {
    options.threads = 1;
    const auto backend = make_backend(file, options);
    return sequence_logits(*backend, tokens, 1);
}

TEST_CASE(
    "chunks, waves, threads and slots of any kind leave every row's bits as they were row by row") {
    std::mt19937 rng{41};
    for (const Setting& setting : kSettings) {
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens =
            random_tokens(rng, file.config().vocab_size, kTextLength);
        for (const Isa isa : runnable_isas()) {
            CAPTURE(setting.fixture);
            CAPTURE(name(setting.dtype));
            CAPTURE(name(isa));
            CpuOptions options{.dtype = setting.dtype, .kv = setting.kv, .isa = isa};
            const std::vector<float> want = row_by_row(file, options, tokens);
            for (const auto& [threads, wave, rows_max] : {std::tuple{1, kTextLength, 256},
                                                          {2, 64, 256},
                                                          {3, 8, 5},
                                                          {2, 2, 64},
                                                          {4, 37, 16}}) {
                CAPTURE(threads);
                CAPTURE(wave);
                options.threads = threads;
                options.rows_max = rows_max;
                const auto backend = make_backend(file, options);
                CHECK(same_bits(sequence_logits(*backend, tokens, wave), want));
                Backend* segments[] = {backend.get()};
                const std::vector<KvSlot> scattered =
                    scattered_slots(tokens.size(), backend->kv_slots());
                CHECK(same_bits(sequence_logits(segments, tokens, wave, scattered), want));
            }
        }
    }
}

/// A random tree below a prefix: nodes in tree order, with the slots of their paths.
struct Tree {
    struct Node {
        int parent;  // -1: the prefix
        TokenId token;
        std::vector<KvSlot> path;   // slots of the path, the node's own last
        std::vector<TokenId> text;  // tokens of the path
    };
    std::vector<Node> nodes;
};

Tree random_tree(std::mt19937& rng, int vocab_size, int count, std::span<const KvSlot> free_slots) {
    Tree tree;
    for (int i = 0; i < count; ++i) {
        Tree::Node node{i == 0 ? -1 : static_cast<int>(rng() % static_cast<unsigned>(i + 1)) - 1,
                        static_cast<TokenId>(rng() % static_cast<unsigned>(vocab_size)),
                        {},
                        {}};
        if (node.parent >= 0) {
            node.path = tree.nodes[static_cast<std::size_t>(node.parent)].path;
            node.text = tree.nodes[static_cast<std::size_t>(node.parent)].text;
        }
        node.path.push_back(free_slots[static_cast<std::size_t>(i)]);
        node.text.push_back(node.token);
        tree.nodes.push_back(std::move(node));
    }
    return tree;
}

TEST_CASE("every node of a random tree wave has the bits of its path decoded as plain text") {
    std::mt19937 rng{42};
    for (const Setting& setting : kSettings) {
        const ModelFile file = open_fixture(setting.fixture);
        const ModelConfig& config = file.config();
        for (const std::size_t prefix_length :
             {std::size_t{1}, std::size_t{31}, std::size_t{250}}) {
            CAPTURE(setting.fixture);
            CAPTURE(prefix_length);
            const CpuOptions options{.dtype = setting.dtype, .kv = setting.kv, .threads = 2};
            const auto backend = make_backend(file, options);
            const std::vector<TokenId> prefix =
                random_tokens(rng, config.vocab_size, prefix_length);
            const std::vector<KvSlot> slots = home_slots(prefix_length);
            (void)sequence_logits(*backend, prefix, 64);

            std::vector<KvSlot> free_slots(static_cast<std::size_t>(backend->kv_slots()) -
                                           prefix_length);
            std::iota(free_slots.begin(), free_slots.end(), static_cast<KvSlot>(prefix_length));
            if (rng() % 2 == 0) std::shuffle(free_slots.begin(), free_slots.end(), rng);
            const int count = 1 + static_cast<int>(rng() % 40);
            const Tree tree = random_tree(rng, config.vocab_size, count, free_slots);
            std::vector<Row> rows;
            for (const Tree::Node& node : tree.nodes) {
                Row row;
                row.token = node.token;
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
            const auto vocab = static_cast<std::size_t>(config.vocab_size);
            std::vector<float> logits(rows.size() * vocab);
            backend->head(HeadId::Final, hidden, static_cast<int>(rows.size()), logits);

            for (std::size_t i = 0; i < rows.size(); i += 7) {  // each check decodes a whole text
                std::vector<TokenId> text = prefix;
                text.insert(text.end(), tree.nodes[i].text.begin(), tree.nodes[i].text.end());
                const std::vector<float> want = row_by_row(file, options, text);
                CHECK(same_bits(std::span(logits).subspan(i * vocab, vocab),
                                std::span(want).last(vocab)));
            }
        }
    }
}

TEST_CASE("rows of two requests in one wave do not touch each other's bits") {
    std::mt19937 rng{43};
    const ModelFile file = open_fixture("llama-q4_1");
    const ModelConfig& config = file.config();
    const CpuOptions options{.threads = 2};
    const std::vector<TokenId> texts[2] = {random_tokens(rng, config.vocab_size, 70),
                                           random_tokens(rng, config.vocab_size, 70)};
    const auto backend = make_backend(file, options);
    const std::vector<KvSlot> all = scattered_slots(140, backend->kv_slots());
    const std::span<const KvSlot> slots[2] = {std::span(all).first(70), std::span(all).last(70)};
    const auto vocab = static_cast<std::size_t>(config.vocab_size);
    std::vector<float> got[2];
    for (Position p = 0; p < 70; p += 10) {
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
    for (int r = 0; r < 2; ++r) CHECK(same_bits(got[r], row_by_row(file, options, texts[r])));
}

}  // namespace
}  // namespace paceline
