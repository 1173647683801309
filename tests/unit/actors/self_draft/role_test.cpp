#include <algorithm>
#include <map>
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

enum class Way : std::uint8_t { Exit, Fixed, Programme, Search };
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
    options.thompson = options.gamma % 3 == 0;
    options.auto_off = random() % 3 == 0;
    if (random() % 4 == 0) {
        options.probes.emplace();
        options.probes->greedy.v.assign(kFakeDim, 1e-3F);
        options.probes->sampled.v.assign(kFakeDim, -1e-3F);
    }
    if (random() % 3 == 0) options.tree.emplace();
    if (way == Way::Exit) {
        options.exit = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(exit_max));
        options.adapter = random() % 2 == 0;
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
    options.dispatch.shape = static_cast<BatchShape>(random() % 2);
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

TEST_CASE("a round that is decoded plainly runs the rows of plain decoding and no others") {
    using Call = std::vector<std::pair<std::int32_t, std::int32_t>>;  // first and last of its rows
    Request request = small_request(3);
    request.max_tokens = GainWatch::kPlainFirst;
    const Oracle oracle = plain_answer(request);
    const auto calls_of = [&](const PipelineOptions& options) {
        std::vector<Call> calls;
        Pipeline pipeline{options, request, oracle};
        pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
            Call& call = calls.emplace_back();
            for (const Row& row : rows) call.emplace_back(row.first, row.last);
        };
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        return calls;
    };
    PipelineOptions plain = always(4, 4);
    plain.self_draft.reset();
    PipelineOptions watched = always(4, 4);
    watched.self_draft->auto_off = true;
    const std::vector<Call> calls = calls_of(plain);
    CHECK(calls.size() >= oracle.answer.size());
    CHECK(calls_of(watched) == calls);
}

TEST_CASE("a chain is not longer than gamma, and what can be committed") {
    for (const std::int32_t gamma : {1, 3, 5}) {
        CAPTURE(gamma);
        const Request request = small_request(3);
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{always(4, gamma), request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        const std::uint64_t drafted = pipeline.world.counted(kFirstSegment, counters::kDraftRows);
        const auto verdicts = static_cast<std::uint64_t>(pipeline.conductor.verdicts);
        CHECK(drafted <= verdicts * static_cast<std::uint64_t>(gamma));
        CHECK(drafted > 0);
    }
}

TEST_CASE("a draft of the target itself ends at an end token and at the limits") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
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
        Pipeline pipeline{options, first, plain_answer(first)};
        pipeline.open_and_begin(kOne, first);
        pipeline.world.run([&] { return pipeline.conductor.verdicts >= 3; });
        pipeline.stop(kOne, Attempt{1});
        const Request second = next_turn(first, answer_of(pipeline, kOne));
        run_turn(pipeline, second);
        CHECK(answer_of(pipeline, RequestId{2}) == plain_answer(second).answer);
        pipeline.run_dry();
        check_no_page_held(*pipeline.segment_actors.front()->scheduler(), options);
    }
}

TEST_CASE("between two verify batches all drafted rows of a request follow one skip set") {
    // Requests of one token need no prefill: they begin while the chains of others grow.
    std::size_t sets_used = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        PipelineOptions options = pipeline_options(Way::Programme, seed);
        options.self_draft->gamma = 8;
        options.self_draft->confidence_min = options.self_draft->reach_min = 0.0F;
        options.self_draft->auto_off = false;
        options.self_draft->interval = 1;
        options.dispatch.requests_max = 1 + static_cast<std::uint32_t>(seed % 3);
        std::vector<Request> requests = requests_of(3 * seed + 1);
        std::vector<Oracle> oracles;
        Texts texts;
        for (Request& request : requests) {
            request.text.resize(1);
            oracles.push_back(plain_answer(request));
            texts.push_back(whole_text(request, oracles.back()));
        }
        Pipeline pipeline{options, texts};
        // By the slot of the chain's root: what its rows of this chain left out.
        std::map<KvSlot, std::vector<bool>> skipped;
        std::set<std::vector<bool>> sets;
        std::size_t passes = 0;
        pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
            for (const Row& row : rows) {
                if (row.mask == nullptr) {
                    skipped.erase(row.path_count > 0 ? row.path_slots[0] : row.slot);
                    continue;
                }
                ++passes;
                std::vector<bool> set;
                for (int s = 0; s < 2 * kFakeLayers; ++s) set.push_back(row.mask->skips(s));
                sets.insert(set);
                const auto known = skipped.try_emplace(row.path_slots[0], set);
                CHECK(known.first->second == set);
            }
        };
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const std::size_t until = passes + seed % 5;
            pipeline.open_and_begin(RequestId{i + 1}, requests[i]);
            pipeline.world.run([&] { return passes > until; });
        }
        pipeline.run_until_finished(static_cast<int>(requests.size()));
        for (std::size_t i = 0; i < requests.size(); ++i)
            CHECK(answer_of(pipeline, RequestId{i + 1}) == oracles[i].answer);
        sets_used = std::max(sets_used, sets.size());
    }
    CHECK(sets_used > 3);
}

TEST_CASE("drafted rows that find no place in their batch give their slots back") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        PipelineOptions options = pipeline_options(static_cast<Way>(seed % kWays), seed);
        options.self_draft->gamma = 8;
        options.self_draft->auto_off = false;
        options.dispatch.rows_max = 1 + static_cast<std::uint32_t>(seed % 4);
        // More requests than a batch takes: it gives each a share that is shorter than its chain.
        std::vector<Request> requests;
        for (std::uint64_t i = 0; i < 12; ++i) {
            requests.push_back(small_request(seed * 100 + i));
            requests.back().context = 160;
            requests.back().max_tokens = 16;
            if (i % 2 == 0) make_sampled(requests.back(), seed + i);
        }
        options.kv_slots = 12 * 160 + 256;
        check_exact(options, requests);
    }
}

TEST_CASE("requests that draft do not hold up the prefill of another one") {
    PipelineOptions options = always(4, 8);
    options.kv_slots = 4096;
    options.dispatch.prefill_rows = 8;
    std::vector<Request> requests{small_request(3), small_request(4), small_request(5)};
    for (Request& request : requests) request.context = 700;
    requests[0].max_tokens = requests[1].max_tokens = 400;
    requests[2].text.assign(120, 7);
    requests[2].max_tokens = 4;
    Texts texts;
    for (const Request& request : requests) texts.push_back(request.text);
    Pipeline pipeline{options, texts};
    for (std::size_t i = 0; i < 2; ++i) pipeline.open_and_begin(RequestId{i + 1}, requests[i]);
    pipeline.world.run([&] { return pipeline.conductor.verdicts > 4; });
    const int before = pipeline.conductor.verdicts;
    pipeline.open_and_begin(RequestId{3}, requests[2]);
    pipeline.run_until_finished(1);
    CHECK(answer_of(pipeline, RequestId{3}) == plain_answer(requests[2]).answer);
    // 15 batches of prefill and at most 4 of its own; each also verifies the two others.
    CHECK(pipeline.conductor.verdicts - before <= 3 * (15 + 4 + 4));
}

TEST_CASE("a new attempt that begins during a pass drafts anew and commits the same tokens") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const PipelineOptions options = pipeline_options(static_cast<Way>(seed % kWays), seed);
        Request request = small_request(seed);
        request.context = 160;
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        std::size_t passes = 0;
        pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
            const bool drafts = rows.front().mask != nullptr || rows.front().last < 2 * kFakeLayers;
            passes += drafts ? 1 : 0;
        };
        pipeline.open_and_begin(kOne, request);
        for (int again = 0; again < 3; ++again) {
            const std::size_t until = passes + 1 + seed % 7;
            pipeline.world.run([&] { return passes >= until || pipeline.conductor.finished > 0; });
            if (pipeline.conductor.finished > 0) break;
            // As after the loss of a stage: prompt and committed tokens, once more.
            const std::vector<TokenId> so_far = answer_of(pipeline, kOne);
            BeginPayload replay{request};
            replay.text.insert(replay.text.end(), so_far.begin(), so_far.end());
            replay.replayed = static_cast<Position>(so_far.size());
            pipeline.begin(kOne, replay, pipeline.conductor.log.restart(kOne).value());
        }
        pipeline.run_until_finished();
        CHECK(answer_of(pipeline, kOne) == oracle.answer);
        pipeline.run_dry();
        check_no_page_held(*pipeline.segment_actors.front()->scheduler(), options);
    }
}
