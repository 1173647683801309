#include "tests/support/pipeline/pipeline.hpp"

#include <random>

#include "actors/protocol/message_checks.hpp"

namespace paceline::testing {

void TestConductor::handle(StageId, std::uint16_t kind, std::span<const std::byte> bytes) {
    if (kind == static_cast<std::uint16_t>(msg::Kind::Scores)) return;  // a Cluster checks them
    REQUIRE(kind == static_cast<std::uint16_t>(msg::Kind::Verdict));
    const msg::Verdict verdict = decode_message<msg::Verdict>(bytes).value();
    const Commit commit = log.commit(verdict);
    CHECK(commit.kind != CommitKind::Gap);
    if (commit.kind != CommitKind::Counts) return;
    ++verdicts;
    if (commit.finish != FinishReason::None) {
        finish = commit.finish;
        ++finished;
    }
}

void connect_taps(ShuffledWorld& world, const PipelineOptions& options) {
    // Two slots of three rows: features of long prompts are lost in part.
    if (options.drafting == Drafting::Eagle)
        world.connect_tensors(
            segment_id(options.segments), kTheDraft, 2,
            3 * std::max<std::size_t>(1, options.feature_layers.size()) * kFakeDim * sizeof(float));
    if (options.drafting != Drafting::Programme) return;
    for (int i = 1; i <= options.segments; ++i)
        world.connect_tensors(segment_id(i), kTheDraft, 2, kFakeLayers * kFakeDim * sizeof(float));
}

std::vector<TokenId> whole_text(const Request& request, const Oracle& oracle) {
    std::vector<TokenId> text = request.text;
    text.insert(text.end(), oracle.answer.begin(), oracle.answer.end());
    return text;
}

Pipeline::Pipeline(const PipelineOptions& options, const Texts& texts)
    : world{options.seed}, segments_{options.segments} {
    world.add(kTheConductor, conductor);
    const bool drafts = options.drafting != Drafting::None;
    for (int i = 1; i <= options.segments; ++i) add_segment(options, i);
    if (drafts) add_draft(options, texts);
    for (int i = 1; i < options.segments; ++i) {
        world.connect_tensors(segment_id(i), segment_id(i + 1), 2,
                              kBatchRowsMax * kFakeDim * sizeof(float));
    }
    connect_taps(world, options);
    world.start();
}

void Pipeline::begin(RequestId id, const BeginPayload& spec, Attempt attempt) {
    const auto begin_for = [&](StageId to) {
        BeginPayload payload{spec};
        if (spec.compiled != nullptr) grammars_.add(to, *spec.compiled, payload);
        return control::Begin{.request = id, .attempt = attempt, .payload = encode_begin(payload)};
    };
    // Any order: a batch that overtakes its Begin waits.
    if (draft) world.post(kTheDraft, begin_for(kTheDraft));
    for (int i = 1; i <= segments_; ++i) world.post(segment_id(i), begin_for(segment_id(i)));
}

void Pipeline::open_and_begin(RequestId id, const BeginPayload& spec) {
    begin(id, spec, conductor.log.open(id, spec.text).value());
}

void Pipeline::stop(RequestId id, Attempt attempt) {
    const msg::Stop stop{.route = {.request = id, .attempt = attempt, .epoch = Epoch{1}}};
    if (draft) world.inject(kTheConductor, kTheDraft, stop);
    for (int i = 1; i <= segments_; ++i) world.inject(kTheConductor, segment_id(i), stop);
}

void Pipeline::run_until_finished(int answers) {
    world.run([&] { return conductor.finished >= answers; });
    if (world.failure) FAIL(world.failure->what);
}

void Pipeline::run_dry() {
    world.run([] { return false; });
    if (world.failure) FAIL(world.failure->what);
}

void Pipeline::add_segment(const PipelineOptions& options, int index) {
    backends.push_back(segment_backend(options, index));
    segment_actors.push_back(
        std::make_unique<SegmentActor>(segment_plan(options, index), *backends.back()));
    world.add(segment_id(index), *segment_actors.back());
}

void Pipeline::add_draft(const PipelineOptions& options, const Texts& texts) {
    if (options.drafting == Drafting::Mute) {
        draft = mute_draft();
    } else if (options.drafting == Drafting::Babble) {
        draft = babbling_draft(std::make_shared<Texts>(texts), options.seed);
    } else {
        draft = draft_actor(options, draft_sources(options, texts));
    }
    world.add(kTheDraft, *draft);
}

Request small_request(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    Request request;
    const std::size_t length = 1 + random() % 90;
    for (std::size_t i = 0; i < length; ++i) {
        request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
    }
    request.max_tokens = 40;
    request.context = 512;
    return request;
}

void make_sampled(Request& request, std::uint64_t seed) {
    request.sampling.temperature = 0.7F;
    request.sampling.top_p = 0.95F;
    request.sampling.top_k = 20;
    request.sampling.seed = seed;
    request.sampling.repetition_penalty = 1.1F;
    request.sampling.frequency_penalty = 0.1F;
    request.sampling.penalty_window = 16;
    if (seed % 2 == 0) request.sampling.penalty_begin = static_cast<Position>(request.text.size());
}

}  // namespace paceline::testing
