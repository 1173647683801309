// The order of jobs of actors that share a process, in all three environments.
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "tests/support/local_world.hpp"
#include "tests/unit/ipc/seeded_random.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"
#include "tests/unit/runtime/sim_fixture.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::uint32_t kJobs = 300;
const std::vector<StageId> kNeighbours{StageId{1}, StageId{2}, StageId{3}};

/// What the neighbours did, in order, and what they still have to do.
struct Diary {
    enum class What : std::uint8_t { Submitted, Ran, Ended, Received };
    struct Entry {
        What what;
        std::uint32_t job;
    };
    explicit Diary(std::uint64_t seed) : random{seed} {}
    [[nodiscard]] bool complete() const { return ended == kJobs && hops_left == 0; }

    std::vector<Entry> entries;
    std::uint32_t jobs = 0;
    std::uint32_t ended = 0;
    std::uint32_t hops_left = 0;
    std::vector<std::uint32_t> hops = std::vector<std::uint32_t>(kJobs);  // that follow each job
    SeededRandom random;
};

/// Submits jobs at the start, after jobs and after messages; each job's end sends a message
/// through some of the neighbours.
struct Neighbour : Actor {
    Neighbour(Diary& the_diary, bool ends) : diary{the_diary}, stops{ends} {}
    void on_start(StageContext& c) override {
        context = &c;
        submit_some(1);
    }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        auto message = as<msg::Proposal>(bytes);
        diary.entries.push_back({Diary::What::Received, message.count});
        --diary.hops_left;
        if (diary.random.one_in(3)) submit_some(0);
        if (--message.root_position > 0) forward(message);
        look_whether_over();
    }
    void submit_some(std::uint32_t least) {
        for (std::uint32_t n = least + diary.random.below(3); n > 0 && diary.jobs < kJobs; --n) {
            const std::uint32_t job = diary.jobs++;
            diary.entries.push_back({Diary::What::Submitted, job});
            context->submit(
                {.rows = 1},
                [this, job] {
                    diary.entries.push_back({Diary::What::Ran, job});
                    return JobOutcome::Done;
                },
                [this, job](JobOutcome) { end(job); });
        }
    }
    void end(std::uint32_t job) {
        diary.entries.push_back({Diary::What::Ended, job});
        ++diary.ended;
        if (diary.random.one_in(2)) submit_some(0);
        msg::Proposal message{};
        message.count = job;
        message.root_position = static_cast<Position>(diary.random.below(5));
        diary.hops[job] = static_cast<std::uint32_t>(message.root_position);
        diary.hops_left += diary.hops[job];
        if (message.root_position > 0) forward(message);
        if (diary.ended == diary.jobs) submit_some(1);  // never idle before all were submitted
        look_whether_over();
    }
    void forward(const msg::Proposal& message) {
        const std::size_t own = context->self().value - 1U;
        const StageId to = kNeighbours[(own + 1 + diary.random.below(2)) % kNeighbours.size()];
        CHECK(send(*context, to, message) == Push::Ok);
    }
    void look_whether_over() {
        if (stops && diary.complete()) context->stop();
    }
    Diary& diary;
    bool stops;
    StageContext* context = nullptr;
};

void run_local(Diary& diary) {
    LocalWorld world{LocalWorld::Clock::Virtual};
    std::vector<std::unique_ptr<Neighbour>> all;
    for (const StageId id : kNeighbours) {
        all.push_back(std::make_unique<Neighbour>(diary, true));
        world.add(id, *all.back());
    }
    for (const StageId from : kNeighbours) {
        for (const StageId to : kNeighbours) {
            if (from != to) world.connect({.from = from, .to = to});
        }
    }
    CHECK(world.run().ok());
}

void run_loop(Diary& diary) {
    struct Silence final : ControlPort {
        Status send(Envelope, const control::Message&) override { return {}; }
        Status poll(const Deliver&) override { return {}; }
        Status report_fault(StageId, Epoch, const Error&) override { return {}; }
        Status wired(StageId, Epoch) override { return {}; }
    } port;
    const WiringPlan plan = wired_plan({{{kNeighbours[0], kNeighbours, 0}, Epoch{1}}}, {});
    StageLoop loop{wiring_of(plan, kNeighbours[0], Epoch{1}), port, {}};
    std::vector<std::unique_ptr<Neighbour>> all;
    for (const StageId id : kNeighbours) {
        all.push_back(std::make_unique<Neighbour>(diary, true));
        loop.add(id, *all.back());
    }
    CHECK(loop.run().ok());
}

void run_simulated(Diary& diary, bool handlers_during_jobs) {
    FixedTiming timing;
    SimProcessSpec spec;
    spec.process = {.id = kNeighbours[0], .actors = kNeighbours, .name = "neighbours"};
    spec.handlers_during_jobs = handlers_during_jobs;
    spec.make = [&diary] {
        return std::make_unique<OwningBody>(
            [&diary](StageId) { return std::make_unique<Neighbour>(diary, false); });
    };
    SimWorld world{{.jobs_may_run_early = false}, timing, {spec}, {}};
    IdleConductor conductor;
    world.start(conductor);
    CHECK(world.run([&diary] { return diary.complete(); }, SimTime{std::chrono::hours{1}}));
}

/// What run_simulated() and the others must have written.
void check(const Diary& diary) {
    using What = Diary::What;
    REQUIRE(diary.complete());
    std::uint32_t next_submitted = 0;
    std::uint32_t next_run = 0;
    std::uint32_t next_end = 0;
    std::uint32_t received = 0;
    bool in_order = true;
    bool all_received = true;
    for (const Diary::Entry& entry : diary.entries) {
        if (entry.what == What::Submitted) in_order = in_order && entry.job == next_submitted++;
        if (entry.what == What::Ended) in_order = in_order && entry.job == next_end++;
        if (entry.what == What::Received) {
            all_received = all_received && next_run > 0 && entry.job == next_run - 1;
            ++received;
        }
        if (entry.what != What::Ran) continue;
        // Everything that the job before it set going has come to rest.
        if (next_run > 0) {
            all_received =
                all_received && next_end == next_run && received == diary.hops[next_run - 1];
        }
        in_order = in_order && entry.job == next_run++;
        received = 0;
    }
    CHECK(in_order);
    CHECK(all_received);
    CHECK(next_run == kJobs);
}

}  // namespace

TEST_CASE(
    "neighbours' jobs run in the order of submission, each when the last one's news are received") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        for (int world = 0; world < 4; ++world) {
            CAPTURE(world);
            Diary diary{seed};
            if (world == 0) run_local(diary);
            if (world == 1) run_loop(diary);
            if (world == 2) run_simulated(diary, false);
            if (world == 3) run_simulated(diary, true);
            check(diary);
        }
    }
}
