// A DraftModel that leaves sub-layers out, on the real kernels.
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "actors/draft/draft_model.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

SkipSet some_skipped(const ModelFile& file) {
    SkipSet set{file.config().layers};
    set.set(1, true);
    set.set(2, true);
    return set;
}

/// The candidates after `tokens`, of which the first `text` are committed.
std::vector<Candidate> plain(const ModelFile& file,
                             const std::vector<TokenId>& tokens,
                             std::size_t text,
                             bool whole_text) {
    const auto backend = make_backend(file, {.kv_slots = 512});
    const SublayerMask mask = some_skipped(file).mask();
    std::vector<KvSlot> slots;
    std::vector<Row> rows;
    slots.reserve(tokens.size());
    for (std::size_t p = 0; p < tokens.size(); ++p) {
        slots.push_back(static_cast<KvSlot>(p));
        rows.push_back({.token = tokens[p],
                        .position = static_cast<Position>(p),
                        .slot = slots.back(),
                        .prefix_slots = slots.data(),
                        .prefix_count = static_cast<std::int32_t>(p) + 1,
                        .last = file.config().sublayers(),
                        .mask = whole_text && p + 1 < text ? nullptr : &mask});
    }
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::vector<float> hidden(rows.size() * dim);
    REQUIRE(backend->run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    std::vector<float> logits(static_cast<std::size_t>(file.config().vocab_size));
    backend->head(HeadId::Final, std::span{hidden}.last(dim), 1, logits);
    SamplerScratch scratch;
    return candidates(logits, static_cast<Position>(tokens.size()), {.committed = {}, .path = {}},
                      {}, 3, scratch);
}

struct Draft {
    Draft(const ModelFile& of, bool whole_text, std::mt19937& random) : file{of}, whole{whole_text} {
        CpuOptions options{.kv_slots = 1024};
        if (!whole) options.left_out = some_skipped(file).mask();
        backend = make_backend(file, options);
        model = std::make_unique<DraftModel>(
            *backend, DraftModelOptions{.vocab_size = file.config().vocab_size,
                                        .skip = some_skipped(file),
                                        .whole_text = whole});
        Request request;
        request.text = random_tokens(random, file.config().vocab_size, 40);
        request.context = 300;
        text = std::make_shared<DraftText>(request);
        model->open(*text);
    }
    std::vector<DraftModel::Said> expand(DraftNodeId node) {
        const std::vector<DraftModel::Wish> wishes{{text, {node}, 3}};
        if (!model->prepare(wishes)) return {};
        return model->take(model->run(nullptr)).said;
    }
    /// Grows a chain below the root and compares each step with a plain forward.
    void check_chain(int length) {
        for (int i = 0; i < length; ++i) {
            CAPTURE(i);
            const DraftNodeId leaf = text->tree.trunk().back();
            const auto said = expand(leaf);
            REQUIRE(said.size() == 1);
            std::vector<TokenId> tokens = text->tokens;
            for (const DraftNode* step : text->tree.path(leaf)) {
                if (step->id != text->tree.root().id) tokens.push_back(step->token);
            }
            const auto expected = plain(file, tokens, text->tokens.size(), whole);
            REQUIRE(said[0].candidates.size() == expected.size());
            for (std::size_t c = 0; c < expected.size(); ++c) {
                CHECK(said[0].candidates[c].token == expected[c].token);
                CHECK(said[0].candidates[c].log_prob == expected[c].log_prob);
            }
            text->tree.expand(leaf, said[0].candidates);
        }
    }
    /// The token that the tree has at `depth` of its trunk.
    [[nodiscard]] TokenId trunk_token(std::size_t depth) const {
        return text->tree.find(text->tree.trunk().at(depth))->token;
    }

    const ModelFile& file;
    bool whole;
    std::unique_ptr<CpuBackend> backend;
    std::unique_ptr<DraftModel> model;
    std::shared_ptr<DraftText> text;
};

}  // namespace

TEST_CASE("candidates leave sub-layers out; the text does so only where it is not read whole") {
    const ModelFile file = open_fixture("llama-q4_1");
    for (const bool whole : {false, true}) {
        CAPTURE(whole);
        std::mt19937 random{3};
        Draft draft{file, whole, random};
        CHECK(draft.model->layers() == static_cast<std::uint32_t>(file.config().layers) - 1);
        draft.check_chain(4);
        for (int turn = 0; turn < 4; ++turn) {
            // Two candidates become text, which for a whole text are read again, then another token.
            const TokenId other = (draft.trunk_token(3) + 1) % file.config().vocab_size;
            draft.text->follow(
                std::vector<TokenId>{draft.trunk_token(1), draft.trunk_token(2), other});
            draft.check_chain(4);
        }
        const auto text = static_cast<Position>(draft.text->tokens.size());
        CHECK(draft.text->cache->slots.in_use() == text + 3);  // the chain's first nodes
    }
}

TEST_CASE("a text that is read whole takes no keys and values that another process has skipped") {
    const ModelFile file = open_fixture("llama-q4_1");
    std::mt19937 random{4};
    Draft draft{file, true, random};
    draft.check_chain(2);
    std::vector<std::byte> bytes(draft.model->kv_bytes());
    draft.text->follow(std::vector<TokenId>{draft.trunk_token(1), 5});
    CHECK_FALSE(draft.model->write_kv_at(*draft.text, draft.text->cache->cached(), bytes));
    Draft same{file, false, random};
    same.check_chain(2);
    same.text->follow(std::vector<TokenId>{same.trunk_token(1), 5, 6});
    bytes.resize(same.model->kv_bytes());
    CHECK(same.model->write_kv_at(*same.text, same.text->cache->cached(), bytes));
}
