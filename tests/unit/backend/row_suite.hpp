// Row invariance: a row's bits depend on the row alone. Batches, chunks, slots,
// threads, recordings, segments, trees and other requests do not change them.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

inline What what_of(const Setting& setting) {
    return {.dtype = setting.dtype, .kv = setting.kv};
}

/// Logits of a text fed row by row, one thread, nothing recorded: what every other way must
/// reproduce.
template <class Traits>
std::vector<float> row_by_row(const ModelFile& file, What what, std::span<const TokenId> tokens) {
    what.threads = 1;
    what.graphs = false;
    const auto backend = Traits::make(file, what);
    return sequence_logits(*backend, tokens, 1);
}

/// Feeds `tokens` in each way and compares.
template <class Traits>
void check_ways(const ModelFile& file,
                What what,
                std::span<const TokenId> tokens,
                std::span<const Way> ways) {
    const std::vector<float> want = row_by_row<Traits>(file, what, tokens);
    for (const Way& way : ways) {
        CAPTURE(way.batch);
        CAPTURE(way.scattered);
        CAPTURE(way.rows_max);
        CAPTURE(way.threads);
        CAPTURE(way.graphs);
        what.rows_max = way.rows_max;
        what.threads = way.threads;
        what.graphs = way.graphs;
        const auto backend = Traits::make(file, what);
        Backend* segments[] = {backend.get()};
        const std::vector<KvSlot> slots = way.scattered
                                              ? scattered_slots(tokens.size(), backend->kv_slots())
                                              : home_slots(tokens.size());
        CHECK(same_bits(sequence_logits(segments, tokens, way.batch, slots), want));
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "chunks, batches, threads, recordings and slots of any kind leave each row's bits as row by "
    "row",
    Traits,
    RowsInAnyWay) {
    std::mt19937 rng{41};
    for (const Setting& setting : Traits::kSettings) {
        CAPTURE(setting.fixture);
        CAPTURE(name(setting.dtype));
        CAPTURE(name(setting.kv));
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens =
            random_tokens(rng, file.config().vocab_size, setting.tokens);
        for (const std::optional<Isa>& isa : Traits::isas()) {
            CAPTURE(static_cast<int>(isa.value_or(Isa::Portable)));
            What what = what_of(setting);
            what.isa = isa;
            check_ways<Traits>(file, what, tokens, Traits::kWays);
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "segments chained in any split of the layers give the bits of the whole model",
    Traits,
    ChainedSegments) {
    std::mt19937 rng{45};
    std::vector<Setting> settings(std::begin(Traits::kSettings), std::end(Traits::kSettings));
    settings.push_back({"llama-untied-f16", Dtype::Auto, KvType::BF16});  // three layers
    for (const Setting& setting : settings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens =
            random_tokens(rng, file.config().vocab_size, Traits::kChainTokens);
        const std::vector<float> want = row_by_row<Traits>(file, what_of(setting), tokens);
        const auto whole = Traits::make(file, what_of(setting));
        for (int cut = 1; cut < file.config().layers; ++cut) {
            CAPTURE(cut);
            What what = what_of(setting);
            what.last_layer = cut;
            what.threads = 2;
            const auto first = Traits::make(file, what);
            what.first_layer = cut;
            what.last_layer = -1;
            what.threads = 1;
            const auto second = Traits::make(file, what);
            CHECK(first->last_layer() == cut);
            CHECK(second->first_layer() == cut);
            CHECK(second->last_layer() == file.config().layers);
            CHECK(first->memory_use().weight_bytes < whole->memory_use().weight_bytes);
            Backend* segments[] = {first.get(), second.get()};
            CHECK(same_bits(sequence_logits(segments, tokens, 9, home_slots(tokens.size())), want));
        }
    }
}

/// A node of a tree below a prefix, with the slots and tokens of its path, its own last.
struct Node {
    std::vector<KvSlot> path;
    std::vector<TokenId> text;
};

inline std::vector<Node> random_tree(std::mt19937& rng,
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

inline std::vector<Row> tree_rows(const ModelConfig& config,
                                  std::span<const KvSlot> prefix,
                                  std::span<const Node> nodes) {
    std::vector<Row> rows;
    for (const Node& node : nodes) {
        Row row;
        row.token = node.text.back();
        row.position = static_cast<Position>(prefix.size() + node.path.size()) - 1;
        row.slot = node.path.back();
        row.prefix_slots = prefix.data();
        row.prefix_count = static_cast<std::int32_t>(prefix.size());
        row.path_slots = node.path.data();
        row.path_count = static_cast<std::int32_t>(node.path.size());
        row.last = config.sublayers();
        rows.push_back(row);
    }
    return rows;
}

/// The slots that a prefix at home leaves, in their order or in none.
inline std::vector<KvSlot> slots_beyond(std::mt19937& rng,
                                        const Backend& backend,
                                        std::size_t prefix) {
    std::vector<KvSlot> slots(static_cast<std::size_t>(backend.kv_slots()) - prefix);
    std::iota(slots.begin(), slots.end(), static_cast<KvSlot>(prefix));
    if (rng() % 4 != 0) std::shuffle(slots.begin(), slots.end(), rng);
    return slots;
}

template <class Traits>
void check_tree(const Setting& setting, std::size_t prefix_length, std::mt19937& rng) {
    CAPTURE(setting.fixture);
    CAPTURE(name(setting.dtype));
    CAPTURE(prefix_length);
    const ModelFile file = open_fixture(setting.fixture);
    const ModelConfig& config = file.config();
    const auto vocab = static_cast<std::size_t>(config.vocab_size);
    What what = what_of(setting);
    what.threads = 2;
    const auto backend = Traits::make(file, what);
    const std::vector<TokenId> prefix = random_tokens(rng, config.vocab_size, prefix_length);
    const std::vector<KvSlot> slots = home_slots(prefix_length);
    (void)sequence_logits(*backend, prefix, 64);
    const std::vector<Node> nodes = random_tree(rng, config.vocab_size, 1 + rng() % 40,
                                                slots_beyond(rng, *backend, prefix_length));
    const std::vector<float> logits =
        logits_of(*backend, HeadId::Final, states_of(*backend, tree_rows(config, slots, nodes)));

    // Alone: after the same prefix, the path row by row where its slots would be at home.
    what.threads = 1;
    const auto alone = Traits::make(file, what);
    (void)sequence_logits(*alone, prefix, Traits::kPrefixBatch);
    const std::vector<KvSlot> home = home_slots(prefix_length + nodes.size());
    for (std::size_t i = 0; i < nodes.size(); i += Traits::kNodeStep) {
        std::vector<float> state;
        for (std::size_t p = 0; p < nodes[i].text.size(); ++p) {
            const Row row = sequence_row(*alone, nodes[i].text[p],
                                         static_cast<Position>(prefix_length + p), home);
            state = states_of(*alone, {&row, 1});
        }
        CHECK(same_bits(std::span(logits).subspan(i * vocab, vocab),
                        logits_of(*alone, HeadId::Final, state)));
    }
}

TEST_CASE_TEMPLATE_DEFINE("nodes of a random tree have the bits of their paths fed alone",
                          Traits,
                          TreeNodes) {
    std::mt19937 rng{46};
    for (const Setting& setting : Traits::kSettings) {
        for (const std::size_t prefix : Traits::kPrefixes) check_tree<Traits>(setting, prefix, rng);
    }
}

TEST_CASE_TEMPLATE_DEFINE("rows of two requests in one batch do not touch each other's bits",
                          Traits,
                          TwoRequests) {
    constexpr std::size_t kTokens = Traits::kPairTokens;
    std::mt19937 rng{47};
    const ModelFile file = open_fixture("llama-q4_1");
    const int vocab_size = file.config().vocab_size;
    const std::vector<TokenId> texts[2] = {random_tokens(rng, vocab_size, kTokens),
                                           random_tokens(rng, vocab_size, kTokens)};
    const auto backend = Traits::make(file, {.threads = 2});
    const std::vector<KvSlot> all = scattered_slots(2 * kTokens, backend->kv_slots());
    const auto vocab = static_cast<std::size_t>(vocab_size);
    std::vector<float> got[2];
    for (std::size_t p = 0; p < kTokens; p += 10) {
        std::vector<Row> rows;
        for (std::size_t i = p; i < p + 10; ++i) {
            for (std::size_t r = 0; r < 2; ++r)
                rows.push_back(sequence_row(*backend, texts[r][i], static_cast<Position>(i),
                                            std::span(all).subspan(r * kTokens, kTokens)));
        }
        const std::vector<float> logits =
            logits_of(*backend, HeadId::Final, states_of(*backend, rows));
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto row = std::span(logits).subspan(i * vocab, vocab);
            got[i % 2].insert(got[i % 2].end(), row.begin(), row.end());
        }
    }
    for (std::size_t r = 0; r < 2; ++r)
        CHECK(same_bits(got[r], row_by_row<Traits>(file, {}, texts[r])));
}

TEST_CASE_TEMPLATE_DEFINE("the equality class names what bits depend on, and nothing else",
                          Traits,
                          EqualityClass) {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto class_of = [&](const What& what) {
        return Traits::make(file, what)->equality_class();
    };
    const What plain{.kv = KvType::F16};
    CHECK(class_of(plain) == class_of({.kv = KvType::F16, .kv_slots = 64, .threads = 2}));
    CHECK(class_of(plain) != class_of({.kv = KvType::F32}));
    CHECK(class_of(plain) != Traits::make(open_fixture("llama-q4_0"), plain)->equality_class());
    if (Traits::kHasDtypes)
        CHECK(class_of(plain) != class_of({.dtype = Dtype::BF16, .kv = KvType::F16}));
}

}  // namespace paceline::testing
