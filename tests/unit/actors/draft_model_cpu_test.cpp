// DraftModel and DraftActor on the real kernels: the first layers of a file, with a short list.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

constexpr HeadId kShort{1};

/// All layers but the last, and a head that knows two thirds of the tokens.
std::unique_ptr<CpuBackend> draft_backend(const ModelFile& file) {
    CpuOptions options{.last_layer = file.config().layers - 1, .kv_slots = 2048};
    HeadSpec head;
    for (TokenId t = 0; t < file.config().vocab_size; ++t) {
        if (t % 3 != 1) head.tokens.push_back(t);
    }
    options.heads.push_back(std::move(head));
    return make_backend(file, options);
}

/// What a forward of all tokens says of the next one, position p in slot p.
std::vector<Candidate> plain(CpuBackend& backend,
                             const std::vector<TokenId>& tokens,
                             const SamplingParams& sampling,
                             int count) {
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
                        .last = 2 * backend.last_layer()});
    }
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    std::vector<float> hidden(rows.size() * dim);
    REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    std::vector<float> row(static_cast<std::size_t>(backend.config().vocab_size));
    const std::span<const TokenId> list = backend.short_list(kShort);
    std::vector<float> logits(list.size());
    backend.head_listed(kShort, std::span{hidden}.last(dim), 1, logits);
    SamplerScratch scratch;
    return listed_candidates(logits, list, row, static_cast<Position>(tokens.size()),
                             {.committed = {}, .path = {}}, sampling, count, scratch);
}

void check_same(const std::vector<Candidate>& said, const std::vector<Candidate>& expected) {
    REQUIRE(said.size() == expected.size());
    for (std::size_t i = 0; i < said.size(); ++i) {
        CHECK(said[i].token == expected[i].token);
        CHECK(said[i].log_prob == expected[i].log_prob);
    }
}

std::shared_ptr<DraftText> random_text(std::mt19937& random, int vocab, std::size_t length) {
    Request request;
    request.text = random_tokens(random, vocab, length);
    request.context = 300;
    request.sampling.seed = random();
    if (random() % 2 == 0) request.sampling.temperature = 0.8F;
    return std::make_shared<DraftText>(request);
}

std::vector<TokenId> tokens_to(const DraftText& text, DraftNodeId node) {
    std::vector<TokenId> tokens = text.tokens;
    for (const DraftNode* step : text.tree.path(node)) {
        if (step->id != text.tree.root().id) tokens.push_back(step->token);
    }
    return tokens;
}

DraftModelOptions options_of(const CpuBackend& backend) {
    return {.head = kShort, .vocab_size = backend.config().vocab_size, .rows_max = 48};
}

std::vector<NodeCandidates> pass(DraftModel& model, const std::vector<DraftExpansion>& expansions) {
    if (!model.prepare(expansions)) return {};
    return model.take(model.run(nullptr)).candidates;
}

}  // namespace

TEST_CASE("on the real kernels candidates are, bit for bit, those of a plain forward") {
    for (const char* name : {"llama-q4_1", "llama-linear-bf16"}) {
        CAPTURE(name);
        const ModelFile file = open_fixture(name);
        const int vocab = file.config().vocab_size;
        const std::unique_ptr<CpuBackend> backend = draft_backend(file);
        const std::unique_ptr<CpuBackend> oracle = draft_backend(file);
        std::mt19937 random{5};
        DraftModel model{*backend, options_of(*backend)};
        std::vector<std::shared_ptr<DraftText>> texts;
        for (const std::size_t length : {1U, 40U, 70U}) {
            texts.push_back(random_text(random, vocab, length));
            model.cache().open(*texts.back());
        }
        int checked = 0;
        for (int step = 0; step < 40; ++step) {
            std::vector<DraftExpansion> expansions;
            for (const auto& text : texts) {
                expansions.push_back({text, {}, 3});
                for (const DraftNode& node : text->tree.nodes()) {
                    if (!node.expanded && random() % 2 == 0)
                        expansions.back().expand.push_back(node.id);
                }
            }
            for (const NodeCandidates& said : pass(model, expansions)) {
                if (said.text->tree.find(said.node) == nullptr) continue;  // made room for better
                check_same(said.candidates, plain(*oracle, tokens_to(*said.text, said.node),
                                                  said.text->sampling, 3));
                said.text->tree.expand(said.node, said.candidates);
                ++checked;
            }
            const auto& text = texts[random() % texts.size()];
            const auto nodes = text->tree.nodes();
            std::vector<TokenId> more = tokens_to(*text, nodes[random() % nodes.size()].id);
            more.erase(more.begin(), more.begin() + static_cast<long>(text->tokens.size()));
            if (more.empty()) more = random_tokens(random, vocab, 1);
            if (text->tokens.size() + more.size() < 120) text->follow(more);
        }
        CHECK(checked > 100);
    }
}

TEST_CASE("keys and values travel from one draft model to another, and back, with equal bits") {
    const ModelFile file = open_fixture("llama-q4_1");
    const std::unique_ptr<CpuBackend> oracle = draft_backend(file);
    const std::unique_ptr<CpuBackend> first = draft_backend(file);
    const std::unique_ptr<CpuBackend> second = draft_backend(file);
    for (const bool back : {false, true}) {
        std::mt19937 random{9};
        std::mt19937 same{9};
        DraftModel from{back ? *second : *first, options_of(*first)};
        DraftModel to{back ? *first : *second, options_of(*first)};
        const auto theirs = random_text(random, file.config().vocab_size, 45);
        const auto ours = random_text(same, file.config().vocab_size, 45);
        from.cache().open(*theirs);
        to.cache().open(*ours);
        for (int i = 0; i < 5; ++i) {
            const DraftNodeId leaf = theirs->tree.trunk().back();
            const auto said = pass(from, {{theirs, {leaf}, 1}});
            theirs->tree.expand(leaf, said.at(0).candidates);
            ours->tree.expand(leaf, said.at(0).candidates);
        }
        REQUIRE(to.backend().kv_bytes() > 0);
        std::vector<std::byte> sent(from.backend().kv_bytes());
        std::vector<std::byte> kept(to.backend().kv_bytes());
        const std::vector<DraftNodeId> trunk = theirs->tree.trunk();
        REQUIRE(trunk.size() == 6);
        from.backend().read_kv(theirs->tree.find(trunk[1])->slot, sent);
        CHECK_FALSE(to.write_kv(*ours, trunk[1], sent));  // what is above it is missing
        CHECK(pass(to, {{ours, {}, 1}}).empty());         // reads the text up to the root
        for (std::size_t i = 0; i + 1 < trunk.size(); ++i) {
            from.backend().read_kv(theirs->tree.find(trunk[i])->slot, sent);
            REQUIRE(to.write_kv(*ours, trunk[i], sent));
            to.backend().read_kv(ours->tree.find(trunk[i])->slot, kept);
            CHECK(sent == kept);
        }
        const std::vector<DraftExpansion> leaf{{ours, {trunk.back()}, 2}};
        REQUIRE(to.prepare(leaf));
        CHECK(to.pass().rows().size() == 1);  // all else is there
        const DraftPassResult taken = to.take(to.run(nullptr));
        check_same(taken.candidates.at(0).candidates,
                   plain(*oracle, tokens_to(*ours, trunk.back()), ours->sampling, 2));
    }
}

TEST_CASE("a draft on the real kernels proposes what its own layers would say") {
    const ModelFile file = open_fixture("llama-q4_1");
    const std::unique_ptr<CpuBackend> backend = draft_backend(file);
    const std::unique_ptr<CpuBackend> oracle = draft_backend(file);
    DraftPlan plan = plan_of({.gamma = 6, .draft_reach_min = 0.0F});
    plan.vocab_size = file.config().vocab_size;
    DraftTools tools;
    tools.model = std::make_unique<DraftModel>(*backend, options_of(*backend));
    DraftBench bench{plan, std::move(tools)};
    std::mt19937 random{2};
    Request request;
    request.text = random_tokens(random, plan.vocab_size, 33);
    request.context = 200;
    bench.begin(request);
    for (int turn = 0; turn < 4; ++turn) {
        while (bench.context.run_job()) {
        }
        const std::vector<msg::Proposal> said = bench.proposals();
        REQUIRE(said.size() == 1);
        const std::vector<TokenId> chain = chain_of(said[0]);
        REQUIRE(chain.size() == 6);
        std::vector<TokenId> text = bench.text;
        for (const TokenId token : chain) {
            CHECK(token == plain(*oracle, text, request.sampling, 1).at(0).token);
            text.push_back(token);
        }
        bench.verdict({chain[0], chain[1], static_cast<TokenId>((chain[2] + turn) % 7)});
    }
    CHECK_FALSE(bench.context.failure);
}
