// Pipeline: a conductor, a draft and 1..4 target segments over FakeBackends in a ShuffledWorld,
// and the plain decoder as the oracle of what they must commit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/commit_log.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "actors/decoding/request.hpp"
#include "actors/draft/draft_actor.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/protocol/message_checks.hpp"
#include "actors/target/segment_actor.hpp"
#include "tests/support/toy/toy_oracle.hpp"
#include "tests/unit/actors/fake_backend.hpp"
#include "tests/unit/actors/shuffled_world.hpp"

namespace paceline::testing {

inline constexpr StageId kTheConductor{0};
inline constexpr StageId kTheDraft{1};
inline StageId segment_id(int index) {
    return StageId{static_cast<std::uint16_t>(10 + index)};
}

inline const StageId kFirstSegment = segment_id(1);

using Texts = std::vector<std::vector<TokenId>>;

/// Talks too much: trees, several per verdict, some right, some for roots long gone or still to
/// come, with probabilities and origins that mean nothing. So the target's tree gets siblings of
/// every kind, and rows arrive while waves are in flight.
class Babbler final : public Actor {
public:
    /// It knows these texts, prompt and answer.
    Babbler(std::shared_ptr<const Texts> texts, std::uint64_t seed)
        : texts_{std::move(texts)}, random_{seed} {}
    void on_start(StageContext& context) override { context_ = &context; }
    void on_control(StageId, const control::Message& message) override {
        const auto& begin = std::get<control::Begin>(message);
        const Request request = decode_request(begin.payload).value();
        const auto known = std::find_if(texts_->begin(), texts_->end(), [&](const auto& text) {
            return text.size() >= request.text.size() &&
                   std::equal(request.text.begin(), request.text.end(), text.begin());
        });
        if (known == texts_->end()) return;
        told_[begin.request] = {.route = {.request = begin.request,
                                          .attempt = begin.attempt,
                                          .epoch = context_->epoch()},
                                .text = *known,
                                .root = request.text.size() - 1};
        babble(told_[begin.request]);
    }
    void handle(StageId, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (kind != static_cast<std::uint16_t>(msg::Kind::Verdict)) return;
        const auto verdict = decode_message<msg::Verdict>(bytes).value();
        const auto found = told_.find(verdict.route.request);
        if (found == told_.end() || found->second.route.attempt != verdict.route.attempt) return;
        found->second.root += verdict.count;
        babble(found->second);
    }

private:
    struct Told {
        msg::Route route{};
        std::vector<TokenId> text;
        std::size_t root = 0;
    };

    void babble(const Told& told) {
        for (int i = std::uniform_int_distribution<int>{0, 3}(random_); i > 0; --i) {
            std::size_t root = told.root;
            if (random_() % 4 == 0) root -= std::min<std::size_t>(root, 2);
            if (random_() % 4 == 0) root += random_() % 4;
            if (root >= told.text.size()) return;
            const msg::Proposal proposal = tree_below(told, root);
            const auto bytes = std::as_bytes(std::span{&proposal, 1});
            (void)context_->send(kFirstSegment, static_cast<std::uint16_t>(msg::Kind::Proposal),
                                 bytes);
        }
    }
    msg::Proposal tree_below(const Told& told, std::size_t root) {
        msg::Proposal proposal{};
        proposal.route = told.route;
        proposal.root_position = static_cast<Position>(root);
        proposal.root_token = told.text[root];
        proposal.state = static_cast<msg::ProposalState>(random_() % 3);
        proposal.count = static_cast<std::uint32_t>(random_() % 10);
        std::vector<std::size_t> depths;
        for (std::uint32_t k = 0; k < proposal.count; ++k) {
            // Mostly a chain; sometimes anywhere.
            auto parent = static_cast<std::int16_t>(static_cast<int>(k) - 1);
            if (random_() % 3 == 0) {
                parent = static_cast<std::int16_t>(static_cast<int>(random_() % (k + 1)) - 1);
            }
            const std::size_t depth = parent < 0 ? 0 : depths[static_cast<std::size_t>(parent)] + 1;
            depths.push_back(depth);
            const std::size_t at = root + 1 + depth;
            const bool right = random_() % 4 != 0 && at < told.text.size();
            proposal.nodes[k] = {
                .token = right ? told.text[at] : static_cast<TokenId>(random_() % kFakeVocab),
                .parent = parent,
                .origin = static_cast<msg::Origin>(random_() % msg::kOrigins),
                .log_prob = -static_cast<float>(random_() % 1000) / 200.0F};
        }
        return proposal;
    }

    std::shared_ptr<const Texts> texts_;
    std::mt19937_64 random_;
    StageContext* context_ = nullptr;
    std::map<RequestId, Told> told_;
};

/// Hears everything, says nothing.
class Mute final : public Actor {
public:
    void on_start(StageContext&) override {}
    void handle(StageId, std::uint16_t, std::span<const std::byte>) override {}
};

class TestConductor final : public Actor {
public:
    void on_start(StageContext&) override {}
    void handle(StageId, std::uint16_t kind, std::span<const std::byte> bytes) override {
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
    CommitLog log;
    FinishReason finish = FinishReason::None;
    int finished = 0;
    int verdicts = 0;
};

enum class Drafting : std::uint8_t {
    None,
    Lookup,
    Adversary,
    Oracle,
    SlowOracle,
    Mute,
    Babble,
    SkipLayers,  // the target's own model without some sub-layers
    Programme,   // the same, without layers that the segments' residuals choose
};

struct PipelineOptions {
    int segments = 1;
    Drafting drafting = Drafting::None;
    DraftSourceFactory sources = {};  // instead of those of `drafting`
    std::uint64_t seed = 1;
    DispatchOptions dispatch = {};
    VerifyOptions verify = {};
    std::int32_t kv_slots = 1024;
    TokenId all_nan_at = -1;
    int exit_at = 0;  // after which segment `exit` stands; 0: after none
    ExitOptions exit = {};
    std::optional<SelfDraftOptions> self_draft = {};
    Micros hold_limit{20'000};
    double candidate_right = 0.8;  // of the exit's head
    bool draws_itself = false;     // the segments' backends draw tokens, as devices do
    unsigned on_devices = 0;       // bit i: the backend of segment i keeps its rows on a device
};

enum class Exit : std::uint8_t { None, Names, Proposes, Defers, Everything, Lockstep, Ahead };
inline constexpr std::uint64_t kExits = 7;

/// After the last segment an exit can only look ahead, elsewhere it does the rest.
inline void add_exit(PipelineOptions& options, Exit kind, std::mt19937_64& random) {
    ExitOptions exit;
    exit.sends_candidates =
        kind == Exit::Names || kind == Exit::Everything || kind == Exit::Lockstep;
    exit.proposes = kind == Exit::Proposes || kind == Exit::Defers || kind == Exit::Everything;
    exit.defers = kind == Exit::Defers || kind == Exit::Everything;
    exit.lockstep = kind == Exit::Lockstep;
    if (options.drafting != Drafting::None) exit.candidates_to = {kTheDraft};
    exit.gate = 0.25F * static_cast<float>(random() % 5);
    exit.top = 1 + static_cast<std::uint32_t>(random() % kExitTopMax);
    exit.early_max = 1 + static_cast<std::uint32_t>(random() % 8);
    exit.ahead_top = 1 + static_cast<std::uint32_t>(random() % 3);
    const auto heads = static_cast<std::uint8_t>(1 + random() % 3);
    const auto inner = static_cast<std::uint64_t>(std::max(1, options.segments - 1));
    const int place = 1 + static_cast<int>(random() % inner);
    options.exit_at = options.segments > 1 ? place : 0;
    if (kind == Exit::Lockstep && options.exit_at != 0) options.exit_at = 1;
    if (kind == Exit::None) options.exit_at = 0;
    if (kind == Exit::Ahead) {
        options.exit_at = options.segments;
        for (std::uint8_t head = 1; head <= heads; ++head) exit.ahead.push_back(HeadId{head});
    }
    options.exit = std::move(exit);
}

inline SegmentPlan segment_plan(const PipelineOptions& options, int index) {
    const int count = options.segments;
    SegmentPlan plan;
    plan.count = count;
    if (index > 1) plan.previous = segment_id(index - 1);
    if (index < count) plan.next = segment_id(index + 1);
    const bool drafts = options.drafting != Drafting::None;
    if (drafts) plan.draft = kTheDraft;
    if (drafts) plan.speculative = {kTheDraft};
    if (options.drafting == Drafting::Programme) plan.tap = TapOptions{kTheDraft, 2};
    plan.first_segment = kFirstSegment;
    plan.hold_limit = options.hold_limit;
    if (index == options.exit_at) plan.exit = options.exit;
    if (index == 1) plan.self_draft = options.self_draft;
    plan.verifier = segment_id(count);
    plan.verdict_to = {kTheConductor};
    if (drafts) plan.verdict_to.push_back(kTheDraft);
    for (int i = 1; i < count; ++i) plan.verdict_to.push_back(segment_id(i));
    plan.dispatch = options.dispatch;
    plan.verify = options.verify;
    return plan;
}
inline std::unique_ptr<FakeBackend> segment_backend(const PipelineOptions& options, int index) {
    const int count = options.segments;
    auto backend = std::make_unique<FakeBackend>(kFakeLayers * (index - 1) / count,
                                                 kFakeLayers * index / count, options.kv_slots);
    backend->all_nan_at = options.all_nan_at;
    backend->candidate_right = options.candidate_right;
    backend->draws_itself = options.draws_itself;
    backend->on_device = ((options.on_devices >> static_cast<unsigned>(index)) & 1U) != 0;
    return backend;
}
/// Sources for drafts that know these texts (prompt and answer), or need not know them.
inline DraftSourceFactory draft_sources(const PipelineOptions& options, Texts texts) {
    if (options.sources) return options.sources;
    return [=](const Request& request) -> std::unique_ptr<DraftSource> {
        if (options.drafting == Drafting::Lookup) {
            return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
        }
        const auto known = std::find_if(texts.begin(), texts.end(), [&](const auto& text) {
            return text.size() >= request.text.size() &&
                   std::equal(request.text.begin(), request.text.end(), text.begin());
        });
        const bool slow = options.drafting == Drafting::SlowOracle;
        const double right = options.drafting == Drafting::Adversary ? 0.0 : slow ? 0.8 : 1.0;
        return std::make_unique<OracleSource>(known == texts.end() ? request.text : *known, right,
                                              slow ? DraftCost::Compute : DraftCost::Instant,
                                              options.seed);
    };
}
/// A draft actor and the backend that its model computes on.
class ModelDraft final : public Actor {
public:
    ModelDraft(DraftPlan plan,
               std::unique_ptr<FakeBackend> backend,
               DraftModelOptions options,
               std::optional<LayerProgrammeOptions> programme = {})
        : backend_{std::move(backend)},
          actor_{std::move(plan),
                 DraftTools{.model = std::make_unique<DraftModel>(*backend_, options),
                            .programme = programme}} {}
    void on_start(StageContext& context) override { actor_.on_start(context); }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        static_cast<Actor&>(actor_).handle(from, kind, bytes);
    }
    void on_control(StageId from, const control::Message& message) override {
        static_cast<Actor&>(actor_).on_control(from, message);
    }
    void on_room(StageId to) override { actor_.on_room(to); }
    void on_peer(StageId peer, PeerChange change) override { actor_.on_peer(peer, change); }
    [[nodiscard]] const DraftActor& actor() const { return actor_; }

private:
    std::unique_ptr<FakeBackend> backend_;
    DraftActor actor_;
};

/// Some sub-layers at random, the text read with all layers or not, thresholds that adapt or not.
inline std::unique_ptr<Actor> skip_draft(DraftPlan plan, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    DraftModelOptions options{.vocab_size = kFakeVocab, .skip = SkipSet{kFakeLayers}};
    for (int s = 0; s < 2 * kFakeLayers; ++s) options.skip.set(s, random() % 4 == 0);
    options.whole_text = random() % 2 == 0;
    plan.growth.threshold_adapts = random() % 2 == 0;
    plan.growth.confidence_min = 0.3F;
    plan.growth.draft_reach_min = random() % 2 == 0 ? 0.02F : 1e-3F;
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, 1024);
    return std::make_unique<ModelDraft>(std::move(plan), std::move(backend), options);
}

inline std::unique_ptr<Actor> programme_draft(DraftPlan plan, std::uint64_t seed) {
    const LayerProgrammeOptions programme{.layers = kFakeLayers,
                                          .skip = 1 + static_cast<int>(seed % 6)};
    DraftModelOptions options{.vocab_size = kFakeVocab,
                              .skip = SkipSet::uniform(kFakeLayers, 2 * programme.skip, 1, 1),
                              .whole_text = true};
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, 1024);
    return std::make_unique<ModelDraft>(std::move(plan), std::move(backend), options, programme);
}

inline std::unique_ptr<Actor> draft_actor(const PipelineOptions& options,
                                          DraftSourceFactory sources) {
    DraftPlan plan{.first_segment = kFirstSegment,
                   .verifier = segment_id(options.segments),
                   .vocab_size = kFakeVocab};
    if (options.exit_at > 0 && options.exit.sends_candidates)
        plan.exit = segment_id(options.exit_at);
    plan.growth.pace = options.dispatch.start == StartRule::AtOnce     ? DraftPace::Ahead
                       : options.dispatch.start == StartRule::Lockstep ? DraftPace::Lockstep
                                                                       : DraftPace::Sequential;
    plan.growth.exit_alternatives = 2;
    if (options.drafting == Drafting::SkipLayers) return skip_draft(plan, options.seed);
    if (options.drafting == Drafting::Programme) return programme_draft(plan, options.seed);
    return std::make_unique<DraftActor>(plan, DraftTools{.source = std::move(sources)});
}

inline void connect_taps(ShuffledWorld& world, const PipelineOptions& options) {
    if (options.drafting != Drafting::Programme) return;
    for (int i = 1; i <= options.segments; ++i)
        world.connect_tensors(segment_id(i), kTheDraft, 2, kFakeLayers * kFakeDim * sizeof(float));
}

inline std::vector<TokenId> whole_text(const Request& request, const Oracle& oracle) {
    std::vector<TokenId> text = request.text;
    text.insert(text.end(), oracle.answer.begin(), oracle.answer.end());
    return text;
}

class Pipeline {
public:
    Pipeline(const PipelineOptions& options, const Request& request, const Oracle& oracle)
        : Pipeline{options, {whole_text(request, oracle)}} {}
    /// `texts`: prompt and answer of the requests that will come, for drafts that know them.
    Pipeline(const PipelineOptions& options, const Texts& texts)
        : world{options.seed}, segments_{options.segments} {
        world.add(kTheConductor, conductor);
        const bool drafts = options.drafting != Drafting::None;
        for (int i = 1; i <= options.segments; ++i) add_segment(options, i);
        if (drafts) add_draft(options, texts);
        for (int i = 1; i < options.segments; ++i) {
            world.connect_tensors(segment_id(i), segment_id(i + 1), 2,
                                  kWaveRowsMax * kFakeDim * sizeof(float));
        }
        connect_taps(world, options);
        world.start();
    }

    void begin(RequestId id, const Request& request, Attempt attempt) {
        const control::Begin begin{
            .request = id, .attempt = attempt, .payload = encode_request(request)};
        // Any order: a wave that overtakes its Begin waits.
        if (draft) world.post(kTheDraft, begin);
        for (int i = 1; i <= segments_; ++i) world.post(segment_id(i), begin);
    }
    void open_and_begin(RequestId id, const Request& request) {
        begin(id, request, conductor.log.open(id, request.text).value());
    }
    void stop(RequestId id, Attempt attempt) {
        const msg::Stop stop{.route = {.request = id, .attempt = attempt, .epoch = Epoch{1}}};
        if (draft) world.inject(kTheConductor, kTheDraft, stop);
        for (int i = 1; i <= segments_; ++i) world.inject(kTheConductor, segment_id(i), stop);
    }
    void run_until_finished(int answers = 1) {
        world.run([&] { return conductor.finished >= answers; });
        if (world.failure) FAIL(world.failure->what);
    }
    void run_dry() {
        world.run([] { return false; });
        if (world.failure) FAIL(world.failure->what);
    }

    ShuffledWorld world;
    TestConductor conductor;
    std::vector<std::unique_ptr<FakeBackend>> backends;
    std::vector<std::unique_ptr<SegmentActor>> segment_actors;
    std::unique_ptr<Actor> draft;

private:
    void add_segment(const PipelineOptions& options, int index) {
        backends.push_back(segment_backend(options, index));
        segment_actors.push_back(
            std::make_unique<SegmentActor>(segment_plan(options, index), *backends.back()));
        world.add(segment_id(index), *segment_actors.back());
    }
    void add_draft(const PipelineOptions& options, const Texts& texts) {
        if (options.drafting == Drafting::Mute) {
            draft = std::make_unique<Mute>();
        } else if (options.drafting == Drafting::Babble) {
            draft = std::make_unique<Babbler>(std::make_shared<Texts>(texts), options.seed);
        } else {
            draft = draft_actor(options, draft_sources(options, texts));
        }
        world.add(kTheDraft, *draft);
    }
    int segments_;
};

inline Request small_request(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    Request request;
    const std::size_t length = 1 + random() % 90;
    for (std::size_t i = 0; i < length; ++i) {
        request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
    }
    request.max_tokens = 40;
    request.gamma = 1 + static_cast<std::int32_t>(random() % 8);
    request.context = 512;
    return request;
}
inline void make_sampled(Request& request, std::uint64_t seed) {
    request.sampling.temperature = 0.7F;
    request.sampling.top_p = 0.95F;
    request.sampling.top_k = 20;
    request.sampling.seed = seed;
    request.sampling.repetition_penalty = 1.1F;
    request.sampling.frequency_penalty = 0.1F;
    request.sampling.penalty_window = 16;
}

}  // namespace paceline::testing
