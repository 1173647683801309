#include "tests/support/pipeline/cluster.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"

namespace paceline::testing {

Cluster::Cluster(PipelineOptions options, ConductorPlan plan)
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

Cluster::~Cluster() {
    conductor_is_over_ = true;
}

void Cluster::teach(std::vector<TokenId> text) {
    texts_->push_back(std::move(text));
}

Result<RequestId> Cluster::submit(const Request& request, std::size_t stop_after) {
    answers.push_back(std::make_unique<ReceivedAnswer>());
    ReceivedAnswer* answer = answers.back().get();
    AnswerOrder order;
    order.request = request;
    const bool scored = request.scores.answer;
    const auto prompt = static_cast<Position>(request.text.size());
    order.on_scores = [answer, prompt](Position position, const TokenScores& scores) {
        const bool of_prompt = position < prompt;
        std::vector<TokenScores>& list = of_prompt ? answer->prompt_scores : answer->scores;
        if (of_prompt && list.empty()) list.emplace_back();
        CHECK(list.size() == static_cast<std::size_t>(of_prompt ? position : position - prompt));
        list.push_back(scores);
    };
    order.on_token = [answer, stop_after, scored](TokenId token) {
        CHECK(answer->ends == 0);
        answer->tokens.push_back(token);
        if (scored) CHECK(answer->scores.size() == answer->tokens.size());
        return answer->tokens.size() == stop_after ? Go::Stop : Go::On;
    };
    order.cancelled = cancelled;
    order.on_end = [answer, this](const AnswerStats& stats, const Status& status) {
        CHECK_FALSE(conductor_is_over_);
        ++answer->ends;
        answer->stats = stats;
        answer->status = status;
    };
    return conductor.submit(std::move(order));
}

void Cluster::lose(StageId id) {
    world.lose(id);
    if (id == kTheDraft) {
        draft_.reset();
        return;
    }
    Segment& segment = segments_[place(id.value - 10)];
    segment.actor.reset();
    segment.backend.reset();
}

void Cluster::rejoin(StageId id) {
    if (id == kTheDraft) {
        make_draft();
        return world.join(id, *draft_);
    }
    make_segment(id.value - 10);
    world.join(id, *segments_[place(id.value - 10)].actor);
}

bool Cluster::all_ended() const {
    return std::all_of(answers.begin(), answers.end(),
                       [](const auto& answer) { return answer->ends > 0; });
}

void Cluster::run_until_ended() {
    world.run([&] { return all_ended(); });
    if (world.failure) FAIL(world.failure->what);
    REQUIRE(all_ended());
}

void Cluster::replace_faulty() {
    for (; faults_seen_ < world.faults.size(); ++faults_seen_) {
        const ShuffledWorld::Fault& fault = world.faults[faults_seen_];
        if (!world.lives(fault.peer) || world.epoch_of(fault.peer) != fault.peer_epoch) continue;
        lose(fault.peer);
        rejoin(fault.peer);
    }
}

void Cluster::run_until_last_ended() {
    world.run([&] {
        replace_faulty();
        return answers.back()->ends > 0;
    });
    if (world.failure) FAIL(world.failure->what);
    REQUIRE(answers.back()->ends > 0);
}

void Cluster::run_dry() {
    world.run([] { return false; });
    if (world.failure) FAIL(world.failure->what);
}

void Cluster::run_steps(int steps) {
    world.run_steps(steps);
    if (world.failure) FAIL(world.failure->what);
}

const SegmentActor& Cluster::segment(int index) const {
    return *segments_[place(index)].actor;
}

const BatchScheduler& Cluster::scheduler() const {
    return *segment(1).scheduler();
}

std::size_t Cluster::place(int index) {
    return static_cast<std::size_t>(index - 1);
}

bool Cluster::drafts() const {
    return options_.drafting != Drafting::None;
}

ConductorPlan Cluster::complete(ConductorPlan plan, const PipelineOptions& options) {
    plan.verifier = segment_id(options.segments);
    if (options.drafting != Drafting::None) {
        plan.begin_to.push_back({.id = kTheDraft, .essential = false, .name = "draft"});
    }
    for (int i = options.segments; i >= 1; --i) {
        plan.begin_to.push_back({.id = segment_id(i), .name = "segment-" + std::to_string(i)});
    }
    return plan;
}

void Cluster::make_segment(int index) {
    Segment& segment = segments_[place(index)];
    segment.backend = segment_backend(options_, index);
    segment.actor = std::make_unique<SegmentActor>(segment_plan(options_, index), *segment.backend);
}

void Cluster::make_draft() {
    if (options_.drafting == Drafting::Babble) {
        draft_ = babbling_draft(texts_, options_.seed + ++sources_);
        return;
    }
    draft_ = draft_actor(options_, [this](const Request& request) {
        PipelineOptions options = options_;
        options.seed += ++sources_;  // it does not propose twice in the same way
        return draft_sources(options, *texts_)(request);
    });
}

void Cluster::connect() {
    const int count = options_.segments;
    for (int i = 1; i <= count; ++i) {
        world.link(kTheConductor, segment_id(i));
        if (i == count) break;
        for (int k = i + 1; k <= count; ++k) world.link(segment_id(i), segment_id(k));
        world.connect_tensors(segment_id(i), segment_id(i + 1), 2,
                              kBatchRowsMax * kFakeDim * sizeof(float));
    }
    connect_taps(world, options_);
    if (!drafts()) return;
    world.link(kTheDraft, kTheConductor);
    for (int i = 1; i <= count; ++i) world.link(kTheDraft, segment_id(i));
}

}  // namespace paceline::testing
