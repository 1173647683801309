// DraftModel over an EAGLE draft: features of committed text, commits, rollbacks, lost features.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "actors/draft/draft_model.hpp"
#include "tests/unit/eagle/eagle_fixture.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

/// A text at the draft, and the features that the draft was told of.
struct KnownText {
    std::shared_ptr<DraftText> text;
    std::map<Position, std::vector<float>> told;
};

DraftModelOptions options_of(const EagleBackend& backend, bool target_features) {
    return {.head = kEagleHead,
            .vocab_size = backend.config().vocab_size,
            .rows_max = 48,
            .target_features = target_features};
}

std::shared_ptr<DraftText> random_text(std::mt19937& random, int vocab, std::size_t length) {
    Request request;
    request.text = random_tokens(random, vocab, length);
    request.context = 300;
    return std::make_shared<DraftText>(request);
}

/// Tells the model of some of the positions [first, end).
void tell(DraftModel& model, KnownText& known, Position first, Position end, std::mt19937& random) {
    const std::size_t width = model.backend().feature_slots()->width();
    for (Position p = first; p < end; ++p) {
        if (random() % 4 == 0) continue;  // lost
        known.told[p] = normal_numbers(random, width, 0.0F, 2.0F);
        REQUIRE(model.features().receive(*known.text, p, known.told[p], width));
    }
}

/// What a fresh pass over the text, with its features, and a path says of the next token.
std::vector<Candidate> fresh(EagleBackend& backend,
                             const std::vector<TokenId>& tokens,
                             const std::map<Position, std::vector<float>>& told,
                             int count) {
    const std::vector<KvSlot> slots = home_slots(tokens.size());
    for (const KvSlot slot : slots) backend.forget(slot);
    for (const auto& [position, states] : told)
        backend.give(slots[static_cast<std::size_t>(position)], states);
    const std::vector<float> hidden = states_of(backend, text_rows(backend, tokens, slots));
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    const std::span<const TokenId> list = backend.short_list(kEagleHead);
    std::vector<float> logits(list.size());
    backend.head_listed(kEagleHead, std::span{hidden}.last(dim), 1, logits);
    std::vector<float> row(static_cast<std::size_t>(backend.config().vocab_size));
    SamplerScratch scratch;
    return listed_candidates(logits, list, row, static_cast<Position>(tokens.size()),
                             {.committed = {}, .path = {}}, {}, count, scratch);
}

std::vector<TokenId> tokens_to(const DraftText& text, DraftNodeId node) {
    std::vector<TokenId> tokens = text.tokens;
    for (const DraftNode* step : text.tree.path(node)) {
        if (step->id != text.tree.root().id) tokens.push_back(step->token);
    }
    return tokens;
}

}  // namespace

TEST_CASE("after any accepts and rejects candidates are those of a fresh pass over text and path") {
    const EagleFixture eagle{"llama-q4_1"};
    const auto backend = eagle.backend({.kv_slots = 2048});
    const auto oracle = eagle.backend();
    const int vocab = eagle.target.config().vocab_size;
    std::mt19937 random{21};
    DraftModel model{*backend, options_of(*backend, true)};
    std::vector<KnownText> texts;
    for (const std::size_t length : {2U, 30U, 55U}) {
        texts.push_back({random_text(random, vocab, length), {}});
        model.cache().open(*texts.back().text);
        tell(model, texts.back(), 0, static_cast<Position>(length), random);
        texts.back().text->follow(random_tokens(random, vocab, 1));
    }
    int checked = 0;
    for (int step = 0; step < 40; ++step) {
        std::vector<DraftExpansion> expansions;
        for (const KnownText& known : texts) {
            expansions.push_back({known.text, {}, 3});
            for (const DraftNode& node : known.text->tree.nodes()) {
                if (!node.expanded && random() % 2 == 0)
                    expansions.back().expand.push_back(node.id);
            }
        }
        if (!model.prepare(expansions)) continue;
        for (const NodeCandidates& said : model.take(model.run(nullptr)).candidates) {
            const auto of = std::find_if(texts.begin(), texts.end(), [&](const KnownText& known) {
                return known.text == said.text;
            });
            if (said.text->tree.find(said.node) == nullptr) continue;
            const auto want = fresh(*oracle, tokens_to(*said.text, said.node), of->told, 3);
            REQUIRE(said.candidates.size() == want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                CHECK(said.candidates[i].token == want[i].token);
                CHECK(said.candidates[i].log_prob == want[i].log_prob);
            }
            said.text->tree.expand(said.node, said.candidates);
            ++checked;
        }
        // A verdict: some node's path, or another token; features of the new text come before it.
        KnownText& known = texts[random() % texts.size()];
        const auto nodes = known.text->tree.nodes();
        std::vector<TokenId> more = tokens_to(*known.text, nodes[random() % nodes.size()].id);
        more.erase(more.begin(), more.begin() + static_cast<long>(known.text->tokens.size()));
        if (more.empty() || random() % 2 == 0) more.push_back(random_tokens(random, vocab, 1)[0]);
        if (known.text->tokens.size() + more.size() >= 100) continue;
        const auto root = static_cast<Position>(known.text->tokens.size()) - 1;
        tell(model, known, root, root + static_cast<Position>(more.size()), random);
        known.text->follow(more);
        // Nodes that stay were computed with the draft's own outputs in the place of these.
        known.text->tree.drop_slots();
    }
    CHECK(checked > 60);
}

TEST_CASE("features of committed text are the bits that were sent, in the slots of the text") {
    const EagleFixture eagle{"llama-f32"};
    const auto backend = eagle.backend();
    std::mt19937 random{22};
    const int vocab = eagle.target.config().vocab_size;
    DraftModel model{*backend, options_of(*backend, true)};
    KnownText known{random_text(random, vocab, 20), {}};
    model.cache().open(*known.text);
    tell(model, known, 0, 20, random);
    known.text->follow(random_tokens(random, vocab, 1));
    REQUIRE(
        model.prepare(std::vector<DraftExpansion>{{known.text, {known.text->tree.root().id}, 2}}));
    CHECK(model.pass().rows().size() == 21);
    (void)model.take(model.run(nullptr));
    const std::vector<KvSlot>& slots = known.text->cache->slots.committed();
    REQUIRE(slots.size() == 20);
    for (Position p = 0; p < 20; ++p) {
        CAPTURE(p);
        const KvSlot slot = slots[static_cast<std::size_t>(p)];
        const bool sent = known.told.contains(p);
        CHECK(backend->given(slot) == sent);
        if (sent) CHECK(same_bits(backend->feature(slot), known.told.at(p)));
    }
    CHECK(known.text->cache->features.empty());
}

TEST_CASE("a text waits for its first verdict where the target sends features, else for nothing") {
    const EagleFixture eagle{"llama-f32"};
    std::mt19937 random{23};
    for (const bool target_features : {false, true}) {
        CAPTURE(target_features);
        const auto backend = eagle.backend();
        DraftModel model{*backend, options_of(*backend, target_features)};
        const auto text = random_text(random, eagle.target.config().vocab_size, 5);
        model.cache().open(*text);
        CHECK(model.cache().knows(*text) == !target_features);
        text->follow(std::vector<TokenId>{3});
        CHECK(model.cache().knows(*text));
    }
}

TEST_CASE("features of a cancelled pass are not lost, and those of another width are refused") {
    const EagleFixture eagle{"llama-f32", {1, 2}};
    const auto backend = eagle.backend();
    std::mt19937 random{24};
    DraftModel model{*backend, options_of(*backend, true)};
    KnownText known{random_text(random, eagle.target.config().vocab_size, 8), {}};
    const std::size_t width = backend->width();
    CHECK_FALSE(model.features().receive(*known.text, 0, std::vector<float>(width / 2), width / 2));
    CHECK_FALSE(model.features().receive(*known.text, 0, std::vector<float>(width + 1), width));
    model.cache().open(*known.text);
    known.told[2] = normal_numbers(random, width, 0.0F, 2.0F);
    REQUIRE(model.features().receive(*known.text, 2, known.told[2], width));
    const Position end = known.text->cache->positions;  // the second of these is beyond it
    CHECK(model.features().receive(*known.text, end - 1, std::vector<float>(2 * width), width));
    CHECK(known.text->cache->features.size() == 2);
    known.text->follow(std::vector<TokenId>{3});
    const std::vector<DraftExpansion> root{{known.text, {known.text->tree.root().id}, 2}};
    REQUIRE(model.prepare(root));
    (void)model.take(RunOutcome::Cancelled);
    CHECK(known.text->cache->features.contains(2));
    REQUIRE(model.prepare(root));
    const auto said = model.take(model.run(nullptr)).candidates;
    CHECK_FALSE(known.text->cache->features.contains(2));
    const auto oracle = eagle.backend();
    const auto want = fresh(*oracle, known.text->tokens, known.told, 2);
    REQUIRE(said.size() == 1);
    CHECK(said[0].candidates[0].token == want[0].token);
    CHECK(said[0].candidates[0].log_prob == want[0].log_prob);
}

TEST_CASE("features of all texts that wait for their slots are limited, a text's newest are kept") {
    const EagleFixture eagle{"llama-f32"};
    const auto backend = eagle.backend();
    std::mt19937 random{25};
    DraftModel model{*backend, options_of(*backend, true)};
    std::vector<std::shared_ptr<DraftText>> texts;
    std::size_t kept = 0;
    const auto open = [&] {
        texts.push_back(random_text(random, eagle.target.config().vocab_size, 5));
        model.cache().open(*texts.back());
        const auto positions = static_cast<std::size_t>(texts.back()->cache->positions);
        const std::vector<float> states(positions * backend->width());
        REQUIRE(model.features().receive(*texts.back(), 0, states, backend->width()));
        kept += texts.back()->cache->features.size();
        return texts.back()->cache->features.size() == positions;
    };
    while (open()) REQUIRE(kept <= kFeaturesKeptMax);
    CHECK(kept == kFeaturesKeptMax);
    const auto& features = texts.back()->cache->features;
    const Position end = texts.back()->cache->positions;
    for (const auto& [position, feature] : features)
        CHECK(position >= end - static_cast<Position>(features.size()));
    texts.clear();  // gives all of them back
    CHECK(open());
}

TEST_CASE("a text of many tokens without features begins behind all but the last of these") {
    const EagleFixture eagle{"llama-f32"};
    std::mt19937 random{26};
    for (const bool told : {false, true}) {
        CAPTURE(told);
        const auto backend = eagle.backend();
        DraftModel model{*backend, options_of(*backend, true)};
        const auto text = random_text(random, eagle.target.config().vocab_size, 90);
        model.cache().open(*text);
        const std::size_t width = backend->width();
        if (told)
            REQUIRE(model.features().receive(*text, 0, std::vector<float>(30 * width), width));
        text->follow(std::vector<TokenId>{3});
        const std::vector<DraftExpansion> root{{text, {text->tree.root().id}, 2}};
        std::size_t rows = 0;
        std::vector<NodeCandidates> said;
        while (said.empty()) {
            REQUIRE(model.prepare(root));
            rows += model.pass().rows().size();
            said = model.take(model.run(nullptr)).candidates;
        }
        CHECK(text->cache->begin == (told ? 0 : 26));
        CHECK(rows == (told ? 91U : 65U));
    }
}
