// When the work of a simulated job is done, and what is handled meanwhile.
#include <memory>
#include <optional>

#include <doctest/doctest.h>

#include "runtime/loop/control_port.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "tests/unit/runtime/sim_fixture.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

constexpr StageId kStage{1};

/// What happened to one job of a stage, in virtual time.
struct Story {
    std::optional<Micros> proposal_at;
    std::optional<Micros> verdict_at;
    std::optional<Micros> timer_at;
    std::optional<Micros> ended_at;
    std::optional<Micros> next_ended_at;
    bool work_saw_verdict = false;
    bool work_saw_timer = false;
    int runs = 0;
};

/// Submits two jobs for a proposal; a verdict and a timer come in the middle of the first one.
struct Worker : Actor {
    explicit Worker(Story& the_story) : story{the_story} {}
    void on_start(StageContext& c) override { context = &c; }
    void handle(StageId, std::uint16_t kind, std::span<const std::byte>) override {
        if (kind == static_cast<std::uint16_t>(msg::Kind::Verdict)) {
            story.verdict_at = context->now();
            return;
        }
        story.proposal_at = context->now();
        context->schedule(300us, [this] { story.timer_at = context->now(); });
        context->submit(
            {.rows = 1},
            [this] {
                story.work_saw_verdict = story.verdict_at.has_value();
                story.work_saw_timer = story.timer_at.has_value();
                ++story.runs;
                return JobOutcome::Done;
            },
            [this](JobOutcome) { story.ended_at = context->now(); });
        context->submit(
            {.rows = 1}, [] { return JobOutcome::Done; },
            [this](JobOutcome) { story.next_ended_at = context->now(); });
    }
    Story& story;
    StageContext* context = nullptr;
};

Story play(std::uint64_t seed, bool handlers_during_jobs, bool jobs_may_run_early) {
    Story story;
    FixedTiming timing;
    SimProcessSpec spec;
    spec.process = {.id = kStage, .actors = {kStage}, .name = "stage"};
    spec.handlers_during_jobs = handlers_during_jobs;
    spec.make = [&story] {
        return std::make_unique<OwningBody>(
            [&story](StageId) { return std::make_unique<Worker>(story); });
    };
    SimWorld world{{.seed = seed, .jobs_may_run_early = jobs_may_run_early},
                   timing,
                   {spec},
                   {{.from = kConductor, .to = kStage}}};
    IdleConductor conductor;
    world.start(conductor);
    world.call_at(100us,
                  [&] { CHECK(send(*conductor.context, kStage, msg::Proposal{}) == Push::Ok); });
    world.call_at(600us,
                  [&] { CHECK(send(*conductor.context, kStage, msg::Verdict{}) == Push::Ok); });
    CHECK(world.run([&story] { return story.next_ended_at.has_value(); }, SimTime{1s}));
    CHECK_FALSE(world.violation());
    return story;
}

}  // namespace

TEST_CASE("a simulated process on cores handles nothing during a job, one beside a device does") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        for (const bool early : {false, true}) {
            CAPTURE(early);
            // Whether the work was done cannot be told at the beginning of its time or the end.
            const Story cores = play(seed, false, early);
            CHECK(cores.proposal_at == 100us);
            CHECK(cores.ended_at == 1100us);
            CHECK(cores.verdict_at == 1100us);
            CHECK(cores.timer_at == 1100us);
            CHECK_FALSE(cores.work_saw_verdict);
            CHECK_FALSE(cores.work_saw_timer);
            CHECK(cores.next_ended_at == 2100us);
            CHECK(cores.runs == 1);

            const Story device = play(seed, true, early);
            CHECK(device.verdict_at == 600us);
            CHECK(device.timer_at == 400us);
            CHECK(device.ended_at == 1100us);
            CHECK(device.work_saw_verdict);
            CHECK(device.work_saw_timer);
            CHECK(device.next_ended_at == 2100us);  // one at a time here too
            CHECK(device.runs == 1);
        }
    }
}
