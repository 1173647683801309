#include <array>
#include <cstdlib>
#include <set>
#include <string>

#include "actors/protocol/counters.hpp"
#include "actors/self_draft/self_draft_state.hpp"
#include "tests/support/pipeline/cluster.hpp"
#include "tests/support/toy/toy_grammar.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

const char* name_of(Drafting drafting) {
    switch (drafting) {
        case Drafting::None:
            return "no draft";
        case Drafting::Lookup:
            return "prompt lookup";
        case Drafting::Adversary:
            return "adversary";
        case Drafting::Oracle:
            return "oracle";
        case Drafting::SlowOracle:
            return "slow oracle";
        case Drafting::Mute:
            return "mute";
        case Drafting::SkipLayers:
            return "skips layers";
        case Drafting::Programme:
            return "skips chosen layers";
        case Drafting::Search:
            return "skips searched layers";
        case Drafting::Babble:
            return "babble";
        case Drafting::Eagle:
            return "reads the target's features";
        case Drafting::Guesses:
            return "guesses";
    }
    return "";
}

constexpr Drafting kDraftings[] = {Drafting::None,   Drafting::Lookup,     Drafting::Adversary,
                                   Drafting::Oracle, Drafting::SlowOracle, Drafting::Mute,
                                   Drafting::Babble, Drafting::SkipLayers, Drafting::Programme,
                                   Drafting::Search, Drafting::Eagle,      Drafting::Guesses};

/// More with PACELINE_TEST_SEEDS=n.
std::uint64_t seeds() {
    const char* wanted = std::getenv("PACELINE_TEST_SEEDS");
    return wanted == nullptr ? 500 : std::strtoull(wanted, nullptr, 10);
}

/// One choice of each dimension that the text must not depend on.
struct Mixture {
    std::size_t drafting;
    std::size_t segments;
    std::size_t start;
    std::size_t shape;
    std::size_t in_flight;
    std::size_t exit;
    std::size_t sampling;
    std::size_t requests;
    std::size_t controller;  // off, on, and with random decisions and prices
    std::size_t grammar;     // of some requests

    static constexpr std::array<std::size_t, 10> kSizes{
        std::size(kDraftings), 4, 3, 2, 2, 7, 2, 3, 3, 2};
    [[nodiscard]] std::array<std::size_t, 10> values() const {
        return {drafting, segments, start,    shape,      in_flight,
                exit,     sampling, requests, controller, grammar};
    }
};

Mixture draw_mixture(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto& sizes = Mixture::kSizes;
    return {random() % sizes[0], random() % sizes[1], random() % sizes[2], random() % sizes[3],
            random() % sizes[4], random() % sizes[5], random() % sizes[6], random() % sizes[7],
            random() % sizes[8], random() % sizes[9]};
}

PipelineOptions options_of(const Mixture& choice, std::uint64_t seed) {
    std::mt19937_64 random{seed * 7 + 1};
    PipelineOptions options{.segments = 1 + static_cast<int>(choice.segments),
                            .drafting = kDraftings[choice.drafting],
                            .seed = seed,
                            .kv_slots = 2048};
    options.dispatch.start = static_cast<StartRule>(choice.start);
    options.dispatch.shape = static_cast<BatchShape>(choice.shape);
    options.dispatch.batches_in_flight_max =
        choice.in_flight == 0 ? 1 : 2 + static_cast<std::uint32_t>(random() % 5);
    options.dispatch.rows_max = 1 + static_cast<std::uint32_t>(random() % 12);
    if (options.drafting == Drafting::Guesses)
        options.dispatch.rows_max += static_cast<std::uint32_t>(seed % 53);
    options.dispatch.prefill_rows = 1 + static_cast<std::uint32_t>(random() % 40);
    options.dispatch.requests_max = 1 + static_cast<std::uint32_t>(random() % 8);
    if (choice.controller > 0) options.dispatch.controller = Controller::On;
    if (choice.controller == 2) options.dispatch.random_decisions = seed;
    options.verify.head_rows = 1 + static_cast<std::uint32_t>(random() % 5);
    options.candidate_right = 0.25 * static_cast<double>(random() % 5);
    add_exit(options, static_cast<Exit>(choice.exit), random);
    options.draws_itself = random() % 2 == 0;
    options.on_devices = static_cast<unsigned>(random());
    options.gamma = 1 + static_cast<std::int32_t>(random() % 8);
    return options;
}

SpeculationLimits limits_of(std::uint64_t seed) {
    std::mt19937_64 random{seed * 13 + 5};
    SpeculationLimits limits{.on = random() % 4 != 0};
    if (random() % 2 == 0) limits.gamma = 1 + static_cast<std::int32_t>(random() % 5);
    if (random() % 4 == 0) limits.verify_reach_min = 0.2F;
    if (random() % 4 == 0) limits.draft_reach_min = 0.2F;
    if (random() % 4 == 0) limits.confidence_min = 0.3F;
    return limits;
}

std::vector<Request> requests_of(const Mixture& choice, std::uint64_t seed) {
    std::vector<Request> requests;
    const std::size_t count = std::array<std::size_t, 3>{1, 3, 8}[choice.requests];
    for (std::size_t i = 0; i < count; ++i) {
        Request request = small_request(seed * 10 + i);
        if ((choice.sampling + i) % 2 == 1) make_sampled(request, seed + i);
        if ((seed + i) % 3 == 0) {  // what a device draws itself
            request.sampling.repetition_penalty = 1.0F;
            request.sampling.frequency_penalty = 0.0F;
        }
        request.max_tokens = count == 1 ? 40 : 20;
        request.context = 160;
        if (choice.grammar == 1 && (seed + i) % 3 != 1) {
            make_constrained(request, seed * 3 + i / 2);
            // What the grammar forbids here and there would else be drawn.
            if (i % 2 == 0)
                request.sampling.logit_bias = {{static_cast<TokenId>(seed % kFakeVocab), 150.0F}};
        }
        if (seed % 2 == 0) request.speculation = limits_of(seed * 10 + i);
        if ((seed + i) % 4 < 2) {
            request.scores = {.answer = true,
                              .prompt = (seed + i) % 4 == 0,
                              .top = static_cast<std::int32_t>(seed % 21)};
        }
        requests.push_back(std::move(request));
    }
    return requests;
}

}  // namespace

TEST_CASE("any pipeline commits exactly the tokens of plain decoding") {
    const auto& sizes = Mixture::kSizes;
    std::set<std::array<std::size_t, 4>> pairs;  // two dimensions, a choice of each
    for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
        const Mixture choice = draw_mixture(seed);
        const PipelineOptions options = options_of(choice, seed);
        CAPTURE(seed);
        CAPTURE(name_of(options.drafting));
        CAPTURE(options.segments);
        CAPTURE(choice.exit);
        CAPTURE(choice.requests);
        CAPTURE(choice.controller);
        CAPTURE(choice.grammar);
        const std::vector<Request> requests = requests_of(choice, seed);
        for (const Request& request : requests)
            CHECK(is_allowed(request, plain_answer(request).answer));
        check_exact(options, requests);
        const auto values = choice.values();
        for (std::size_t a = 0; a < sizes.size(); ++a) {
            for (std::size_t b = a + 1; b < sizes.size(); ++b) {
                pairs.insert({a, b, values[a], values[b]});
            }
        }
    }
    std::size_t all = 0;
    for (std::size_t a = 0; a < sizes.size(); ++a) {
        for (std::size_t b = a + 1; b < sizes.size(); ++b) all += sizes[a] * sizes[b];
    }
    CHECK(pairs.size() == all);
}

TEST_CASE("a cache that has no room for all texts preempts requests and changes no token") {
    std::uint32_t preemptions = 0;
    for (std::uint64_t seed = 1; seed <= seeds() / 2; ++seed) {
        Mixture choice = draw_mixture(seed);
        choice.requests = 2;
        PipelineOptions options = options_of(choice, seed);
        options.kv_slots = std::array{192, 192, 192, 320, 640}[seed % 5];  // 1.2, 2 and 4 contexts
        CAPTURE(seed);
        CAPTURE(name_of(options.drafting));
        CAPTURE(options.kv_slots);
        Cluster cluster{options};
        std::vector<Oracle> oracles;
        for (Request request : requests_of(choice, seed)) {
            // Most prompts of some length, so that two have no room; all leave the answer its own.
            std::mt19937_64 random{seed * 100 + oracles.size()};
            const std::size_t length = random() % 4 == 0 ? random() % 50 : 50 + random() % 60;
            while (request.text.size() < length)
                request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
            request.max_tokens = 40;
            oracles.push_back(plain_answer(request));
            cluster.teach(whole_text(request, oracles.back()));
            REQUIRE(cluster.submit(request));
        }
        cluster.run_until_ended();
        for (std::size_t i = 0; i < oracles.size(); ++i) {
            CAPTURE(i);
            CHECK(cluster.answers[i]->status.ok());
            CHECK(cluster.answers[i]->tokens == oracles[i].answer);
            CHECK(cluster.answers[i]->scores == oracles[i].scores);
            CHECK(cluster.answers[i]->prompt_scores == oracles[i].prompt_scores);
            CHECK(cluster.answers[i]->stats.replays == 0);
            preemptions += cluster.answers[i]->stats.preemptions;
        }
        CHECK(cluster.answers[0]->stats.preemptions == 0);  // the oldest never is
        cluster.run_dry();
        CHECK(cluster.world.tensors_all_free());
        check_no_page_held(cluster.scheduler(), options);
    }
    CHECK(preemptions > seeds() / 10);
}

TEST_CASE("a client's limits of speculation hold for its request alone, and change no token") {
    std::size_t limited = 0;
    std::size_t off = 0;
    for (std::uint64_t seed = 1; seed <= seeds() / 2; ++seed) {
        Mixture choice = draw_mixture(seed);
        choice.requests = 1;
        PipelineOptions options = options_of(choice, seed);
        options.dispatch.shape = BatchShape::Chain;
        options.dispatch.batches_in_flight_max = 1;
        CAPTURE(seed);
        CAPTURE(name_of(options.drafting));
        CAPTURE(choice.exit);
        Cluster cluster{options};
        std::vector<Request> requests = requests_of(choice, seed);
        for (std::size_t i = 0; i < requests.size(); ++i) {
            requests[i].speculation = limits_of(seed * 10 + i);
            cluster.teach(whole_text(requests[i], plain_answer(requests[i])));
            REQUIRE(cluster.submit(requests[i]));
        }
        cluster.run_until_ended();
        for (std::size_t i = 0; i < requests.size(); ++i) {
            CAPTURE(i);
            const SpeculationLimits& limits = requests[i].speculation;
            const auto& answer = *cluster.answers[i];
            CHECK(answer.status.ok());
            CHECK(answer.tokens == plain_answer(requests[i]).answer);
            if (!limits.on) {
                ++off;
                CHECK(answer.stats.verdicts.by_rows[1] == answer.stats.verdicts.batches);
            } else if (limits.gamma > 0) {
                ++limited;
                for (std::size_t rows = limits.gamma + 2; rows <= kVerifyRowsMax; ++rows)
                    CHECK(answer.stats.verdicts.by_rows[rows] == 0);
            }
        }
        cluster.run_dry();
        CHECK(cluster.world.tensors_all_free());
    }
    CHECK(off > seeds() / 10);
    CHECK(limited > seeds() / 10);
}

TEST_CASE("the length of prefill batches changes no token, whoever shares them") {
    for (const std::uint32_t prefill_rows : {1U, 64U, 150U, kBatchRowsMax}) {
        for (std::uint64_t seed = 1; seed <= 12; ++seed) {
            CAPTURE(prefill_rows);
            CAPTURE(seed);
            PipelineOptions options{.segments = 1 + static_cast<int>(seed % 4),
                                    .drafting = kDraftings[seed % std::size(kDraftings)],
                                    .seed = seed,
                                    .kv_slots = 4096};
            options.dispatch.prefill_rows = prefill_rows;
            options.dispatch.batches_in_flight_max = 1 + static_cast<std::uint32_t>(seed % 3);
            options.draws_itself = seed % 2 == 0;
            std::vector<Request> requests;
            for (std::uint64_t i = 0; i < 1 + seed % 3; ++i) {
                Request request = small_request(seed * 10 + i);
                std::mt19937_64 random{seed + i};
                const std::size_t length = i == 1 ? 3 : 400 + random() % 300;
                while (request.text.size() < length)
                    request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
                request.max_tokens = 12;
                request.context = 800;
                requests.push_back(std::move(request));
            }
            check_exact(options, requests);
        }
    }
}

TEST_CASE("a draft that knows the answer saves batches, one that is always wrong costs none") {
    const Request request = small_request(5);
    const int alone = check_exact({.segments = 2, .drafting = Drafting::None}, request);
    const PipelineOptions drafted{.segments = 2, .drafting = Drafting::Oracle};
    const int oracle = check_exact(drafted, request);
    const int adversary = check_exact({.segments = 2, .drafting = Drafting::Adversary}, request);
    CHECK(alone == 40);
    CHECK(oracle * (drafted.gamma + 1) <= 40 + drafted.gamma + 1);
    CHECK(adversary <= alone);
}

TEST_CASE("an end token inside an accepted path ends the answer there") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        const Oracle unlimited = plain_answer(request);
        request.end_tokens = {unlimited.answer[seed % 20]};
        const Oracle ended = plain_answer(request);
        REQUIRE(ended.finish == FinishReason::EndToken);
        check_exact({.segments = 2, .drafting = Drafting::Oracle, .seed = seed}, request);
    }
}

TEST_CASE("the answer has exactly max_tokens tokens, whatever is accepted at once") {
    for (std::int32_t most = 1; most <= 12; ++most) {
        CAPTURE(most);
        Request request = small_request(3);
        request.max_tokens = most;
        CHECK(plain_answer(request).answer.size() == static_cast<std::size_t>(most));
        check_exact({.segments = 3, .drafting = Drafting::Oracle}, request);
        check_exact({.segments = 1, .drafting = Drafting::Babble}, request);
    }
}

TEST_CASE("no row is computed whose token could not be committed any more") {
    Request request = small_request(3);
    for (std::int32_t most = 1; most <= 9; ++most) {
        CAPTURE(most);
        request.max_tokens = most;
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{{.segments = 1, .drafting = Drafting::Oracle}, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const std::uint64_t rows = pipeline.world.counted(kFirstSegment, counters::kBatchRows) -
                                   pipeline.world.counted(kFirstSegment, counters::kPrefillRows);
        CHECK(rows == static_cast<std::uint64_t>(most));
    }
}

TEST_CASE("a full context stops the answer and says so") {
    for (std::int32_t room = 1; room <= 12; ++room) {
        CAPTURE(room);
        Request request = small_request(4);
        request.max_tokens = kUnlimitedTokens;
        request.context = static_cast<Position>(request.text.size()) + room;
        const Oracle oracle = plain_answer(request);
        CHECK(oracle.finish == FinishReason::ContextFull);
        CHECK(oracle.answer.size() == static_cast<std::size_t>(room));
        PipelineOptions options{.segments = 2, .drafting = Drafting::Oracle};
        options.dispatch.batches_in_flight_max = 2;
        check_exact(options, request);
        options.drafting = Drafting::Babble;
        check_exact(options, request);
    }
}

TEST_CASE("logits that are all NaN fail the request after what was accepted before") {
    Request request = small_request(6);
    const Oracle whole = plain_answer(request);
    const TokenId poison = whole.answer[10];
    const Oracle failed = plain_answer(request, poison);
    REQUIRE(failed.finish == FinishReason::Failed);
    for (const Drafting drafting : kDraftings) {
        check_exact({.segments = 2, .drafting = drafting, .all_nan_at = poison}, request);
    }
}

namespace {

/// Answers of 60 tokens, greedy and sampled, over one to three segments; `look` sees each pipeline
/// at its end.
template <class Look>
void for_long_answers(Drafting drafting, Look look) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        const PipelineOptions options{
            .segments = 1 + static_cast<int>(seed % 3), .drafting = drafting, .seed = seed};
        Request request;
        request.text = {1, 2, 3, 4, 5};
        request.context = 200;
        request.max_tokens = 60;
        request.sampling.seed = seed;
        if (seed % 2 == 0) request.sampling.temperature = 0.9F;
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        pipeline.run_dry();
        CHECK(pipeline.world.tensors_all_free());
        look(pipeline, dynamic_cast<const ModelDraft&>(*pipeline.draft).actor());
    }
}

}  // namespace

TEST_CASE("a draft chooses its layers by what the segments made of the last accepted token") {
    std::uint64_t choices = 0;
    for_long_answers(Drafting::Programme, [&](Pipeline& /*pipeline*/, const DraftActor& draft) {
        choices += draft.layer_choices();
    });
    CHECK(choices > 12);
}

TEST_CASE("a draft searches its layers while it serves, on what is committed, and shows its set") {
    std::uint64_t trials = 0;
    for_long_answers(Drafting::Search, [&](Pipeline& pipeline, const DraftActor& draft) {
        const std::uint64_t made = draft.trials();
        trials += made;
        // Jobs that only keep the state are counted, too.
        CHECK(pipeline.world.counted(kTheDraft, counters::kOptimiseJobs) >= made);
        const auto shown = self_draft_state(pipeline.world.gauges(kTheDraft), kFakeLayers);
        REQUIRE(shown.has_value());
        REQUIRE(shown->skipped.has_value());
        CHECK(shown->skipped->count() > 0);
        CHECK(static_cast<std::uint64_t>(shown->trials) == made);
    });
    CHECK(trials > 100);
}
