#include "actors/segment/batch_scheduler.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/batch_scheduler_scene.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

using Scene = BatchSchedulerScene;
using ProposalSource = BatchScheduler::ProposalSource;

std::vector<TokenId> random_tokens(std::mt19937_64& random, std::size_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % (kSceneVocab - 1));
    return tokens;
}

/// Candidates of all kinds: often right, sometimes about a root that is long past or still to come.
void babble(Scene& scene, std::size_t job, std::mt19937_64& random) {
    const std::vector<TokenId>& oracle = scene.jobs[job].oracle;
    const auto root = static_cast<std::size_t>(scene.jobs[job].state->tree().root().position);
    const std::size_t back = random() % 4 == 0 ? random() % 4 : 0;
    const std::size_t ahead = random() % 6 == 0 ? random() % 4 : 0;
    const std::size_t at = root - std::min(root, back) + ahead;
    if (at >= oracle.size()) return;
    msg::Proposal proposal = scene.proposal(job, static_cast<Position>(at));
    proposal.state = static_cast<msg::ProposalState>(random() % 3);
    const std::size_t count = random() % 40;
    std::vector<std::size_t> depth;
    for (std::size_t i = 0; i < count; ++i) {
        const auto parent = static_cast<std::int16_t>(
            random() % 2 == 0 ? static_cast<std::int64_t>(i) - 1
                              : static_cast<std::int64_t>(random() % (i + 1)) - 1);
        depth.push_back(parent < 0 ? 1 : depth[static_cast<std::size_t>(parent)] + 1);
        const bool right = random() % 3 != 0 && at + depth[i] < oracle.size();
        const TokenId token =
            right ? oracle[at + depth[i]] : static_cast<TokenId>(random() % kSceneVocab);
        const float log_prob = random() % 20 == 0 ? -std::numeric_limits<float>::infinity()
                                                  : -static_cast<float>(random() % 100) / 50.0F;
        (void)Scene::add(proposal, parent, token, log_prob,
                         static_cast<msg::Origin>(random() % msg::kOrigins));
    }
    scene.scheduler.propose(
        proposal, random() % 2 == 0 ? ProposalSource::Draft : ProposalSource::Other, scene.now);
}

DispatchOptions random_options(std::mt19937_64& random) {
    DispatchOptions options;
    options.start = static_cast<StartRule>(random() % 3);
    options.shape = static_cast<BatchShape>(random() % 2);
    options.proposal_wait = Micros{50};
    options.rows_max = 1 + static_cast<std::uint32_t>(random() % (kGammaMax + 1));
    options.batches_in_flight_max = 1 + static_cast<std::uint32_t>(random() % 4);
    options.prefill_rows = 1 + static_cast<std::uint32_t>(random() % kBatchRowsMax);
    options.requests_max = 1 + static_cast<std::uint32_t>(random() % kBatchPartsMax);
    options.verify_reach_min = random() % 2 == 0 ? 0.0F : 0.05F;
    return options;
}

/// A chain of these tokens below the text's end.
msg::Proposal chain(const Scene& scene, std::size_t job, std::span<const TokenId> tokens) {
    msg::Proposal made = scene.proposal(job, scene.jobs[job].state->tree().root().position);
    std::int16_t at = msg::kBelowRoot;
    for (const TokenId token : tokens) at = Scene::add(made, at, token);
    return made;
}

std::span<const msg::BatchRow> rows_of(const msg::Batch& batch, std::uint32_t part = 0) {
    std::uint32_t begin = 0;
    for (std::uint32_t i = 0; i < part; ++i) begin += batch.parts[i].rows;
    return std::span{batch.rows}.subspan(begin, batch.parts[part].rows);
}

/// One request, whose prompt of one token needs no prefill.
struct OneRequest : Scene {
    OneRequest(DispatchOptions options, std::vector<TokenId> answer) : Scene{options, 1024} {
        begin({0}, std::move(answer));
    }
};

const std::vector<TokenId> kAnswer{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};

}  // namespace

TEST_CASE("whatever is proposed and however late, all texts come out, row by valid row") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const DispatchOptions options = random_options(random);
        const std::size_t requests = 1 + random() % (seed % 8 == 0 ? 40 : 6);
        const bool tight = random() % 3 == 0;  // no page beside those that are reserved
        const std::size_t prompt_max = seed % 4 == 0 ? 700 : 80;
        const std::int32_t slots = seed % 4 == 0 ? 768 : 128;  // of one context
        Scene scene{options, static_cast<std::int32_t>(requests) * slots + (tight ? 0 : 1024)};
        for (std::size_t i = 0; i < requests; ++i) {
            std::vector<TokenId> answer = random_tokens(random, 1 + random() % 30);
            if (random() % 2 == 0) answer.back() = kSceneEnd;
            scene.begin(random_tokens(random, 1 + random() % prompt_max), std::move(answer));
        }
        const std::size_t quiet = random() % 4;  // 0: no proposer
        int steps = 0;
        while (!scene.all_over()) {
            REQUIRE(++steps < 100000);
            scene.now += Micros{random() % 3};
            const std::size_t what = random() % 4;
            if (what == 0 && quiet != 0) babble(scene, random() % requests, random);
            if (what == 1 && random() % 50 == 0) scene.scheduler.draft_changed(random() % 2 == 0);
            if (what == 2 && !scene.in_flight.empty()) (void)scene.verify();
            if (what != 3 || scene.form() || !scene.in_flight.empty()) continue;
            // Nothing is under way: there must be a time at which something will be.
            const std::optional<Micros> due = scene.scheduler.due();
            REQUIRE(due.has_value());
            REQUIRE(*due > scene.now);
            REQUIRE(*due <= scene.now + options.proposal_wait);
            if (random() % 4 != 0) continue;
            scene.now = *due;
            REQUIRE(scene.form());
        }
        for (std::size_t i = 0; i < requests; ++i) {
            const Scene::Job& job = scene.jobs[i];
            REQUIRE(job.state->text() == job.oracle);
            REQUIRE(job.verifier_state->text() == job.oracle);
        }
        REQUIRE(scene.scheduler.pages().in_use() == 0);
        std::uint64_t committed = 0;
        for (const Scene::Job& job : scene.jobs) {
            committed += job.oracle.size() - job.state->spec().text.size();
        }
        // Every row of a verify batch was committed (the root that stands before each token) or
        // not.
        CHECK(scene.rows_sent == committed + scene.rows_wasted);
    }
}

TEST_CASE("neither verifies nor the oldest prompt starve, however many share the batches") {
    for (const std::uint32_t requests_max : {1U, 3U, kBatchPartsMax}) {
        CAPTURE(requests_max);
        std::mt19937_64 random{requests_max};
        Scene scene{{.start = StartRule::AtOnce, .requests_max = requests_max}, 16384};
        constexpr std::size_t kRequests = 40;
        for (std::size_t i = 0; i < kRequests; ++i) {
            const std::size_t prompt = i % 2 == 0 ? 1 : 200;
            scene.begin(random_tokens(random, prompt), random_tokens(random, 30));
        }
        const std::uint64_t rounds = (kRequests + requests_max - 1) / requests_max;
        while (!scene.all_over()) {
            for (std::size_t i = 0; i < kRequests; ++i) {
                if (scene.jobs[i].state->over()) continue;
                const TreeNode& root = scene.jobs[i].state->tree().root();
                const auto at = static_cast<std::size_t>(root.position) + 1;
                const std::span<const TokenId> text = scene.jobs[i].oracle;
                scene.scheduler.propose(
                    chain(scene, i, text.subspan(at, std::min<std::size_t>(8, text.size() - at))),
                    ProposalSource::Draft, scene.now);
            }
            REQUIRE(scene.form());
            (void)scene.verify();
            bool oldest = true;  // of the prompts: another may be passed over by shorter ones
            for (const Scene::Job& job : scene.jobs) {
                if (job.state->over()) continue;
                if (job.state->prefilled() || std::exchange(oldest, false))
                    REQUIRE(scene.batches - job.last_served <= rounds + 1);
            }
        }
    }
}

TEST_CASE("verify parts share the rows fairly, of which a quarter is kept for prompts") {
    Scene scene{{.start = StartRule::AtOnce}, 16384};
    for (int i = 0; i < 3; ++i) scene.begin({0}, std::vector<TokenId>(60, 1));
    const std::vector<TokenId> ones(32, 1);
    scene.scheduler.propose(chain(scene, 0, ones), ProposalSource::Draft, scene.now);
    scene.scheduler.propose(chain(scene, 1, ones), ProposalSource::Draft, scene.now);
    scene.scheduler.propose(chain(scene, 2, std::span{ones}.first(2)), ProposalSource::Draft,
                            scene.now);
    scene.begin(std::vector<TokenId>(100, 2), {1});
    REQUIRE(scene.form());
    const msg::Batch& full = scene.in_flight.back();
    REQUIRE(full.parts.size() == 4);
    CHECK(rows_of(full, 0).size() == 23);
    CHECK(rows_of(full, 1).size() == 22);
    CHECK(rows_of(full, 2).size() == 3);  // it wanted no more
    CHECK(rows_of(full, 3).size() == 16);
    REQUIRE(scene.form());  // with nothing to verify the batch is the prompt's own
    CHECK(scene.in_flight.back().rows.size() == 64);
    (void)scene.verify();
    REQUIRE(scene.form());  // three roots, and the prompt's share
    REQUIRE(scene.in_flight.back().parts.size() == 4);
    CHECK(scene.in_flight.back().parts[3].rows == 16);
}

TEST_CASE("a tree batch takes the most probable paths, a chain batch the trunk") {
    for (const BatchShape shape : {BatchShape::Chain, BatchShape::Tree}) {
        OneRequest scene{{.start = StartRule::AtOnce, .shape = shape, .rows_max = 4}, kAnswer};
        msg::Proposal made = scene.proposal(0, 0);
        const std::int16_t a = Scene::add(made, msg::kBelowRoot, 1, -0.5F);
        const std::int16_t b = Scene::add(made, msg::kBelowRoot, 2, -1.0F);
        const std::int16_t c = Scene::add(made, a, 3, -2.0F);  // path_log_prob -2.5
        (void)Scene::add(made, b, 4, -0.1F);                   // path_log_prob -1.1
        (void)Scene::add(made, c, 1, -0.1F);                   // path_log_prob -2.6
        scene.scheduler.propose(made, ProposalSource::Draft, scene.now);
        REQUIRE(scene.form());
        std::vector<TokenId> tokens;
        for (const msg::BatchRow& row : rows_of(scene.in_flight.front()))
            tokens.push_back(row.token);
        const std::vector<TokenId> trunk{0, 1, 3, 1};
        const std::vector<TokenId> best{0, 1, 2, 4};
        CHECK(tokens == (shape == BatchShape::Chain ? trunk : best));
    }
}

TEST_CASE("improbable rows stay, end tokens and what lies after the limits get no row") {
    OneRequest scene({.start = StartRule::AtOnce, .verify_reach_min = 0.5F}, kAnswer);
    msg::Proposal made = scene.proposal(0, 0);
    const std::int16_t a = Scene::add(made, msg::kBelowRoot, 1, -0.4F);
    (void)Scene::add(made, a, 2, -0.4F);  // together e^-0.8 = 0.45
    scene.scheduler.propose(made, ProposalSource::Draft, scene.now);
    REQUIRE(scene.form());
    CHECK(scene.in_flight.front().rows.size() == 2);

    OneRequest ended({.start = StartRule::AtOnce}, {1, 2, kSceneEnd});
    ended.scheduler.propose(chain(ended, 0, std::vector<TokenId>{1, kSceneEnd, 3}),
                            ProposalSource::Draft, ended.now);
    REQUIRE(ended.form());
    CHECK(ended.in_flight.front().rows.size() == 2);

    OneRequest counted({.start = StartRule::AtOnce}, {1, 2, 3});
    counted.scheduler.propose(chain(counted, 0, kAnswer), ProposalSource::Draft, counted.now);
    REQUIRE(counted.form());
    CHECK(counted.in_flight.front().rows.size() == 3);  // after 0, 1, 2; 3 is the last token
}

TEST_CASE("a proposal for an old root counts as far as the text went its way") {
    OneRequest scene({.start = StartRule::AtOnce}, kAnswer);
    REQUIRE(scene.form());
    (void)scene.verify();  // commits 1
    msg::Proposal old = scene.proposal(0, 0);
    const std::int16_t a = Scene::add(old, msg::kBelowRoot, 1);
    const std::int16_t x = Scene::add(old, msg::kBelowRoot, 4);
    (void)Scene::add(old, x, 3);
    (void)Scene::add(old, Scene::add(old, a, 2), 3);
    scene.scheduler.propose(old, ProposalSource::Other, scene.now);
    CHECK(scene.scheduler.proposals().used == 1);
    REQUIRE(scene.form());
    const auto rows = rows_of(scene.in_flight.front());
    REQUIRE(rows.size() == 3);
    CHECK(rows[1].token == 2);
    CHECK(rows[2].token == 3);
    msg::Proposal wrong = scene.proposal(0, 0);
    (void)Scene::add(wrong, msg::kBelowRoot, 4);
    scene.scheduler.propose(wrong, ProposalSource::Other, scene.now);
    CHECK(scene.scheduler.proposals().outdated == 1);
}

TEST_CASE("a proposal for a root that is still to come is kept until its verdict is here") {
    OneRequest scene({.start = StartRule::Sequential}, kAnswer);
    CHECK_FALSE(scene.form());
    scene.scheduler.propose(scene.proposal(0, 0), ProposalSource::Draft,
                            scene.now);  // nothing to say
    REQUIRE(scene.form());
    msg::Proposal next = scene.proposal(0, 1);
    (void)Scene::add(next, msg::kBelowRoot, 2);
    scene.scheduler.propose(next, ProposalSource::Draft, scene.now);
    (void)scene.verify();
    REQUIRE(scene.form());
    CHECK(scene.in_flight.front().rows.size() == 2);
}

TEST_CASE("turns wait for all that the draft has to say, but only so long and so often") {
    OneRequest scene{{.start = StartRule::Sequential, .proposal_wait = Micros{100}}, kAnswer};
    msg::Proposal growing = chain(scene, 0, std::vector<TokenId>{1});
    growing.state = msg::ProposalState::Growing;
    scene.scheduler.propose(growing, ProposalSource::Draft, scene.now);
    CHECK_FALSE(scene.form());
    CHECK(scene.scheduler.due() == scene.now + Micros{100});
    scene.scheduler.propose(chain(scene, 0, std::vector<TokenId>{1, 4}), ProposalSource::Draft,
                            scene.now);
    REQUIRE(scene.form());
    CHECK(scene.in_flight.front().rows.size() == 3);
    (void)scene.verify();  // 1 and 2
    for (int i = 0; i < 3; ++i) {
        CHECK_FALSE(scene.form());
        scene.now = scene.scheduler.due().value();
        REQUIRE(scene.form());
        (void)scene.verify();
    }
    CHECK(scene.scheduler.proposals().waits_expired == 3);
    REQUIRE(scene.form());  // it is not waited for any longer,
    (void)scene.verify();
    scene.scheduler.propose(chain(scene, 0, {}), ProposalSource::Draft,
                            scene.now);  // until it speaks
    REQUIRE(scene.form());
    (void)scene.verify();
    CHECK_FALSE(scene.form());
    scene.scheduler.draft_changed(false);
    CHECK(scene.form());
}

TEST_CASE("lockstep begins with the root alone, then waits for verdict and the draft's round") {
    OneRequest scene{{.start = StartRule::Lockstep, .proposal_wait = Micros{100}}, kAnswer};
    const RequestId id = Scene::id_of(0);
    msg::Proposal round = chain(scene, 0, std::vector<TokenId>{1, 2, 3});
    round.state = msg::ProposalState::Growing;
    scene.scheduler.propose(round, ProposalSource::Draft, scene.now);
    REQUIRE(scene.form());
    CHECK(scene.in_flight.front().rows.size() == 1);
    CHECK_FALSE(scene.scheduler.halfway(id, scene.now));
    CHECK(scene.scheduler.due() == scene.now + Micros{100});
    round.state = msg::ProposalState::Halfway;
    scene.scheduler.propose(round, ProposalSource::Draft, scene.now);
    CHECK(scene.scheduler.halfway(id, scene.now));
    CHECK_FALSE(scene.form());  // one batch in flight, although there are rows to send
    scene.now += Micros{10};
    (void)scene.verify();
    CHECK_FALSE(scene.form());  // the round that began with the first batch is not complete
    CHECK(scene.scheduler.due() == scene.now + Micros{100});
    round.state = msg::ProposalState::Complete;
    scene.scheduler.propose(round, ProposalSource::Draft, scene.now);
    REQUIRE(scene.form());
    CHECK(scene.in_flight.front().rows.size() == 3);
    CHECK_FALSE(scene.scheduler.halfway(id, scene.now));
    scene.now += Micros{100};  // waited long enough
    CHECK_FALSE(scene.form());
    CHECK(scene.scheduler.due() == std::nullopt);
    CHECK(scene.scheduler.halfway(id, scene.now));
    (void)scene.verify();  // 2, 3 and the own 4
    CHECK_FALSE(scene.form());
    scene.now = scene.scheduler.due().value();
    CHECK(scene.form());
    CHECK(scene.scheduler.proposals().waits_expired == 1);
}

TEST_CASE("a batch is not held for the Halfway of a draft that is lost") {
    OneRequest scene({.start = StartRule::Lockstep}, kAnswer);
    REQUIRE(scene.form());
    CHECK_FALSE(scene.scheduler.halfway(Scene::id_of(0), scene.now));
    scene.scheduler.draft_changed(false);
    CHECK(scene.scheduler.halfway(Scene::id_of(0), scene.now));
    (void)scene.verify();
    CHECK(scene.form());
}

TEST_CASE("a proposal below a token that is not the text's changes nothing") {
    OneRequest scene({.start = StartRule::AtOnce}, kAnswer);
    msg::Proposal made = chain(scene, 0, kAnswer);
    made.root_token = 3;
    scene.scheduler.propose(made, ProposalSource::Draft, scene.now);
    CHECK(scene.jobs[0].state->tree().nodes().size() == 1);
    CHECK(scene.scheduler.proposals().outdated == 1);
}

TEST_CASE("probabilities that cannot be are taken for the nearest that can") {
    OneRequest scene({.start = StartRule::AtOnce}, kAnswer);
    msg::Proposal made = scene.proposal(0, 0);
    (void)Scene::add(made, msg::kBelowRoot, 1, 0.5F);
    (void)Scene::add(made, msg::kBelowRoot, 2, -std::numeric_limits<float>::infinity());
    scene.scheduler.propose(made, ProposalSource::Draft, scene.now);
    const auto nodes = scene.jobs[0].state->tree().nodes();
    REQUIRE(nodes.size() == 3);
    CHECK(nodes[1].path_log_prob == 0.0F);
    CHECK(std::isfinite(nodes[2].path_log_prob));
}

TEST_CASE("an outcome says whose candidate the new root was, and what had not been proposed") {
    OneRequest scene({.start = StartRule::AtOnce}, kAnswer);
    msg::Proposal made = scene.proposal(0, 0);
    (void)Scene::add(made, msg::kBelowRoot, 3, -0.1F, msg::Origin::Trunk);
    (void)Scene::add(made, msg::kBelowRoot, 1, -2.0F, msg::Origin::Exit);
    scene.scheduler.propose(made, ProposalSource::Draft, scene.now);
    REQUIRE(scene.form());  // the root and 3
    (void)scene.verify();   // 1
    REQUIRE(scene.outcomes.size() == 1);
    CHECK(scene.outcomes[0].prepared);
    CHECK(scene.outcomes[0].origin == msg::Origin::Exit);
    CHECK(scene.rows_wasted == 1);
    REQUIRE(scene.form());  // the root alone
    CHECK(scene.rows_sent == 3);
    (void)scene.verify();
    REQUIRE(scene.outcomes.size() == 2);
    CHECK_FALSE(scene.outcomes[1].prepared);
}

TEST_CASE("in lockstep a round that comes after the verdict says whose candidate the root was") {
    OneRequest scene{{.start = StartRule::Lockstep, .proposal_wait = Micros{100}}, kAnswer};
    REQUIRE(scene.form());
    (void)scene.verify();  // 1
    msg::Proposal round = scene.proposal(0, 0);
    (void)Scene::add(round, msg::kBelowRoot, 3);
    const std::int16_t proposed = Scene::add(round, msg::kBelowRoot, 1, -2.0F, msg::Origin::Exit);
    (void)Scene::add(round, proposed, 2);
    scene.scheduler.propose(round, ProposalSource::Draft, scene.now);
    CHECK(scene.scheduler.take_resolved().empty());
    REQUIRE(scene.form());
    std::vector<Outcome> resolved = scene.scheduler.take_resolved();
    REQUIRE(resolved.size() == 1);
    CHECK(resolved.front().prepared);
    CHECK(resolved.front().origin == msg::Origin::Exit);
    // It had not: the round holds another token, or does not come at all.
    (void)scene.verify();  // 2 and 3
    round = scene.proposal(0, 1);
    (void)Scene::add(round, msg::kBelowRoot, 4);
    scene.scheduler.propose(round, ProposalSource::Draft, scene.now);
    REQUIRE(scene.form());
    (void)scene.verify();
    scene.now = scene.scheduler.due().value();
    REQUIRE(scene.form());
    resolved = scene.scheduler.take_resolved();
    REQUIRE(resolved.size() == 2);
    CHECK_FALSE(resolved[0].prepared);
    CHECK_FALSE(resolved[1].prepared);
    CHECK(scene.outcomes.empty());  // none was known with its verdict
}

TEST_CASE("rows go on below rows in flight, as many batches as are allowed") {
    OneRequest scene({.start = StartRule::AtOnce, .rows_max = 3, .batches_in_flight_max = 3},
                     kAnswer);
    scene.scheduler.propose(chain(scene, 0, kAnswer), ProposalSource::Draft, scene.now);
    for (int i = 0; i < 3; ++i) REQUIRE(scene.form());
    CHECK_FALSE(scene.form());
    CHECK(scene.in_flight[2].rows[0].parent == scene.in_flight[1].rows[2].node.value);
    (void)scene.verify();
    CHECK(scene.form());
}

TEST_CASE(
    "a request without pages is named once, and again after any Stop: also of an unknown one") {
    Scene scene{{.start = StartRule::AtOnce}, 2 * kKvPageSlots};
    scene.begin(std::vector<TokenId>(40, 1), kAnswer);
    scene.begin(std::vector<TokenId>(40, 2), kAnswer);
    while (scene.form()) {
    }
    const auto shortage = scene.scheduler.pages().take_shortage();
    REQUIRE(shortage);
    CHECK(shortage->request == Scene::id_of(1));
    CHECK(shortage->running == 2);
    CHECK_FALSE(scene.form());
    CHECK_FALSE(scene.scheduler.pages().take_shortage());
    // The conductor has preempted a third one, whose Stop has overtaken its Begin.
    scene.scheduler.end(RequestId{99});
    CHECK_FALSE(scene.form());
    CHECK(scene.scheduler.pages().take_shortage());
}
