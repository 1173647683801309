// Cluster: the real conductor, a draft and 1..4 segments in a ShuffledWorld whose stages can be
// killed and started anew, and a record of everything that the conductor's callers hear.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/counters.hpp"
#include "tests/unit/actors/pipeline.hpp"

namespace paceline::testing {

/// What the caller of one answer heard.
struct Heard {
    std::vector<TokenId> tokens;
    int ends = 0;
    AnswerFigures figures;
    Status status;
    // Every segment has heard of the end: none was lost between the last Begin and now.
    bool settled = false;
};

class Cluster {
public:
    explicit Cluster(PipelineOptions options, ConductorPlan plan = {})
        : world{options.seed},
          conductor{complete(std::move(plan), options), kFakeVocab, options.kv_slots},
          options_{std::move(options)},
          segments_(static_cast<std::size_t>(options_.segments)) {
        world.add(kTheConductor, conductor);
        for (int i = 1; i <= options_.segments; ++i) {
            make_segment(i);
            world.add(segment_id(i), *segments_[place(i)].actor);
        }
        if (drafts()) {
            make_draft();
            world.add(kTheDraft, *draft_);
        }
        connect();
        world.start();
    }
    ~Cluster() { conductor_is_over_ = true; }

    /// The draft's oracle knows what follows.
    void teach(std::vector<TokenId> text) { texts_->push_back(std::move(text)); }

    /// Answers are kept in `heard` in the order of the orders.
    Result<RequestId> submit(const Request& request,
                             std::optional<RequestId> continues = std::nullopt,
                             std::size_t stop_after = 0) {
        heard.push_back(std::make_unique<Heard>());
        Heard* ear = heard.back().get();
        AnswerOrder order;
        order.continues = continues;
        order.request = request;
        order.on_token = [ear, stop_after](TokenId token) {
            CHECK(ear->ends == 0);
            ear->tokens.push_back(token);
            return ear->tokens.size() == stop_after ? Go::Stop : Go::On;
        };
        order.cancelled = cancelled;
        order.on_end = [ear, this](const AnswerFigures& figures, const Status& status) {
            CHECK_FALSE(conductor_is_over_);
            ++ear->ends;
            ear->figures = figures;
            ear->status = status;
            ear->settled = !replays_at_loss_ || replays() > *replays_at_loss_;
        };
        return conductor.submit(std::move(order));
    }

    void lose(StageId id) {
        world.lose(id);
        if (id != kTheDraft) {
            replays_at_loss_ = replays();
            for (const auto& ear : heard) ear->settled = false;
        }
        if (id == kTheDraft) {
            draft_.reset();
            return;
        }
        Segment& segment = segments_[place(id.value - 10)];
        segment.actor.reset();
        segment.backend.reset();
    }
    /// A fresh process: an empty actor, a cache full of garbage.
    void rejoin(StageId id) {
        if (id == kTheDraft) {
            make_draft();
            return world.join(id, *draft_);
        }
        make_segment(id.value - 10);
        world.join(id, *segments_[place(id.value - 10)].actor);
    }

    [[nodiscard]] bool all_ended() const {
        return std::all_of(heard.begin(), heard.end(),
                           [](const auto& ear) { return ear->ends > 0; });
    }
    void run_until_ended() {
        world.run([&] { return all_ended(); });
        if (world.failure) FAIL(world.failure->what);
        REQUIRE(all_ended());
    }
    /// As a supervisor does: whom a stage reports is replaced.
    void replace_faulty() {
        for (; faults_seen_ < world.faults.size(); ++faults_seen_) {
            const ShuffledWorld::Fault& fault = world.faults[faults_seen_];
            if (!world.lives(fault.peer) || world.epoch_of(fault.peer) != fault.peer_epoch)
                continue;
            lose(fault.peer);
            rejoin(fault.peer);
        }
    }
    /// Until the last answer that was ordered has ended.
    void run_until_last_ended() {
        world.run([&] {
            replace_faulty();
            return heard.back()->ends > 0;
        });
        if (world.failure) FAIL(world.failure->what);
        REQUIRE(heard.back()->ends > 0);
    }
    void run_dry() {
        world.run([] { return false; });
        if (world.failure) FAIL(world.failure->what);
    }
    void run_steps(int steps) {
        world.run_steps(steps);
        if (world.failure) FAIL(world.failure->what);
    }
    [[nodiscard]] const SegmentActor& segment(int index) const {
        return *segments_[place(index)].actor;
    }
    [[nodiscard]] const WaveScheduler& scheduler() const { return *segment(1).scheduler(); }

    ShuffledWorld world;
    ConductorActor conductor;
    std::vector<std::unique_ptr<Heard>> heard;
    std::function<bool()> cancelled;  // of the orders that follow

private:
    struct Segment {
        std::unique_ptr<FakeBackend> backend;
        std::unique_ptr<SegmentActor> actor;
    };
    [[nodiscard]] std::uint64_t replays() const {
        return world.counted(kTheConductor, counters::kReplays);
    }
    static std::size_t place(int index) { return static_cast<std::size_t>(index - 1); }
    [[nodiscard]] bool drafts() const { return options_.drafting != Drafting::None; }

    static ConductorPlan complete(ConductorPlan plan, const PipelineOptions& options) {
        plan.verifier = segment_id(options.segments);
        if (options.drafting != Drafting::None) {
            plan.begin_to.push_back({.id = kTheDraft, .essential = false, .name = "draft"});
        }
        for (int i = options.segments; i >= 1; --i) {
            plan.begin_to.push_back({.id = segment_id(i), .name = "segment-" + std::to_string(i)});
        }
        return plan;
    }
    void make_segment(int index) {
        Segment& segment = segments_[place(index)];
        segment.backend = segment_backend(options_, index);
        segment.actor =
            std::make_unique<SegmentActor>(segment_plan(options_, index), *segment.backend);
    }
    void make_draft() {
        if (options_.drafting == Drafting::Babble) {
            draft_ = std::make_unique<Babbler>(texts_, options_.seed + ++sources_);
            return;
        }
        draft_ = draft_actor(options_, [this](const Request& request) {
            PipelineOptions options = options_;
            options.seed += ++sources_;  // it does not propose twice in the same way
            return draft_sources(options, *texts_)(request);
        });
    }
    void connect() {
        const int count = options_.segments;
        for (int i = 1; i <= count; ++i) {
            world.link(kTheConductor, segment_id(i));
            if (i == count) break;
            for (int k = i + 1; k <= count; ++k) world.link(segment_id(i), segment_id(k));
            world.connect_tensors(segment_id(i), segment_id(i + 1), 2,
                                  kWaveRowsMax * kFakeDim * sizeof(float));
        }
        connect_taps(world, options_);
        if (!drafts()) return;
        world.link(kTheDraft, kTheConductor);
        for (int i = 1; i <= count; ++i) world.link(kTheDraft, segment_id(i));
    }

    PipelineOptions options_;
    std::vector<Segment> segments_;
    std::unique_ptr<Actor> draft_;
    std::shared_ptr<Texts> texts_ = std::make_shared<Texts>();
    std::uint64_t sources_ = 0;
    std::optional<std::uint64_t> replays_at_loss_;  // of a segment, the last one
    bool conductor_is_over_ = false;
    std::size_t faults_seen_ = 0;
};

}  // namespace paceline::testing
