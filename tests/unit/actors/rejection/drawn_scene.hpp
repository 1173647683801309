// DrawnScene: the real draft and segments over TinyBackends, and the exact distribution of the
// answers: every outcome of the draft's draws and of the verifier's decisions is enumerated.
//
// In a LocalWorld the order of events does not depend on what was drawn; in a ShuffledWorld a seed
// chooses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/commit_log.hpp"
#include "actors/decoding/request.hpp"
#include "actors/draft/correct_actor.hpp"
#include "actors/draft/draft_actor.hpp"
#include "actors/segment/segment_actor.hpp"
#include "model/sampling/candidates.hpp"
#include "tests/support/local_world.hpp"
#include "tests/support/pipeline/shuffled_world.hpp"
#include "tests/unit/actors/rejection/every_way.hpp"
#include "tests/unit/actors/rejection/tiny_backend.hpp"

namespace paceline::testing {

inline constexpr StageId kTheCorrect{2};

/// What stands between the draft and the first segment, to lose or to repeat draws.
using DrawFilter = std::function<int(const msg::Draw& draw)>;  // how often it is delivered

struct DrawnOptions {
    std::uint64_t target = 1;  // weights
    std::uint64_t draft = 2;
    int segments = 1;
    GrowthRule growth = {.gamma = 2, .draws = true, .draw_top = 3, .draft_reach_min = 0.0F};
    DispatchOptions dispatch = {.proposal_wait = Micros{10'000'000}};
    DraftSourceFactory source = {};
    bool correct = false;  // a second speculative stage below the candidates of an exit
    int exit_at = 0;       // after which segment
    ExitOptions exit = {};
    // The draft reads the target's features, which come in tensors of so many rows; 0: no.
    std::size_t feature_rows = 0;
    DrawFilter filter = {};
    std::optional<std::uint64_t> shuffled = {};  // seed of a ShuffledWorld; else a LocalWorld
    BeginPayload request = {
        {.text = {0, 3}, .sampling = {.temperature = 1.0F}, .max_tokens = 3, .context = 64},
        0,
        0,
        {},
        AcceptanceRule::Rejection};
};

struct DrawnCounts {
    std::size_t runs = 0;
    std::size_t draws = 0;  // that reached the first segment
    std::size_t draws_of_correct = 0;
    std::size_t verdicts = 0;
    std::size_t tokens = 0;
    std::size_t features = 0;   // that the draft was given for a slot
    std::size_t in_flight = 0;  // batches that followed another one before its verdict
};

/// Ends the world when the answer is there.
class LastWord final : public Actor {
public:
    explicit LastWord(DrawnCounts& counts) : counts_{counts} {}
    void on_start(StageContext& context) override { context_ = &context; }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        ++counts_.verdicts;
        const Commit commit = log.commit(decode_message<msg::Verdict>(bytes).value());
        if (commit.finish != FinishReason::None) context_->stop();
    }
    CommitLog log;

private:
    DrawnCounts& counts_;
    StageContext* context_ = nullptr;
};

/// A segment behind a filter.
class FilteredSegment final : public Actor {
public:
    FilteredSegment(SegmentActor& segment, const DrawFilter& filter, DrawnCounts& counts)
        : segment_{segment}, filter_{filter}, counts_{counts} {}
    void on_start(StageContext& context) override { segment_.on_start(context); }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (kind == static_cast<std::uint16_t>(msg::Kind::Verdict)) batches_ = 0;
        if (kind == static_cast<std::uint16_t>(msg::Kind::Batch) && batches_++ > 0)
            ++counts_.in_flight;
        int times = 1;
        if (kind == static_cast<std::uint16_t>(msg::Kind::Draw)) {
            if (filter_) times = filter_(decode_message<msg::Draw>(bytes).value());
            counts_.draws += static_cast<std::size_t>(times);
            if (from == kTheCorrect) counts_.draws_of_correct += static_cast<std::size_t>(times);
        }
        while (times-- > 0) segment_.handle(from, kind, bytes);
    }
    void on_control(StageId from, const control::Message& message) override {
        segment_.on_control(from, message);
    }
    void on_room(StageId to) override { segment_.on_room(to); }
    void on_peer(StageId peer, PeerChange change) override { segment_.on_peer(peer, change); }

private:
    SegmentActor& segment_;
    const DrawFilter& filter_;
    DrawnCounts& counts_;
    std::size_t batches_ = 0;
};

/// One answer of the whole pipeline.
class DrawnScene {
public:
    /// Without `draws` and `decisions` both have the counter-based generator.
    DrawnScene(const DrawnOptions& options, Chance* draws, Chance* decisions, DrawnCounts& counts)
        : options_{options}, counts_{counts}, conductor_{counts} {
        if (options.shuffled) shuffled_.emplace(*options.shuffled);
        ++counts.runs;
        add(kConductorId, conductor_);
        add_drafts(draws);
        for (int i = 1; i <= options.segments; ++i) add_segment(i, decisions, counts);
        connect();
    }

    std::vector<TokenId> run() {
        constexpr RequestId kOne{1};
        const control::Begin begin{
            .request = kOne,
            .attempt = conductor_.log.open(kOne, options_.request.text).value(),
            .payload = encode_begin(options_.request)};
        for (const StageId stage : stages_) {
            if (shuffled_) {
                shuffled_->post(stage, begin);
            } else {
                world_.post(kConductorId, stage, begin);
            }
        }
        if (shuffled_) {
            shuffled_->start();
            shuffled_->run([this] { return shuffled_->stopped; });
            if (shuffled_->failure) FAIL(shuffled_->failure->what);
        } else {
            const Status ended = world_.run();
            if (!ended) FAIL(ended.error().what);
        }
        if (draft_backend_->features) counts_.features += draft_backend_->features->all.size();
        const auto answer = conductor_.log.answer(kOne);
        return {answer.begin(), answer.end()};
    }

private:
    static constexpr StageId kConductorId{0};
    static constexpr StageId kDraftId{1};
    static constexpr StageId kCorrectId = kTheCorrect;
    static StageId segment_id(int index) { return StageId{static_cast<std::uint16_t>(10 + index)}; }

    void add(StageId id, Actor& actor) {
        if (shuffled_) return shuffled_->add(id, actor);
        world_.add(id, actor);
    }
    [[nodiscard]] DraftTools tools(TinyBackend& backend, Chance* draws) const {
        DraftTools tools{.source = options_.source};
        tools.model = std::make_unique<DraftModel>(
            backend, DraftModelOptions{.vocab_size = kTinyVocab,
                                       .chance = draws,
                                       .target_features = backend.features != nullptr});
        return tools;
    }
    void add_drafts(Chance* draws) {
        DraftPlan plan{.first_segment = segment_id(1),
                       .verifier = segment_id(options_.segments),
                       .vocab_size = kTinyVocab,
                       .growth = options_.growth};
        if (options_.exit_at > 0 && options_.exit.sends_candidates)
            plan.exit = segment_id(options_.exit_at);
        draft_backend_ = std::make_unique<TinyBackend>(options_.draft, 0, kTinyLayers);
        if (options_.feature_rows > 0)
            draft_backend_->features = std::make_shared<FakeFeatures>(kTinyDim);
        const auto peer = options_.correct ? std::optional{kCorrectId} : std::nullopt;
        draft_ = std::make_unique<DraftActor>(plan, tools(*draft_backend_, draws), peer);
        add(kDraftId, *draft_);
        stages_.push_back(kDraftId);
        if (!options_.correct) return;
        correct_backend_ = std::make_unique<TinyBackend>(options_.draft, 0, kTinyLayers);
        DraftTools without_source = tools(*correct_backend_, draws);
        without_source.source = {};
        correct_ = std::make_unique<CorrectActor>(plan, std::move(without_source), kDraftId);
        add(kCorrectId, *correct_);
        stages_.push_back(kCorrectId);
    }
    void add_segment(int index, Chance* decisions, DrawnCounts& counts) {
        const int count = options_.segments;
        backends_.push_back(std::make_unique<TinyBackend>(
            options_.target, kTinyLayers * (index - 1) / count, kTinyLayers * index / count));
        SegmentPlan plan;
        plan.count = count;
        if (index > 1) plan.previous = segment_id(index - 1);
        if (index < count) plan.next = segment_id(index + 1);
        plan.draft = kDraftId;
        plan.speculative = stages_;
        std::erase_if(plan.speculative, [](StageId id) { return id.value > 10; });
        plan.first_segment = segment_id(1);
        plan.verifier = segment_id(count);
        plan.verdict_to = {kConductorId};
        for (const StageId id : plan.speculative) plan.verdict_to.push_back(id);
        for (int k = 1; k < count; ++k) plan.verdict_to.push_back(segment_id(k));
        plan.dispatch = options_.dispatch;
        plan.verify.chance = decisions;
        if (index == count && options_.feature_rows > 0) plan.features = FeatureOptions{kDraftId};
        if (index == options_.exit_at) {
            plan.exit = options_.exit;
            if (plan.exit->sends_candidates) plan.exit->candidates_to = plan.speculative;
        }
        segments_.push_back(std::make_unique<SegmentActor>(plan, *backends_.back()));
        filters_.push_back(
            std::make_unique<FilteredSegment>(*segments_.back(), options_.filter, counts));
        add(segment_id(index), *filters_.back());
        stages_.push_back(segment_id(index));
    }
    void connect() {
        const StageId verifier = segment_id(options_.segments);
        std::set<std::pair<StageId, StageId>> made;
        const auto join = [&](StageId from, StageId to, std::size_t tensor_bytes = 0) {
            if (from == to || !made.insert({from, to}).second) return;
            if (shuffled_) {
                if (tensor_bytes > 0) shuffled_->connect_tensors(from, to, 2, tensor_bytes);
                return;
            }
            EdgeSpec edge{.from = from, .to = to};
            if (tensor_bytes > 0) {
                edge.tensor_slots = 2;
                edge.tensor_bytes = tensor_bytes;
            }
            world_.connect(edge);
        };
        for (int i = 1; i < options_.segments; ++i)
            join(segment_id(i), segment_id(i + 1), kBatchRowsMax * kTinyDim * sizeof(float));
        if (options_.feature_rows > 0)
            join(verifier, kDraftId, options_.feature_rows * kTinyDim * sizeof(float));
        for (const StageId stage : stages_) join(verifier, stage);
        join(verifier, kConductorId);
        join(kDraftId, segment_id(1));
        if (options_.correct) {
            join(kDraftId, kCorrectId);
            join(kCorrectId, kDraftId);
            join(kCorrectId, segment_id(1));
        }
        if (options_.exit_at == 0) return;
        join(segment_id(options_.exit_at), kDraftId);
        if (options_.correct) join(segment_id(options_.exit_at), kCorrectId);
        join(segment_id(options_.exit_at), segment_id(1));
    }

    const DrawnOptions& options_;
    DrawnCounts& counts_;
    LocalWorld world_{LocalWorld::Clock::Virtual};
    std::optional<ShuffledWorld> shuffled_;
    LastWord conductor_;
    std::unique_ptr<TinyBackend> draft_backend_;
    std::unique_ptr<TinyBackend> correct_backend_;
    std::unique_ptr<DraftActor> draft_;
    std::unique_ptr<CorrectActor> correct_;
    std::vector<std::unique_ptr<TinyBackend>> backends_;
    std::vector<std::unique_ptr<SegmentActor>> segments_;
    std::vector<std::unique_ptr<FilteredSegment>> filters_;
    std::vector<StageId> stages_;
};

/// The distribution of plain sampling from the target's own p.
inline Distribution plain_distribution(const DrawnOptions& options) {
    const BeginPayload& request = options.request;
    const FinishRule rule = request.finish_rule();
    SamplerScratch scratch;
    return distribution_of([&](Chance& chance) {
        std::vector<TokenId> text = request.text;
        std::vector<float> logits(kTinyVocab);
        std::vector<float> p(kTinyVocab);
        for (FinishReason end = FinishReason::None; end == FinishReason::None;) {
            const TokenId before = text.size() > 1 ? text[text.size() - 2] : -1;
            tiny_logits(options.target, before, text.back(), logits);
            REQUIRE(probabilities(logits, {.committed = text, .path = {}}, request.sampling, p,
                                  scratch));
            const auto position = static_cast<Position>(text.size());
            text.push_back(static_cast<TokenId>(chance.pick(Weights(p.begin(), p.end()))));
            end = rule.after(text.back(), position);
        }
        return std::vector<TokenId>(text.begin() + static_cast<std::ptrdiff_t>(request.text.size()),
                                    text.end());
    });
}

/// The distribution of what the pipeline commits.
inline Distribution pipeline_distribution(const DrawnOptions& options, DrawnCounts& counts) {
    return distribution_of([&](Chance& chance) {
        std::vector<TokenId> answer = DrawnScene{options, &chance, &chance, counts}.run();
        counts.tokens += answer.size();
        return answer;
    });
}

}  // namespace paceline::testing
