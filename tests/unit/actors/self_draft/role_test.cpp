#include <random>
#include <set>
#include <string>

#include "actors/protocol/counters.hpp"
#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

// The toy's head whose candidates for the next token are right as often as the test says.
constexpr HeadId kHintHead = HeadId::Adapter;

enum class Way : std::uint8_t { Exit, Fixed, Search, Programme };
constexpr std::size_t kWays = 4;

SkipSet random_set(std::mt19937_64& random) {
    SkipSet set{kFakeLayers};
    while (set.count() == 0) {
        for (int s = 0; s < 2 * kFakeLayers; ++s) set.set(s, random() % 3 == 0);
    }
    return set;
}

SelfDraftOptions self_draft(Way way, std::mt19937_64& random, int exit_max) {
    SelfDraftOptions options;
    options.head = kHintHead;
    options.gamma = 1 + static_cast<int>(random() % 8);
    if (random() % 2 == 0) options.confidence_min = 0.2F * static_cast<float>(random() % 5);
    if (random() % 2 == 0) options.reach_min = 0.1F * static_cast<float>(random() % 9);
    options.threshold_adapts = random() % 2 == 0;
    options.auto_off = random() % 3 == 0;
    if (random() % 4 == 0) {
        options.probe.emplace();
        options.probe->v.assign(kFakeDim, 1e-3F);
    }
    if (random() % 3 == 0) options.tree.emplace();
    if (way == Way::Exit) {
        options.exit = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(exit_max));
        return options;
    }
    options.skip = random_set(random);
    options.choice = static_cast<SkipChoice>(static_cast<int>(way) - 1);
    options.window = 1 + static_cast<int>(random() % 12);
    options.interval = 1 + static_cast<int>(random() % 4);
    options.optimise_share = 1.0;
    options.search = {.layers = kFakeLayers, .ratio = 0.4, .bayes_every = 3, .seed = random()};
    if (way == Way::Programme) {
        options.programme_skip = 1 + static_cast<int>(random() % 4);
        options.programme_keep_last = static_cast<int>(random() % 3);
    }
    return options;
}

PipelineOptions pipeline_options(Way way, std::uint64_t seed) {
    std::mt19937_64 random{seed * 7 + 1};
    PipelineOptions options{.seed = seed, .kv_slots = 2048};
    options.segments = way == Way::Exit ? 1 + static_cast<int>(random() % 3) : 1;
    options.dispatch.start = StartRule::AtOnce;
    options.dispatch.shape = static_cast<WaveShape>(random() % 2);
    options.dispatch.rows_max = 1 + static_cast<std::uint32_t>(random() % 12);
    options.dispatch.prefill_rows = 1 + static_cast<std::uint32_t>(random() % 40);
    options.dispatch.requests_max = 1 + static_cast<std::uint32_t>(random() % 8);
    options.verify.head_rows = 1 + static_cast<std::uint32_t>(random() % 5);
    options.candidate_right = 0.25 * static_cast<double>(random() % 5);
    options.draws_itself = random() % 2 == 0;
    options.on_devices = static_cast<unsigned>(random());
    const int first = kFakeLayers / options.segments;
    options.self_draft = self_draft(way, random, std::min(first, kFakeLayers - 1));
    return options;
}

std::vector<Request> requests_of(std::uint64_t seed) {
    std::vector<Request> requests;
    const std::size_t count = std::array<std::size_t, 3>{1, 3, 8}[seed % 3];
    for (std::size_t i = 0; i < count; ++i) {
        Request request = small_request(seed * 10 + i);
        request.gamma = 8;
        if ((seed / 2 + i) % 2 == 1) make_sampled(request, seed + i);
        request.max_tokens = count == 1 ? 60 : 24;
        request.context = 160;
        requests.push_back(std::move(request));
    }
    return requests;
}

PipelineOptions always(int exit, int gamma) {
    PipelineOptions options;
    options.dispatch.start = StartRule::AtOnce;
    options.candidate_right = 1.0;
    options.self_draft.emplace();
    options.self_draft->head = kHintHead;
    options.self_draft->exit = exit;
    options.self_draft->gamma = gamma;
    options.self_draft->auto_off = false;
    return options;
}

}  // namespace

TEST_CASE("a target that drafts for itself commits exactly the tokens of plain decoding") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        const Way way = static_cast<Way>(seed % kWays);
        CAPTURE(seed);
        CAPTURE(static_cast<int>(way));
        check_exact(pipeline_options(way, seed), requests_of(seed));
    }
}

TEST_CASE("rows that were drafted by an early exit do not run the exit's layers again") {
    Request request = small_request(3);
    request.gamma = 4;
    const Oracle oracle = plain_answer(request);
    Pipeline pipeline{always(4, 4), request, oracle};
    std::size_t begun = 0;
    pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
        for (const Row& row : rows) begun += row.first == 8 ? 1 : 0;
    };
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    CHECK(answer_of(pipeline, kOne) == oracle.answer);
    CHECK(begun == pipeline.world.counted(kFirstSegment, counters::kDraftRows));
    CHECK(begun > 20);
}

TEST_CASE(
    "a chain is not longer than gamma, what the request asks for, and what can be committed") {
    for (const std::int32_t asked : {0, 1, 3, 8}) {
        CAPTURE(asked);
        Request request = small_request(3);
        request.gamma = asked;
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{always(4, 5), request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        const std::uint64_t drafted = pipeline.world.counted(kFirstSegment, counters::kDraftRows);
        const auto verdicts = static_cast<std::uint64_t>(pipeline.conductor.verdicts);
        CHECK(drafted <= verdicts * static_cast<std::uint64_t>(std::min(asked, 5)));
        CHECK((drafted > 0) == (asked > 0));
    }
}

TEST_CASE("a draft of the target itself ends at an end token and at the limits") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        request.gamma = 8;
        const Oracle unlimited = plain_answer(request);
        request.end_tokens = {unlimited.answer[seed % 20]};
        check_exact(always(2, 8), request);
        request.end_tokens.clear();
        request.max_tokens = 1 + static_cast<std::int32_t>(seed % 9);
        check_exact(always(3, 8), request);
        request.max_tokens = kUnlimitedTokens;
        request.context = static_cast<Position>(request.text.size() + 1 + seed % 9);
        check_exact(always(5, 8), request);
    }
}

TEST_CASE(
    "logits that are all NaN fail a request that drafts for itself, after what was accepted") {
    Request request = small_request(6);
    request.gamma = 8;
    const TokenId poison = plain_answer(request).answer[10];
    for (const int exit : {1, 4, 7}) {
        PipelineOptions options = always(exit, 6);
        options.all_nan_at = poison;
        check_exact(options, request);
    }
}

TEST_CASE("a request that is stopped while it drafts gives its slots back for the next turn") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const PipelineOptions options = pipeline_options(static_cast<Way>(seed % kWays), seed);
        Request first = small_request(seed);
        first.gamma = 8;
        Pipeline pipeline{options, first, plain_answer(first)};
        pipeline.open_and_begin(kOne, first);
        pipeline.world.run([&] { return pipeline.conductor.verdicts >= 3; });
        pipeline.stop(kOne, Attempt{1});
        Request second = first;
        const std::vector<TokenId> so_far = answer_of(pipeline, kOne);
        second.text.insert(second.text.end(), so_far.begin(), so_far.end());
        second.reuse = static_cast<std::int32_t>(second.text.size()) - 1;
        for (TokenId token = 0; token < 9; ++token) second.text.push_back(token);
        const Oracle oracle = plain_answer(second);
        pipeline.conductor.log.close(kOne);
        CHECK(pipeline.conductor.log.open(kOne, second.text));
        const Attempt attempt = pipeline.conductor.log.restart(kOne).value();
        const int finished = pipeline.conductor.finished;
        pipeline.begin(kOne, second, attempt);
        pipeline.run_until_finished(finished + 1);
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        pipeline.run_dry();
        const std::size_t text = second.text.size() + oracle.answer.size();
        CHECK(pipeline.segment_actors.front()->scheduler()->slots_in_use(kOne) ==
              static_cast<std::int32_t>(text) - 1);
    }
}
