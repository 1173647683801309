// Draft and Correct as two actors: what each learns from the other.
#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

TEST_CASE("Correct takes the trunk and its keys from Draft, and grows what the exit proposes") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        FakeBackend draft_backend{0, kFakeLayers, 1024};
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftPlan plan = plan_of({.pace = DraftPace::Ahead, .gamma = 8});
        plan.exit.reset();
        DraftBench draft{plan, with_model(draft_backend), kCorrectId};
        CorrectBench correct{
            plan_of({.pace = DraftPace::Ahead, .gamma = 8, .width = 4, .exit_alternatives = 3}),
            with_model(backend)};
        const bool branches_arrive = seed % 2 == 0;  // or are lost
        ScriptedPool pool{4, kFakeLayers * sizeof(std::uint64_t)};
        draft.context.out = &pool.producer;
        correct.context.in = &pool.consumer;
        draft.begin(request_of(seed));
        correct.begin(request_of(seed));
        std::optional<msg::Proposal> trunk;
        std::uint64_t alternatives = 0;
        for (int step = 0; step < 150; ++step) {
            const auto event = random() % 8;
            if (event < 3) draft.context.run_job();
            if (event >= 3 && event < 5) correct.context.run_job();
            if (event == 5 && trunk)
                correct.deliver(kFirst, candidates_for(correct, *trunk, random));
            if (event == 6 && trunk && trunk->root_position == draft.root()) {
                std::vector<TokenId> tokens =
                    path_in(*trunk, static_cast<std::int32_t>(random() % 3) - 1);
                if (random() % 3 == 0 || tokens.empty()) {
                    tokens.push_back(static_cast<TokenId>(random() % kFakeVocab));
                }
                if (draft.text.size() + tokens.size() < 280 && trunk->count > 2) {
                    draft.verdict(tokens, 0);  // on a batch of what was right
                    correct.verdict(tokens, 0);
                }
            }
            draft.context.deliver_all(kCorrectId, [&](std::uint16_t kind, auto bytes) {
                correct.actor.handle(kDraftId, kind, bytes);
            });
            correct.context.deliver_all(kDraftId, [&](std::uint16_t kind, auto bytes) {
                if (branches_arrive) draft.actor.handle(kCorrectId, kind, bytes);
            });
            for (const msg::Proposal& one : draft.proposals()) {
                check_proposal(draft, one, random);
                trunk = one;
            }
            for (const msg::Proposal& one : correct.proposals()) {
                check_proposal(correct, one, random);
                for (std::uint32_t i = 0; i < one.count; ++i) {
                    const std::int16_t parent = one.nodes[i].parent;
                    alternatives +=
                        parent >= 0 && one.nodes[static_cast<std::size_t>(parent)].origin ==
                                           msg::Origin::Exit
                            ? 1
                            : 0;
                }
            }
            REQUIRE_FALSE(draft.context.failure);
            REQUIRE_FALSE(correct.context.failure);
        }
        CHECK(alternatives > 0);
        CHECK(correct.actor.kv_rows_taken() > 0);
    }
}

TEST_CASE("Draft goes on below the branch of Correct's that the target took, in one pass") {
    for (const bool late : {false, true}) {
        CAPTURE(late);
        FakeBackend draft_backend{0, kFakeLayers, 1024};
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftPlan plan = plan_of({.pace = DraftPace::Ahead, .gamma = 6, .draft_reach_min = 0.0F});
        plan.exit.reset();
        DraftBench draft{plan, with_model(draft_backend), kCorrectId};
        CorrectBench correct{plan_of({.pace = DraftPace::Ahead,
                                      .gamma = 6,
                                      .exit_alternatives = 1,
                                      .draft_reach_min = 0.0F}),
                             with_model(backend)};
        draft.begin(request_of(21));
        correct.begin(request_of(21));
        while (draft.context.run_job()) {
        }
        const msg::Proposal trunk = draft.proposals().back();
        REQUIRE(trunk.count == 6);
        msg::Proposal candidates{};  // the exit says: after the root something else
        candidates.route = correct.route();
        candidates.root_position = trunk.root_position;
        candidates.root_token = trunk.root_token;
        candidates.count = 1;
        candidates.nodes[0] = {.token = (trunk.nodes[0].token + 1) % kFakeVocab,
                               .parent = msg::kBelowRoot,
                               .origin = msg::Origin::Exit,
                               .log_prob = 0.0F};
        correct.deliver(kFirst, candidates);
        while (correct.context.run_job()) {
        }
        const msg::Proposal branches = correct.proposals().back();
        REQUIRE(branches.count == 6);
        if (late) draft.verdict({candidates.nodes[0].token});
        correct.context.deliver_all(kDraftId, [&](std::uint16_t kind, auto bytes) {
            draft.actor.handle(kCorrectId, kind, bytes);
        });
        if (!late) draft.verdict({candidates.nodes[0].token});
        const std::size_t jobs = draft.context.labels.size();
        // The job that is under way when they come late expands the root once more.
        draft.context.run_job();
        if (late) draft.context.run_job();
        REQUIRE(draft.context.labels.size() >= jobs);
        const msg::Proposal said = draft.proposals().back();
        CHECK(said.root_position == draft.root());
        const std::vector<TokenId> chain = chain_of(said);
        REQUIRE(chain.size() == 6);  // Correct's five, and the next one
        const std::vector<TokenId> prepared = chain_of(branches);
        CHECK(std::equal(prepared.begin() + 1, prepared.end(), chain.begin()));
        std::vector<TokenId> text = draft.text;
        text.insert(text.end(), chain.begin(), chain.end() - 1);
        CHECK(chain.back() == plain_next(draft.spec, text));
        CHECK(draft.context.labels[late ? jobs : jobs - 1].rows == (late ? 5 : 6));
    }
}
