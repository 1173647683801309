// Projections: the simulation of a cost table of constants must agree with a formula.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/draft/draft_actor.hpp"
#include "actors/segment/segment_actor.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "runtime/simulation/table_timing.hpp"
#include "tests/sim/acceptance_source.hpp"

namespace paceline {
namespace {

constexpr int kLayers = 8;
constexpr int kDim = 3;
constexpr std::int32_t kSlots = 16'384;
constexpr StageId kFirst{1};
constexpr StageId kSecond{2};
constexpr StageId kDraft{3};

struct Body final : SimBody {
    [[nodiscard]] Actor& actor(StageId /*id*/) override { return *one; }
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Actor> one;
};

/// One or two segments, with or without a draft of constant acceptance.
struct Pipeline {
    int segments = 1;
    std::vector<double> right{};  // empty: no draft
    std::int32_t gamma = 4;

    [[nodiscard]] bool drafts() const { return !right.empty(); }
    [[nodiscard]] StageId verifier() const { return segments == 1 ? kFirst : kSecond; }

    [[nodiscard]] std::unique_ptr<SimBody> make_segment(int index) const {
        SegmentPlan plan;
        plan.count = segments;
        if (index == 2) plan.previous = kFirst;
        if (index < segments) plan.next = kSecond;
        if (drafts()) plan.draft = kDraft;
        if (drafts()) plan.speculative = {kDraft};
        plan.verifier = verifier();
        plan.verdict_to = {kConductor};
        if (segments == 2) plan.verdict_to.push_back(kFirst);
        if (drafts()) plan.verdict_to.push_back(kDraft);
        plan.dispatch.proposal_wait = Micros{10'000'000};  // it takes turns with the draft
        auto body = std::make_unique<Body>();
        ModelConfig shape;
        shape.layers = kLayers;
        shape.dim = kDim;
        shape.vocab_size = kOracleVocab;
        shape.context_length = kSlots;
        CpuOptions options;
        options.first_layer = kLayers * (index - 1) / segments;
        options.last_layer = kLayers * index / segments;
        options.kv_slots = kSlots;
        body->backend = std::make_unique<OracleBackend>(shape, options, OracleBackend::Part::Target,
                                                        OracleAccuracy{});
        body->one = std::make_unique<SegmentActor>(plan, *body->backend);
        return body;
    }
    [[nodiscard]] std::unique_ptr<SimBody> make_draft() const {
        auto body = std::make_unique<Body>();
        body->one =
            std::make_unique<DraftActor>(DraftPlan{.first_segment = kFirst,
                                                   .verifier = verifier(),
                                                   .vocab_size = kOracleVocab,
                                                   .growth = {.gamma = gamma}},
                                         DraftTools{.source = [this](const Request&) {
                                             return std::make_unique<AcceptanceSource>(right, 7);
                                         }});
        return body;
    }
    [[nodiscard]] std::vector<SimProcessSpec> processes() const {
        std::vector<SimProcessSpec> specs;
        for (int i = 1; i <= segments; ++i) {
            const StageId id{static_cast<std::uint16_t>(i)};
            specs.push_back({.process = {.id = id,
                                         .actors = {id},
                                         .name = "segment-" + std::to_string(i),
                                         .on_death = OnDeath::RebuildChain},
                             .make = [this, i] { return make_segment(i); }});
        }
        if (!drafts()) return specs;
        specs.push_back({.process = {.id = kDraft,
                                     .actors = {kDraft},
                                     .name = "draft",
                                     .on_death = OnDeath::RestartAlone},
                         .make = [this] { return make_draft(); }});
        return specs;
    }
    [[nodiscard]] std::vector<EdgeSpec> edges() const {
        std::vector<EdgeSpec> edges{{.from = kConductor, .to = kFirst},
                                    {.from = verifier(), .to = kConductor}};
        if (segments == 2) {
            edges.push_back({.from = kConductor, .to = kSecond});
            edges.push_back({.from = kFirst,
                             .to = kSecond,
                             .tensor_slots = 4,
                             .tensor_bytes = kBatchRowsMax * kDim * sizeof(float)});
            edges.push_back({.from = kSecond, .to = kFirst});
        }
        if (drafts()) {
            edges.push_back({.from = kConductor, .to = kDraft});
            edges.push_back({.from = kDraft, .to = kFirst});
            edges.push_back({.from = verifier(), .to = kDraft});
        }
        return edges;
    }
    [[nodiscard]] ConductorPlan plan() const {
        ConductorPlan plan;
        plan.verifier = verifier();
        if (drafts()) plan.begin_to.push_back({.id = kDraft, .essential = false});
        if (segments == 2) plan.begin_to.push_back({.id = kSecond});
        plan.begin_to.push_back({.id = kFirst});
        return plan;
    }
};

struct Projection {
    double tokens_per_second = 0.0;
    double acceptance = 0.0;           // of candidates that were verified
    std::map<StageId, double> busy{};  // share of the time
    std::vector<TraceEvent> events{};  // of the first segment
    SimTime busy_first{0};
};

Projection project(const Pipeline& pipeline,
                   const CostTable& table,
                   int requests,
                   std::int32_t tokens,
                   SimTime hop) {
    TableTiming timing{table,
                       {{kConductor, {.name = "conductor"}},
                        {kFirst, {.name = "segment-1", .fingerprint = "target"}},
                        {kSecond, {.name = "segment-2", .fingerprint = "target"}},
                        {kDraft, {.name = "draft", .fingerprint = "small"}}},
                       hop};
    SimOptions options;
    options.tracing = true;
    options.jobs_may_run_early = false;
    SimWorld world{options, timing, pipeline.processes(), pipeline.edges()};
    ConductorActor conductor{pipeline.plan(), kOracleVocab, kSlots};
    Projection projection;
    Micros begun = Micros::max();
    Micros ended{0};
    std::int64_t proposed = 0;
    std::int64_t accepted = 0;
    int open = requests;
    world.start(conductor);
    world.call_at(SimTime{0}, [&] {
        for (int i = 0; i < requests; ++i) {
            AnswerOrder order;
            order.request.text = {static_cast<TokenId>(i + 1)};
            order.request.max_tokens = tokens;
            order.request.context = tokens + 16;
            order.on_token = [](TokenId) { return Go::On; };
            order.on_end = [&](const AnswerStats& stats, const Status& status) {
                CHECK(status.ok());
                CHECK(stats.generated_tokens == tokens);
                begun = std::min(begun, stats.begun);
                ended = std::max(ended, stats.last_token);
                proposed += stats.verdicts.candidates;
                accepted += stats.verdicts.accepted;
                --open;
            };
            REQUIRE(conductor.submit(std::move(order)).ok());
        }
    });
    const bool done = world.run([&] { return open == 0; }, SimTime{3'600'000'000'000});
    CHECK(done);
    CHECK_MESSAGE(!world.violation(), world.violation().value_or(""));
    CHECK_MESSAGE(!timing.error(), (timing.error() ? timing.error()->what : ""));
    const double took = static_cast<double>((ended - begun).count()) / 1e6;
    projection.tokens_per_second = static_cast<double>(requests) * tokens / took;
    if (proposed > 0) {
        projection.acceptance = static_cast<double>(accepted) / static_cast<double>(proposed);
    }
    for (const auto& process : world.stages().incarnations()) {
        projection.busy[process->self.id()] =
            static_cast<double>(process->telemetry.busy.count()) / 1e9 / took;
        if (process->self.id() != kFirst) continue;
        projection.events = process->telemetry.trace;
        projection.busy_first = process->telemetry.busy;
    }
    return projection;
}

CostTable constants(double verify, double draft) {
    return CostTable::of({{.stage = "prefill", .fingerprint = "target", .seconds = verify},
                          {.stage = "verify", .fingerprint = "target", .seconds = verify},
                          {.stage = "draft", .fingerprint = "small", .seconds = draft}});
}

bool close(double measured, double expected, double tolerance) {
    INFO("measured ", measured, ", expected ", expected);
    CHECK(std::abs(measured / expected - 1.0) < tolerance);
    return std::abs(measured / expected - 1.0) < tolerance;
}

TEST_CASE("taking turns with a draft gives the tokens per second of the closed formula") {
    constexpr double kVerify = 0.020;
    constexpr double kDraftTime = 0.005;
    constexpr SimTime kHop{50'000};
    for (const double right : {0.0, 0.3, 0.7, 0.9, 1.0}) {
        for (const std::int32_t gamma : {1, 4, 8}) {
            CAPTURE(right);
            CAPTURE(gamma);
            const Pipeline pipeline{.segments = 1, .right = {right}, .gamma = gamma};
            const Projection made =
                project(pipeline, constants(kVerify, kDraftTime), 1, 6'000, kHop);
            const double accepted =
                right == 1.0 ? gamma + 1.0 : (1.0 - std::pow(right, gamma + 1)) / (1.0 - right);
            const double round = kVerify + kDraftTime + 2 * 50e-6;
            // 6,000 tokens are at least 650 rounds: three standard errors are below 5 %.
            CHECK(close(made.tokens_per_second, accepted / round, 0.05));
            CHECK(close(made.busy.at(kFirst), kVerify / round, 0.02));
            CHECK(close(made.busy.at(kDraft), kDraftTime / round, 0.02));
            if (right > 0) CHECK(close(made.acceptance, (accepted - 1) / gamma, 0.08));
        }
    }
}

TEST_CASE("acceptance by depth counts for the depths that are reached") {
    const Pipeline pipeline{.segments = 1, .right = {0.9, 0.5, 0.0}, .gamma = 6};
    const Projection made = project(pipeline, constants(0.020, 0.0), 1, 6'000, SimTime{0});
    CHECK(close(made.tokens_per_second, (1 + 0.9 + 0.9 * 0.5) / 0.020, 0.04));
}

TEST_CASE("two segments work on one request by turns and on two at the same time") {
    const Pipeline pipeline{.segments = 2};
    constexpr SimTime kHop{100'000};
    // The table's times are per whole target: half of the layers take half of it.
    const CostTable table = CostTable::of(
        {{.stage = "prefill", .fingerprint = "target", .layers = kLayers, .seconds = 0.020},
         {.stage = "verify", .fingerprint = "target", .layers = kLayers, .seconds = 0.020}});
    const double round = 0.020 + 2 * 100e-6;
    const Projection one = project(pipeline, table, 1, 1'000, kHop);
    CHECK(close(one.tokens_per_second, 1 / round, 0.01));
    CHECK(close(one.busy.at(kFirst), 0.5, 0.02));
    const Projection two = project(pipeline, table, 2, 1'000, kHop);
    CHECK(close(two.tokens_per_second, 2 / round, 0.01));
    CHECK(close(two.busy.at(kFirst), 1.0, 0.02));
    CHECK(close(two.busy.at(kSecond), 1.0, 0.02));
}

TEST_CASE("a transfer's record is the time of its edge") {
    const Pipeline pipeline{.segments = 2};
    const CostTable table =
        CostTable::of({{.stage = "prefill", .fingerprint = "target", .seconds = 0.010},
                       {.stage = "verify", .fingerprint = "target", .seconds = 0.010},
                       {.stage = "segment-1>segment-2", .fingerprint = "-", .seconds = 0.003},
                       {.stage = "segment-2>segment-1", .fingerprint = "-", .seconds = 0.002}});
    const Projection made = project(pipeline, table, 1, 500, SimTime{1'000});
    CHECK(close(made.tokens_per_second, 1 / 0.025, 0.01));
}

TEST_CASE("the trace of a projection holds every job of a stage as a span") {
    const Projection made =
        project({.segments = 1, .right = {0.5}, .gamma = 3}, constants(0.02, 0.005), 1, 200, {});
    const auto is_job = [](const TraceEvent& event) { return event.kind == TraceKind::Job; };
    const std::int64_t micros =
        std::accumulate(made.events.begin(), made.events.end(), std::int64_t{0},
                        [&](std::int64_t sum, const TraceEvent& event) {
                            return is_job(event) ? sum + event.duration_us : sum;
                        });
    CHECK(micros == made.busy_first.count() / 1'000);
    CHECK(std::is_sorted(made.events.begin(), made.events.end(), [&](const auto& a, const auto& b) {
        return is_job(a) && is_job(b) && a.time_us < b.time_us;
    }));
}

}  // namespace
}  // namespace paceline
