// A DraftModel that leaves sub-layers out, on the real kernels.
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "actors/draft/draft_model.hpp"
#include "actors/draft/layer_chooser.hpp"
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
    std::vector<KvSlot> slots(tokens.size());
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<Row> rows = text_rows(*backend, tokens, slots);
    for (Row& row : rows) {
        if (!whole_text || row.position + 1 >= static_cast<Position>(text)) row.mask = &mask;
    }
    const std::vector<float> hidden = states_of(*backend, rows);
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::vector<float> logits = logits_of(*backend, HeadId::Final, std::span{hidden}.last(dim));
    SamplerScratch scratch;
    return candidates(logits, static_cast<Position>(tokens.size()), {.committed = {}, .path = {}},
                      {}, 3, scratch);
}

struct Draft {
    Draft(const ModelFile& of, bool whole_text, std::mt19937& random)
        : file{of}, whole{whole_text} {
        CpuOptions options{.kv_slots = 1024};
        if (!whole) options.skipped = some_skipped(file).mask();
        backend = make_backend(file, options);
        model = std::make_unique<DraftModel>(
            *backend, DraftModelOptions{.vocab_size = file.config().vocab_size,
                                        .skip = some_skipped(file),
                                        .whole_text = whole});
        Request request;
        request.text = random_tokens(random, file.config().vocab_size, 40);
        request.context = 300;
        text = std::make_shared<DraftText>(request);
        model->cache().open(*text);
    }
    std::vector<NodeCandidates> expand(DraftNodeId node) {
        const std::vector<DraftExpansion> expansions{{text, {node}, 3}};
        if (!model->prepare(expansions)) return {};
        return model->take(model->run(nullptr)).candidates;
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

/// The residuals of one token, `elements` numbers from `layer` on.
msg::TensorNote tap(std::uint32_t layer, std::uint32_t elements, Position position) {
    msg::TensorNote note{};
    note.route = {RequestId{1}, Attempt{1}, Epoch{1}};
    note.role = msg::TensorRole::Tap;
    note.type = msg::TensorType::F32;
    note.layer = layer;
    note.first_position = position;
    note.rows = 1;
    note.row_elements = elements;
    return note;
}

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
            // Two candidates become text, which for a whole text are read again, then another
            // token.
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
    std::vector<std::byte> bytes(draft.model->backend().kv_bytes());
    draft.text->follow(std::vector<TokenId>{draft.trunk_token(1), 5});
    CHECK_FALSE(draft.model->write_kv_at(*draft.text, draft.text->cache->cached(), bytes));
    Draft same{file, false, random};
    same.check_chain(2);
    same.text->follow(std::vector<TokenId>{same.trunk_token(1), 5, 6});
    bytes.resize(same.model->backend().kv_bytes());
    CHECK(same.model->write_kv_at(*same.text, same.text->cache->cached(), bytes));
}

TEST_CASE("the layers of a draft are those that the programme finds on the whole model") {
    const ModelFile file = open_fixture("llama-q4_1");
    const int layers = file.config().layers;
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::mt19937 random{5};
    Draft draft{file, true, random};
    const LayerSkipDpOptions options{.layers = layers, .skip = 1, .keep_first = 1, .keep_last = 0};
    LayerChooser choice{*draft.model, options};
    draft.check_chain(2);
    draft.text->follow(std::vector<TokenId>{draft.trunk_token(1), 5, 6});
    // What the target made of the last accepted token, the last but one.
    const std::vector<TokenId>& text = draft.text->tokens;
    const auto position = static_cast<Position>(text.size()) - 2;
    const auto target = make_backend(file, {.kv_slots = 512});
    std::vector<KvSlot> slots(text.size());
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<float> stack(static_cast<std::size_t>(2 * layers) * dim);
    std::vector<Row> rows = text_rows(*target, std::span{text}.first(text.size() - 1), slots);
    rows.back().stack = stack.data();
    (void)states_of(*target, rows);
    std::vector<float> residuals;
    for (int layer = 0; layer < layers; ++layer) {
        const auto from = stack.begin() + static_cast<std::ptrdiff_t>((2 * layer + 1) * dim);
        residuals.insert(residuals.end(), from, from + static_cast<std::ptrdiff_t>(dim));
    }
    // Two segments send it, the later one first; a part of another position is dropped by the next.
    const auto note = [&](int first, int count, Position at) {
        return tap(static_cast<std::uint32_t>(first),
                   static_cast<std::uint32_t>(count) * static_cast<std::uint32_t>(dim), at);
    };
    const std::span<float> all{residuals};
    REQUIRE(choice.taps().take(note(0, 1, position - 1), all.first(dim)).ok());
    REQUIRE(choice.taps().take(note(1, layers - 1, position), all.subspan(dim)).ok());
    CHECK_FALSE(choice.taps().complete());
    REQUIRE(choice.taps().take(note(0, 1, position), all.first(dim)).ok());
    REQUIRE(choice.taps().complete());
    CHECK_FALSE(choice.can_run(*draft.text));  // the text is not read up to there
    CHECK(draft.expand(draft.text->tree.root().id).size() == 1);
    REQUIRE(choice.can_run(*draft.text));
    choice.prepare(draft.text);
    REQUIRE(choice.run() == RunOutcome::Done);
    (void)choice.finish(RunOutcome::Done);
    CHECK(choice.made() == 1);

    std::vector<float> whole(dim);  // what is before the first layer is not read
    whole.insert(whole.end(), residuals.begin(), residuals.end());
    const LayerSkipDpResult expected =
        choose_layers(whole, options, [&](int layer, std::span<float> states) {
            std::vector<Row> of_layer;
            std::vector<KvSlot> own;
            own.reserve(4);
            for (std::size_t i = 0; i * dim < states.size(); ++i) {
                own.push_back(300 + static_cast<KvSlot>(i));
                of_layer.push_back({.position = position,
                                    .slot = own.back(),
                                    .prefix_slots = slots.data(),
                                    .prefix_count = position,
                                    .path_slots = &own.back(),
                                    .path_count = 1,
                                    .first = 2 * layer,
                                    .last = 2 * layer + 2});
            }
            return target->run_layers(of_layer, states, nullptr) == RunOutcome::Done;
        });
    REQUIRE(expected.done);
    CHECK(draft.model->skip() == expected.set);
}

TEST_CASE("a tap that does not fit the model is refused") {
    const ModelFile file = open_fixture("llama-q4_1");
    std::mt19937 random{6};
    Draft draft{file, true, random};
    LayerChooser choice{*draft.model, {.layers = file.config().layers, .skip = 1}};
    const auto dim = static_cast<std::uint32_t>(file.config().dim);
    std::vector<float> numbers(std::size_t{4} * dim);
    const auto refused = [&](std::uint32_t layer, std::uint32_t elements, msg::TensorRole role) {
        msg::TensorNote note = tap(layer, elements, 0);
        note.role = role;
        return !choice.taps().take(note, std::span{numbers}.first(elements)).ok();
    };
    const auto layers = static_cast<std::uint32_t>(file.config().layers);
    CHECK(refused(layers, dim, msg::TensorRole::Tap));
    CHECK(refused(layers - 1, 2 * dim, msg::TensorRole::Tap));
    CHECK(refused(0, dim - 1, msg::TensorRole::Tap));
    CHECK(refused(0, dim, msg::TensorRole::Keys));
    CHECK_FALSE(refused(0, dim, msg::TensorRole::Tap));
}
