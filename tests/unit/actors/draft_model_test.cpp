#include "actors/draft/draft_model.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/toy/toy_backend.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

/// What a plain forward of all tokens says of the next one: fresh backend, one row per position.
std::vector<Candidate> plain_candidates(const std::vector<TokenId>& tokens,
                                        Position begin,
                                        int count,
                                        const SamplingParams& sampling,
                                        int vocab) {
    const std::vector<TokenId> known(tokens.begin() + begin, tokens.end());
    const auto length = static_cast<std::int32_t>(known.size());
    FakeBackend backend{0, kFakeLayers, length};
    std::vector<KvSlot> slots;
    for (KvSlot slot = 0; slot < length; ++slot) slots.push_back(slot);
    std::vector<Row> rows;
    for (std::int32_t p = 0; p < length; ++p) {
        rows.push_back({.token = known[static_cast<std::size_t>(p)],
                        .position = p,
                        .slot = p,
                        .prefix_slots = slots.data(),
                        .prefix_count = p + 1,
                        .last = 2 * kFakeLayers});
    }
    std::vector<float> hidden(rows.size() * kFakeDim);
    REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    std::vector<float> logits(kFakeVocab);
    backend.head(HeadId::Final, std::span{hidden}.last(kFakeDim), 1, logits);
    logits.resize(static_cast<std::size_t>(vocab), -std::numeric_limits<float>::infinity());
    SamplerScratch scratch;
    return candidates(logits, static_cast<Position>(tokens.size()),
                      {.committed = tokens, .path = {}}, sampling, count, scratch);
}

void check_same(const std::vector<Candidate>& said, const std::vector<Candidate>& expected) {
    REQUIRE(said.size() == expected.size());
    for (std::size_t i = 0; i < said.size(); ++i) {
        CHECK(said[i].token == expected[i].token);
        CHECK(said[i].log_prob == expected[i].log_prob);
    }
}

Request request_of(std::size_t length, std::mt19937_64& random) {
    Request request;
    for (std::size_t i = 0; i < length; ++i) {
        request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
    }
    request.context = 400;
    request.sampling.seed = random();
    if (random() % 2 == 0) request.sampling.temperature = 0.8F;
    if (random() % 2 == 0) {
        request.sampling.repetition_penalty = 1.2F;
        request.sampling.penalty_window = random() % 2 == 0 ? 7 : -1;
        request.sampling.penalty_begin = random() % 2 == 0 ? 0 : static_cast<Position>(length);
    }
    return request;
}

std::vector<TokenId> tokens_to(const DraftText& text, DraftNodeId node) {
    std::vector<TokenId> tokens = text.tokens;
    for (const DraftNode* step : text.tree.path(node)) {
        if (step->id != text.tree.root().id) tokens.push_back(step->token);
    }
    return tokens;
}

/// The tokens of a random path below the root, and then maybe one that was not proposed.
std::vector<TokenId> random_verdict(const DraftText& text, std::mt19937_64& random) {
    const auto nodes = text.tree.nodes();
    std::vector<TokenId> tokens = tokens_to(text, nodes[random() % nodes.size()].id);
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(text.tokens.size()));
    if (tokens.empty() || random() % 2 == 0) {
        tokens.push_back(static_cast<TokenId>(random() % kFakeVocab));
    }
    return tokens;
}

/// A text that one model computes, all by itself.
std::vector<NodeCandidates> pass(DraftModel& model, const std::vector<DraftExpansion>& expansions) {
    if (!model.prepare(expansions)) return {};
    return model.take(model.run(nullptr)).candidates;
}

}  // namespace

TEST_CASE("candidates are those of a plain forward of the whole path, whatever happened before") {
    std::size_t said_in_all = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        FakeBackend backend{0, kFakeLayers, 3 * 512};
        backend.draws_itself = seed % 2 == 0;
        backend.on_device = seed % 3 == 0;
        DraftModel model{
            backend,
            {.vocab_size = kFakeVocab, .rows_max = 4 + static_cast<std::uint32_t>(random() % 40)}};
        const std::int32_t pages = model.cache().free_pages();
        std::vector<std::shared_ptr<DraftText>> texts;
        for (int step = 0; step < 60; ++step) {
            if (texts.size() < 3 && random() % 4 != 0) {
                texts.push_back(std::make_shared<DraftText>(request_of(1 + random() % 70, random)));
                model.cache().open(*texts.back());
            }
            std::vector<DraftExpansion> expansions;
            std::map<std::pair<const DraftText*, DraftNodeId>, std::vector<Candidate>> expected;
            const int count = 1 + static_cast<int>(random() % 3);
            for (const auto& text : texts) {
                expansions.push_back({text, {}, count});
                for (const DraftNode& node : text->tree.nodes()) {
                    if (random() % 3 == 0) expansions.back().expand.push_back(node.id);
                }
            }
            if (!model.prepare(expansions)) continue;
            for (const auto& expansion : expansions) {
                for (const DraftNodeId id : expansion.expand) {
                    expected[{expansion.text.get(), id}] =
                        plain_candidates(tokens_to(*expansion.text, id), 0, count,
                                         expansion.text->sampling, kFakeVocab);
                }
            }
            CancelToken cancel;
            if (random() % 6 == 0) cancel.cancel();
            // Things happen while the job runs: some see them before it, some after.
            const auto meanwhile = [&] {
                for (auto& text : texts) {
                    if (random() % 3 == 0) (void)text->follow(random_verdict(*text, random));
                    if (random() % 40 == 0) text = nullptr;
                }
                std::erase(texts, nullptr);
            };
            const bool before = random() % 2 == 0;
            if (before) meanwhile();
            const RunOutcome outcome = model.run(&cancel);
            if (!before) meanwhile();
            for (const NodeCandidates& said : model.take(outcome).candidates) {
                check_same(said.candidates, expected.at({said.text.get(), said.node}));
                ++said_in_all;
                if (said.text->tree.find(said.node) != nullptr) {
                    said.text->tree.expand(said.node, said.candidates);
                }
            }
            for (const auto& text : texts) {
                const DraftNodeId at = text->tree.nodes()[random() % text->tree.nodes().size()].id;
                (void)text->tree.add(at, static_cast<TokenId>(random() % kFakeVocab), -0.5F,
                                     msg::Origin::Exit);
                if (random() % 3 == 0) (void)text->follow(random_verdict(*text, random));
            }
            std::erase_if(texts, [](const auto& text) { return text->tokens.size() > 330; });
        }
        texts.clear();
        CHECK(model.cache().free_pages() == pages);
    }
    CHECK(said_in_all > 2000);
}

TEST_CASE("a prompt is read in passes of rows_max, and the candidates are the same") {
    std::mt19937_64 random{5};
    Request request = request_of(700, random);
    request.context = 800;
    for (const std::uint32_t rows_max : {64U, 200U, 512U, 800U}) {
        CAPTURE(rows_max);
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftModel model{backend, {.vocab_size = kFakeVocab, .rows_max = rows_max}};
        const auto text = std::make_shared<DraftText>(request);
        model.cache().open(*text);
        std::vector<NodeCandidates> said;
        std::uint32_t passes = 0;
        while (said.empty()) {
            said = pass(model, {{text, {text->tree.root().id}, 3}});
            REQUIRE(++passes <= 11);
        }
        CHECK(passes == (700 + rows_max - 1) / rows_max);
        check_same(said.front().candidates,
                   plain_candidates(text->tokens, 0, 3, request.sampling, kFakeVocab));
    }
}

TEST_CASE("what is in the cache is not computed again") {
    std::mt19937_64 random{3};
    FakeBackend backend{0, kFakeLayers, 512};
    DraftModel model{backend, {.vocab_size = kFakeVocab, .rows_max = 16}};
    const auto text = std::make_shared<DraftText>(request_of(40, random));
    model.cache().open(*text);
    const DraftNodeId root = text->tree.root().id;
    CHECK(pass(model, {{text, {root}, 1}}).empty());  // 16 of 39 tokens
    CHECK(pass(model, {{text, {root}, 1}}).empty());
    std::vector<NodeCandidates> said = pass(model, {{text, {root}, 2}});
    REQUIRE(said.size() == 1);
    CHECK(backend.rows_run == 40);
    text->tree.expand(root, said[0].candidates);
    const DraftNodeId first = text->tree.trunk_child(root)->id;
    const TokenId token = text->tree.find(first)->token;
    CHECK(pass(model, {{text, {first}, 1}}).size() == 1);
    CHECK(backend.rows_run == 41);
    const std::vector<TokenId> verdict{token};
    CHECK(text->follow(verdict).prepared);  // its row is in the cache, and it is the root now
    (void)text->tree.add(first, 5, -1.0F, msg::Origin::Trunk);
    CHECK(pass(model, {{text, {text->tree.child(first, 5)->id}, 1}}).size() == 1);
    CHECK(backend.rows_run == 42);
    const std::vector<TokenId> miss{6, 7};
    (void)text->follow(miss);
    CHECK(pass(model, {{text, {text->tree.root().id}, 1}}).size() == 1);
    CHECK(backend.rows_run == 44);  // 6 and 7
}

TEST_CASE("keys and values of another process save the row, and give the same candidates") {
    std::mt19937_64 random{4};
    FakeBackend backend{0, kFakeLayers, 512};
    FakeBackend other_backend{0, kFakeLayers, 512};
    DraftModel model{backend, {.vocab_size = kFakeVocab}};
    DraftModel other{other_backend, {.vocab_size = kFakeVocab}};
    const Request request = request_of(20, random);
    const auto text = std::make_shared<DraftText>(request);
    const auto here = std::make_shared<DraftText>(request);
    model.cache().open(*text);
    other.cache().open(*here);
    const DraftNodeId root = text->tree.root().id;
    const DraftNodeId a = *text->tree.add(root, 3, -0.1F, msg::Origin::Trunk);
    const DraftNodeId b = *here->tree.add(here->tree.root().id, 3, -0.1F, msg::Origin::Trunk);
    const DraftNodeId name = *here->tree.add(b, 9, -0.1F, msg::Origin::Exit);
    (void)pass(model, {{text, {a}, 1}});
    std::vector<std::byte> kv(backend.kv_bytes());
    backend.read_kv(text->tree.find(a)->slot, kv);
    CHECK_FALSE(other.write_kv(*here, b, kv));  // what is above it is missing
    for (Position p = 0; p < 19; ++p) {         // the text, then its root
        std::vector<std::byte> one(kv.size());
        backend.read_kv(text->cache->slots.committed()[static_cast<std::size_t>(p)], one);
        CHECK(other.write_kv_at(*here, p, one));
        CHECK_FALSE(other.write_kv_at(*here, p, one));
    }
    std::vector<std::byte> of_root(kv.size());
    backend.read_kv(text->tree.root().slot, of_root);
    CHECK(other.write_kv(*here, here->tree.root().id, of_root));
    CHECK(other.write_kv(*here, b, kv));
    CHECK_FALSE(other.write_kv(*here, b, kv));
    const std::vector<NodeCandidates> said = pass(other, {{here, {name}, 2}});
    CHECK(other_backend.rows_run == 1);
    REQUIRE(said.size() == 1);
    check_same(said[0].candidates,
               plain_candidates(tokens_to(*here, name), 0, 2, request.sampling, kFakeVocab));
}

TEST_CASE("a vocabulary smaller than the target's: silence, then a new beginning after the token") {
    std::mt19937_64 random{5};
    constexpr int kLarger = kFakeVocab + 12;
    FakeBackend backend{0, kFakeLayers, 512};
    DraftModel model{backend, {.vocab_size = kLarger}};
    Request request = request_of(10, random);
    request.sampling = {};
    const auto text = std::make_shared<DraftText>(request);
    model.cache().open(*text);
    const DraftNodeId root = text->tree.root().id;
    const DraftNodeId unknown = *text->tree.add(root, kFakeVocab + 3, -0.1F, msg::Origin::Exit);
    CHECK(pass(model, {{text, {root, unknown}, 1}}).size() == 1);
    CHECK(text->tree.find(unknown)->expanded);  // nothing will ever be said after it
    const std::vector<TokenId> verdict{kFakeVocab + 3};
    (void)text->follow(verdict);
    for (int i = 0; i < 15; ++i) {
        CHECK_FALSE(model.cache().knows(*text));
        CHECK(pass(model, {{text, {text->tree.root().id}, 1}}).empty());
        const std::vector<TokenId> next{static_cast<TokenId>(random() % kFakeVocab)};
        (void)text->follow(next);
    }
    CHECK_FALSE(model.cache().knows(*text));
    const std::vector<TokenId> last{1};
    (void)text->follow(last);
    REQUIRE(model.cache().knows(*text));
    const std::vector<NodeCandidates> said = pass(model, {{text, {text->tree.root().id}, 3}});
    REQUIRE(said.size() == 1);
    check_same(said[0].candidates, plain_candidates(text->tokens, 11, 3, {}, kLarger));
}

TEST_CASE("a padded vocabulary is never proposed from") {
    std::mt19937_64 random{6};
    for (const bool on_a_device : {false, true}) {
        CAPTURE(on_a_device);
        FakeBackend backend{0, kFakeLayers, 512};
        backend.draws_itself = on_a_device;
        backend.on_device = on_a_device;
        DraftModel model{backend, {.vocab_size = 10}};
        Request request;
        request.context = 200;
        for (int i = 0; i < 30; ++i) request.text.push_back(static_cast<TokenId>(random() % 10));
        const auto text = std::make_shared<DraftText>(request);
        model.cache().open(*text);
        const std::vector<NodeCandidates> said = pass(model, {{text, {text->tree.root().id}, 12}});
        REQUIRE(said.size() == 1);
        CHECK(said[0].candidates.size() == 10);
        for (const Candidate& one : said[0].candidates) CHECK(one.token < 10);
    }
}

TEST_CASE("tokens beyond the shared ones are never proposed, whichever vocabulary is larger") {
    for (const int target_vocab : {kFakeVocab - 7, kFakeVocab, kFakeVocab + 9}) {
        for (const bool on_a_device : {false, true}) {
            CAPTURE(target_vocab);
            CAPTURE(on_a_device);
            FakeBackend backend{0, kFakeLayers, 512};
            backend.draws_itself = on_a_device;
            backend.on_device = on_a_device;
            DraftModel model{backend, {.vocab_size = target_vocab, .shared_tokens = 10}};
            Request request;
            request.context = 200;
            for (int i = 0; i < 30; ++i) request.text.push_back(i * 7 % 10);
            const auto text = std::make_shared<DraftText>(request);
            model.cache().open(*text);
            const bool drawn_there = on_a_device && target_vocab == kFakeVocab;
            const int asked = drawn_there ? backend.candidates_max() : kFakeVocab;
            const auto said = pass(model, {{text, {text->tree.root().id}, asked}});
            REQUIRE(said.size() == 1);
            CHECK(!said[0].candidates.empty());
            if (!drawn_there) CHECK(said[0].candidates.size() == 10);
            for (const Candidate& one : said[0].candidates) CHECK(one.token < 10);
        }
    }
}

TEST_CASE("without pages a request has no model, and it gets one when another one goes") {
    std::mt19937_64 random{7};
    FakeBackend backend{0, kFakeLayers, 64};
    DraftModel model{backend, {.vocab_size = kFakeVocab}};
    auto first = std::make_shared<DraftText>(request_of(40, random));
    const auto second = std::make_shared<DraftText>(request_of(5, random));
    model.cache().open(*first);
    model.cache().open(*second);
    CHECK(pass(model, {{first, {first->tree.root().id}, 1}}).size() == 1);
    CHECK(model.cache().knows(*second));
    CHECK(pass(model, {{second, {second->tree.root().id}, 1}}).empty());
    CHECK_FALSE(model.cache().knows(*second));
    first = nullptr;
    CHECK(model.cache().knows(*second));
    CHECK(pass(model, {{second, {second->tree.root().id}, 1}}).size() == 1);
}

TEST_CASE("a pass that found no page for a text leaves nothing of it to the next one") {
    std::mt19937_64 random{8};
    FakeBackend backend{0, kFakeLayers, 64};
    DraftModel model{backend, {.vocab_size = kFakeVocab + 12, .rows_max = 32}};
    auto first = std::make_shared<DraftText>(request_of(33, random));
    auto second = std::make_shared<DraftText>(request_of(40, random));
    model.cache().open(*second);
    CHECK(pass(model, {{second, {}, 1}}).empty());
    REQUIRE(second->cache->cached() == 32);  // one of two pages
    model.cache().open(*first);
    CHECK(pass(model, {{first, {}, 1}}).empty());
    CHECK_FALSE(model.prepare(std::vector<DraftExpansion>{{second, {}, 1}}));
    // The text begins behind a token that the model does not know, and the next pass is cancelled.
    (void)second->follow(std::vector<TokenId>{kFakeVocab + 3});
    REQUIRE(model.prepare(
        std::vector<DraftExpansion>{{second, {}, 1}, {first, {first->tree.root().id}, 1}}));
    CHECK(second->cache->cached() == 41);
    CHECK(model.take(RunOutcome::Cancelled).candidates.empty());
    CHECK(second->cache->cached() == 41);
    CHECK(pass(model, {{first, {first->tree.root().id}, 1}}).size() == 1);
    CHECK_FALSE(model.prepare(std::vector<DraftExpansion>{{second, {}, 1}}));
    const std::weak_ptr<DraftText> ended = second;
    second = nullptr;
    CHECK(ended.expired());
}
