#include "actors/draft/draft_actor.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

/// Any order of events, for one request: jobs that take long, candidates, verdicts that take from
/// the draft's tree or not, channels without room, new attempts.
/// Returns how many proposals it made.
std::size_t run_at_random(DraftBench& bench, std::uint64_t seed, bool has_model) {
    std::size_t made = 0;
    std::mt19937_64 random{seed};
    bench.begin(request_of(seed));
    std::optional<msg::Proposal> last;
    std::uint32_t attempts = 1;
    const std::uint64_t job_every = 1 + seed % 5;  // a slow draft has its job done seldom
    for (int step = 0; step < 150; ++step) {
        bench.context.full = random() % 5 == 0;
        const auto event = random() % 12;
        if (event < 6) {
            if (random() % job_every == 0) bench.context.run_job();
        } else if (event < 9) {
            std::vector<TokenId> tokens;
            if (last && last->root_position == bench.root() && last->count > 0 &&
                random() % 4 != 0) {
                tokens = path_in(*last, static_cast<std::int32_t>(random() % last->count));
            }
            if (tokens.empty() || random() % 2 == 0) {
                tokens.push_back(static_cast<TokenId>(random() % kFakeVocab));
            }
            if (bench.text.size() + tokens.size() < 290) bench.verdict(tokens);
        } else if (event == 9 && last) {
            bench.deliver(kFirst, candidates_for(bench, *last, random));
        } else if (event == 10) {
            bench.context.fire_timer();
            if (!bench.context.full) bench.actor.on_room(kFirst);
        } else if (event == 11 && random() % 8 == 0) {
            Request again = bench.spec;
            again.text = bench.text;
            bench.begin(again, ++attempts);
            last.reset();
        }
        for (const msg::Proposal& proposal : bench.proposals()) {
            if (has_model) check_proposal(bench, proposal, random);
            last = proposal;
            ++made;
        }
        REQUIRE_FALSE(bench.context.failure);
    }
    bench.context.full = false;
    bench.actor.on_room(kFirst);
    for (int i = 0; i < 400 && (bench.context.run_job() || bench.context.fire_timer()); ++i) {
    }
    CHECK(bench.context.idle());
    return made + bench.proposals().size();
}

}  // namespace

TEST_CASE("taking turns with an instant source: one complete proposal per verdict") {
    DraftBench bench{plan_of({.gamma = 4}), with_lookup()};
    Request request;
    request.text = {1, 2, 3, 4, 1, 2};
    request.context = 100;
    bench.begin(request);
    std::vector<msg::Proposal> said = bench.proposals();
    REQUIRE(said.size() == 1);
    CHECK(said[0].state == msg::ProposalState::Complete);
    CHECK(said[0].root_position == 5);
    CHECK(chain_of(said[0]) == std::vector<TokenId>{3, 4, 1, 2});
    CHECK(said[0].nodes[0].origin == msg::Origin::Lookup);
    bench.verdict({3, 4, 9});
    said = bench.proposals();
    REQUIRE(said.size() == 1);  // also when there is nothing to propose
    CHECK(said[0].count == 0);
    CHECK(said[0].state == msg::ProposalState::Complete);
    bench.verdict({3, 4});
    CHECK(chain_of(bench.proposals().at(0)) == std::vector<TokenId>{9, 3, 4, 9});
    bench.text.push_back(5);  // a verdict that this stage has missed
    bench.verdict({1, 2, 3});
    bench.verdict({4});
    CHECK(bench.proposals().empty());
    request.text = bench.text;
    bench.begin(request, 2);
    CHECK(bench.proposals().size() == 1);
    bench.deliver(kConductor, msg::Stop{.route = bench.route()});
    bench.verdict({1});
    CHECK(bench.proposals().empty());
    CHECK_FALSE(bench.context.failure);
}

TEST_CASE("nothing is proposed that could not be committed") {
    DraftBench bench{plan_of({.gamma = 8}), with_lookup()};
    Request request;
    request.text = {1, 2, 1, 2, 1, 2, 1, 2};
    request.context = 100;
    request.max_tokens = 4;
    bench.begin(request);
    CHECK(bench.proposals().at(0).count == 3);
    bench.verdict({1, 2});
    CHECK(bench.proposals().at(0).count == 1);
    bench.verdict({1});
    CHECK(bench.proposals().empty());  // the target's own token is the last
}

TEST_CASE("every pace and part: random events, and the candidates are those of plain decoding") {
    const std::vector<GrowthRule> rules{
        {.pace = DraftPace::Sequential, .gamma = 5},
        {.pace = DraftPace::Sequential,
         .gamma = 4,
         .adaptive = true,
         .width = 3,
         .own_alternatives = 2},
        {.pace = DraftPace::Sequential, .gamma = 6, .thompson = true},
        {.pace = DraftPace::Sequential,
         .gamma = 4,
         .tree = GrowthTree::Levels,
         .tree_nodes = 15,
         .width = 3},
        {.pace = DraftPace::Sequential, .gamma = 3, .width = 2, .exit_alternatives = 3},
        {.pace = DraftPace::Ahead, .gamma = 10},
        {.pace = DraftPace::Ahead, .gamma = 8, .width = 4, .exit_alternatives = 4},
        {.pace = DraftPace::Ahead,
         .gamma = 6,
         .width = 4,
         .own_alternatives = 1,
         .exit_alternatives = 2},
        {.pace = DraftPace::Lockstep, .gamma = 4},
        {.pace = DraftPace::Lockstep,
         .gamma = 6,
         .gamma_early = 3,
         .width = 4,
         .exit_alternatives = 4},
        {.pace = DraftPace::Ahead, .part = GrowthPart::Trunk, .gamma = 8},
    };
    std::size_t proposals = 0;
    for (std::size_t rule = 0; rule < rules.size(); ++rule) {
        CAPTURE(rule);
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            CAPTURE(seed);
            FakeBackend backend{0, kFakeLayers, 1024};
            DraftBench bench{plan_of(rules[rule]), with_model(backend)};
            proposals += run_at_random(bench, seed, true);
            DraftBench lookup{plan_of(rules[rule]), with_lookup()};
            (void)run_at_random(lookup, seed, false);
        }
    }
    CHECK(proposals > 900);
}

TEST_CASE("each turn and round of a model ends with Complete, however late it is") {
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead, DraftPace::Lockstep}) {
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{
            plan_of({.pace = pace, .gamma = 4, .gamma_early = 2, .exit_alternatives = 1}),
            with_model(backend)};
        bench.begin(request_of(12));
        for (int turn = 0; turn < 10; ++turn) {
            std::vector<msg::Proposal> said;
            bool halfway = false;
            while (bench.context.run_job() || bench.context.fire_timer()) {
            }
            said = bench.proposals();
            for (const auto& one : said) halfway |= one.state == msg::ProposalState::Halfway;
            REQUIRE_FALSE(said.empty());
            CHECK(said.back().state == msg::ProposalState::Complete);
            CHECK(said.back().root_position == bench.root());
            CHECK(said.back().count >= 4);
            CHECK(halfway == (pace == DraftPace::Lockstep));
            // A hundred times too slow: the target does not wait for it, and most verdicts find it
            // in a job.
            bench.verdict({1});
            bench.context.run_job();
            for (int i = 0; i < 20; ++i) bench.verdict({plain_next(bench.spec, bench.text)}, 0);
        }
        CHECK_FALSE(bench.context.failure);
    }
}

namespace {

msg::Price price_of(const DraftBench& bench, std::uint32_t generation, msg::SpeculationMode mode) {
    msg::Price price{};
    price.route = bench.route();
    price.generation = generation;
    price.mode = mode;
    price.candidates_max = 32;
    price.token_us = price.plain_us = 2000;
    price.row_us = 50;
    price.pass_share = 1;
    return price;
}

/// Passes of `pass`, and verdicts that nothing was right: what is proposed in 40 rounds.
std::uint32_t proposed_in_40(DraftBench& bench, Micros pass) {
    std::uint32_t count = 0;
    for (int round = 0; round < 40; ++round) {
        do {
            bench.context.time += pass;
        } while (bench.context.run_job());
        for (const msg::Proposal& said : bench.proposals()) count += said.count;
        bench.verdict({plain_next(bench.spec, bench.text)});
    }
    return count;
}

}  // namespace

TEST_CASE("at a price, the dearer the passes, the shorter the chains") {
    const auto proposed = [](Micros pass, bool priced) {
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 8}), with_model(backend)};
        bench.begin(request_of(12));
        if (priced) bench.deliver(kFirst, price_of(bench, 1, msg::SpeculationMode::On));
        return proposed_in_40(bench, pass);
    };
    const std::uint32_t whole = proposed(Micros{1900}, false);
    CHECK(whole == proposed(Micros{1}, false));
    CHECK(proposed(Micros{1}, true) > proposed(Micros{1900}, true));
    CHECK(proposed(Micros{1900}, true) < whole / 2);
}

TEST_CASE("a draft that is off computes and says nothing, and goes on when it is on again") {
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead}) {
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{plan_of({.pace = pace, .gamma = 4}), with_model(backend)};
        bench.begin(request_of(12));
        bench.deliver(kFirst, price_of(bench, 1, msg::SpeculationMode::Off));
        (void)proposed_in_40(bench, Micros{1});
        const std::uint64_t jobs = bench.context.jobs_run;
        CHECK(proposed_in_40(bench, Micros{1}) == 0);
        CHECK(bench.context.jobs_run == jobs);
        // An older price changes nothing.
        bench.deliver(kFirst, price_of(bench, 1, msg::SpeculationMode::Probe));
        CHECK(proposed_in_40(bench, Micros{1}) == 0);
        bench.deliver(kFirst, price_of(bench, 2, msg::SpeculationMode::Probe));
        CHECK(proposed_in_40(bench, Micros{1}) > 0);
        CHECK_FALSE(bench.context.failure);
    }
}

namespace {

Request long_request() {
    Request request = request_of(12);
    for (TokenId token = 0; token < 200; ++token) request.text.push_back(token % kFakeVocab);
    return request;
}

}  // namespace

TEST_CASE("in a single plain turn a draft reads the prompt, and nothing while it is off") {
    for (const auto mode : {msg::SpeculationMode::Rest, msg::SpeculationMode::Off}) {
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 1}), with_model(backend)};
        bench.begin(long_request());
        bench.deliver(kFirst, price_of(bench, 1, mode));
        while (bench.context.run_job()) {
        }
        CHECK(bench.proposals().empty());
        bench.deliver(kFirst, price_of(bench, 2, msg::SpeculationMode::On));
        bench.verdict({plain_next(bench.spec, bench.text)});
        const std::uint64_t before = bench.context.jobs_run;
        while (bench.proposals().empty()) REQUIRE(bench.context.run_job());
        const bool had_read = bench.context.jobs_run - before == 1;
        CHECK(had_read == (mode == msg::SpeculationMode::Rest));
        CHECK_FALSE(bench.context.failure);
    }
}

TEST_CASE("passes that read a prompt do not make those that draft look dear") {
    const auto proposed = [](bool reads) {
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{plan_of({.pace = DraftPace::Sequential, .gamma = 8}), with_model(backend)};
        bench.begin(reads ? long_request() : request_of(12));
        bench.deliver(kFirst, price_of(bench, 1, msg::SpeculationMode::Rest));
        do {
            bench.context.time += Micros{100'000};
        } while (bench.context.run_job());
        bench.deliver(kFirst, price_of(bench, 2, msg::SpeculationMode::On));
        return proposed_in_40(bench, Micros{1});
    };
    CHECK(proposed(true) > proposed(false) / 2);
}

TEST_CASE("a lookup goes on while the model is off, so that it is known what it would gain") {
    DraftBench bench{plan_of({.gamma = 4}), with_lookup()};
    Request request;
    request.text = {1, 2, 3, 1, 2};
    request.context = 100;
    bench.begin(request);
    (void)bench.proposals();
    bench.deliver(kFirst, price_of(bench, 1, msg::SpeculationMode::Off));
    bench.verdict({3}, 0);
    const auto said = bench.proposals();
    REQUIRE_FALSE(said.empty());
    CHECK(said.back().count > 0);
}

TEST_CASE("lockstep does not wait for an exit that stays silent") {
    FakeBackend backend{0, kFakeLayers, 1024};
    DraftBench bench{plan_of({.pace = DraftPace::Lockstep, .gamma = 3, .gamma_early = 1}),
                     with_model(backend)};
    bench.begin(request_of(9));
    while (bench.context.run_job()) {
    }
    CHECK(bench.proposals().back().state == msg::ProposalState::Halfway);
    REQUIRE(bench.context.fire_timer());
    while (bench.context.run_job()) {
    }
    CHECK(bench.proposals().back().state == msg::ProposalState::Complete);
}

TEST_CASE("a proposal that found no room follows when there is room, if it is still of use") {
    DraftBench bench{plan_of({.gamma = 4}), with_lookup()};
    Request request;
    request.text = {1, 2, 3, 1, 2};
    request.context = 100;
    bench.context.full = true;
    bench.begin(request);
    bench.verdict({3});
    CHECK(bench.context.refused == 2);
    bench.context.full = false;
    bench.actor.on_room(kFirst);
    const std::vector<msg::Proposal> said = bench.proposals();
    REQUIRE(said.size() == 1);
    CHECK(said[0].root_position == 5);
    bench.actor.on_room(kFirst);
    CHECK(bench.proposals().empty());
}

TEST_CASE("a job whose attempt is cancelled ends the request here, and a lost verifier ends all") {
    FakeBackend backend{0, kFakeLayers, 1024};
    DraftBench bench{plan_of({.gamma = 4}), with_model(backend)};
    bench.begin(request_of(5));
    bench.context.word.store(CancelBoard::mark_of(kRequest, Attempt{1}) + 1);
    while (bench.context.run_job()) {
    }
    CHECK(bench.proposals().empty());
    CHECK(bench.context.idle());
    bench.context.word.store(0);
    bench.begin(request_of(6), 2);
    bench.actor.on_peer(kVerifier, PeerChange::Lost);
    while (bench.context.run_job()) {
    }
    CHECK(bench.proposals().empty());
    bench.begin(request_of(6), 3);
    while (bench.context.run_job()) {
    }
    CHECK(bench.proposals().size() == 1);
}

TEST_CASE("a source without probabilities proposes chains of the full length") {
    DraftTools tools;
    const std::vector<TokenId> answer(40, 3);
    tools.source = [&](const Request&) {
        return std::make_unique<OracleSource>(answer, 1.0, DraftCost::Instant, 1);
    };
    DraftBench bench{plan_of({.gamma = 32}), std::move(tools)};
    Request request;
    request.text = {1, 2};
    request.context = 100;
    bench.begin(request);
    const std::vector<msg::Proposal> said = bench.proposals();
    REQUIRE(said.size() == 1);
    CHECK(chain_of(said[0]) == std::vector<TokenId>(32, 3));
    CHECK(said[0].nodes[1].log_prob == doctest::Approx(std::log(DraftSource::kUnknown)));
}

TEST_CASE("a source's chain comes first, and the model goes on beside and below it") {
    FakeBackend backend{0, kFakeLayers, 1024};
    DraftTools tools = with_model(backend);
    tools.source = with_lookup().source;
    DraftBench bench{plan_of({.gamma = 4, .width = 8}), std::move(tools)};
    Request request;
    request.text = {1, 2, 3, 4, 1, 2};
    request.context = 100;
    bench.begin(request);
    msg::Price price = price_of(bench, 1, msg::SpeculationMode::Off);
    price.row_us = 0.5F * price.token_us;  // a path less probable than this is not worth a row
    bench.deliver(kFirst, price);
    while (bench.context.run_job()) {
    }
    (void)bench.proposals();
    price.generation = 2;
    price.mode = msg::SpeculationMode::On;
    bench.deliver(kFirst, price);
    bench.verdict({3}, 0);
    while (bench.context.run_job()) {
    }
    const msg::Proposal said = bench.proposals().at(0);
    std::vector<TokenId> lookup;
    bool model = false;
    for (std::uint32_t i = 0; i < said.count; ++i) {
        if (said.nodes[i].origin == msg::Origin::Lookup) lookup.push_back(said.nodes[i].token);
        model |= said.nodes[i].origin == msg::Origin::Trunk;
    }
    REQUIRE(lookup.size() < 4);
    CHECK(lookup.at(0) == 4);
    CHECK(model);
    CHECK(backend.head_rows >= 4);
}

TEST_CASE("who is the wrong peer for a message, or sends one of the wrong kind, is reported") {
    const auto refused = [](StageId from, const auto& message) {
        DraftBench bench{plan_of({.gamma = 4}), with_lookup()};
        bench.deliver(from, message);
        const auto& faults = bench.context.faults;
        return faults.size() == 1 && faults[0].first == from && !bench.context.failure;
    };
    CHECK(refused(kFirst, msg::Verdict{}));
    CHECK(refused(kVerifier, msg::Proposal{}));
    CHECK(refused(kVerifier, msg::TensorNote{}));
    CHECK(refused(kVerifier, msg::Price{}));
    CHECK(refused(kVerifier, msg::Batch{.epoch = Epoch{1}}));
}
