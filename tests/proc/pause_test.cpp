// Stages that are stopped (SIGSTOP) for a while, at any time or in the middle of something.
#include <atomic>
#include <chrono>
#include <signal.h>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/leftovers.hpp"
#include "tests/proc/toy_run.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same
using namespace std::chrono_literals;

namespace {

/// A grace time that no machine is slow enough for.
constexpr std::chrono::milliseconds kNever = 24h;

ToyPlan two_and_a_draft() {
    return {.segments = 2, .draft = ToyDraft::Oracle, .layer_micros = 60};
}

/// Continues stopped processes, in a loop.
class Resumer {
public:
    explicit Resumer(std::vector<pid_t> pids) : thread_{[this, pids] { resume(pids); }} {}
    Resumer(const Resumer&) = delete;
    Resumer& operator=(const Resumer&) = delete;
    ~Resumer() {
        ends_ = true;
        thread_.join();
    }

private:
    void resume(const std::vector<pid_t>& pids) const {
        while (!ends_) {
            std::this_thread::sleep_for(30ms);
            for (const pid_t pid : pids) ::kill(pid, SIGCONT);
        }
    }
    std::atomic<bool> ends_{false};  // set by the destructor, read by the thread
    std::thread thread_;
};

}  // namespace

TEST_CASE("a stage that is stopped for less than the grace time is waited for") {
    const Leftovers before;
    for (const int streams : {1, 8}) {
        CAPTURE(streams);
        ToyRunOptions options{.plan = two_and_a_draft(),
                              .load = {.streams = streams, .sampled = streams == 8},
                              .sabotage = {.strike = Strike::Pause,
                                           .signals = 5,
                                           .seed = static_cast<std::uint64_t>(streams),
                                           .pause = 100ms}};
        options.supervision.stop_grace = kNever;
        ToyRun run{std::move(options)};
        check_decodes(run);
        CHECK(run.saboteur().signals() >= 5);
        CHECK(run.saboteur().deaths() == 0);
        CHECK(run.client().replays() == 0);
    }
}

TEST_CASE("a stage that stops in the middle of a frame and goes on has changed nothing") {
    const Leftovers before;
    for (const FaultPoint point :
         {FaultPoint::RingMidPayload, FaultPoint::RingMidCopy, FaultPoint::RingWritten,
          FaultPoint::BellArmed, FaultPoint::JobDone, FaultPoint::VerdictMade}) {
        CAPTURE(static_cast<int>(point));
        std::vector<ToyFaultOf> faults;
        for (const int stage : {1, 2, 3}) {
            for (const std::uint32_t nth : {3U, 10U, 25U}) {
                const ToyFault stop{.action = ToyAction::Stop, .point = point, .nth = nth};
                faults.push_back({toy_segment(stage), stop});
            }
        }
        std::unique_ptr<Resumer> resumer;
        ToyRunOptions options{.plan = two_and_a_draft(),
                              .load = {.streams = 8, .answers = 16},
                              .faults = faults,
                              .on_started = [&resumer](const std::vector<pid_t>& pids) {
                                  resumer = std::make_unique<Resumer>(pids);
                              }};
        options.supervision.stop_grace = kNever;
        ToyRun run{std::move(options)};
        check_decodes(run);
        CHECK(run.saboteur().deaths() == 0);
    }
}

TEST_CASE("a draft that is stopped and never missed does not hold the target back") {
    const Leftovers before;
    std::vector<pid_t> stages;
    const StageId draft = toy_segment(3);
    ToyRunOptions options{
        .plan = two_and_a_draft(),
        .load = {.streams = 8, .answers = 24},
        .faults = {{draft, {.action = ToyAction::Stop, .point = FaultPoint::JobStarted, .nth = 3}}},
        .on_started = [&stages](const std::vector<pid_t>& pids) { stages = pids; }};
    options.supervision.stop_grace = kNever;
    ToyRun run{std::move(options)};
    // More verdicts than its ring has room for are made meanwhile. If a stage waited for it, it
    // would do so until the saboteur ends the run.
    CHECK(run.decode().ok());
    CHECK_MESSAGE(run.client().complaints().empty(), run.client().complaints());
    CHECK(run.saboteur().deaths() == 0);
    for (const pid_t pid : stages) ::kill(pid, SIGCONT);
    CHECK(run.shutdown().ok());
}

TEST_CASE(
    "a draft that is stopped while more is to be said to it than its socket holds costs nothing") {
    const Leftovers before;
    std::vector<pid_t> stages;
    const StageId draft = toy_segment(3);
    // Every answer begins with a message to the draft, which reads none.
    ToyRunOptions options{
        .plan = {.segments = 2, .draft = ToyDraft::Oracle},
        .load = {.streams = 8, .answers = 600, .max_tokens = 2},
        .faults = {{draft, {.action = ToyAction::Stop, .point = FaultPoint::BeginTaken, .nth = 3}}},
        .on_started = [&stages](const std::vector<pid_t>& pids) { stages = pids; }};
    options.supervision.stop_grace = kNever;
    ToyRun run{std::move(options)};
    CHECK(run.decode().ok());
    CHECK_MESSAGE(run.client().complaints().empty(), run.client().complaints());
    CHECK(run.client().failures().empty());
    CHECK(run.client().answered() == 600);
    // It is not to blame, and nothing waited until it was blamed.
    CHECK_MESSAGE(run.saboteur().deaths() == 0, run.news());
    for (const pid_t pid : stages) ::kill(pid, SIGCONT);
    CHECK(run.shutdown().ok());
}

TEST_CASE("a stage that is stopped for longer is replaced, and harmless when it could go on") {
    const Leftovers before;
    for (const int streams : {1, 8}) {
        CAPTURE(streams);
        ToyRunOptions options{.plan = two_and_a_draft(),
                              .load = {.streams = streams, .sampled = streams == 8},
                              .sabotage = {.strike = Strike::Pause,
                                           .signals = 5,
                                           .seed = static_cast<std::uint64_t>(streams),
                                           .until_replaced = true}};
        options.supervision.stop_grace = 100ms;
        ToyRun run{std::move(options)};
        check_decodes(run);
        CHECK(run.saboteur().deaths() >= 5);
        CHECK_MESSAGE(run.news().find("stopped") != std::string::npos, run.news());
    }
}

TEST_CASE("a stage that stops in the middle of a frame for good is replaced") {
    const Leftovers before;
    for (const FaultPoint point :
         {FaultPoint::RingMidPayload, FaultPoint::RingMidCopy, FaultPoint::JobDone}) {
        CAPTURE(static_cast<int>(point));
        const ToyFault stop{.action = ToyAction::Stop, .point = point, .nth = 5, .spread = 20};
        ToyRunOptions options{.plan = two_and_a_draft(),
                              .load = {.streams = 8},
                              .faults = {{toy_segment(1), stop}, {toy_segment(2), stop}},
                              .deaths_wanted = 2};
        options.supervision.stop_grace = 100ms;
        ToyRun run{std::move(options)};
        check_decodes(run);
        CHECK(run.saboteur().deaths() == 2);
    }
}
