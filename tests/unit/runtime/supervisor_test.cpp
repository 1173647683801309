#include "runtime/parent/supervisor.hpp"

#include <chrono>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "tests/unit/runtime/relay_processes.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST_CASE("a pipeline of processes delivers everything and ends in good order") {
    const Leftovers before;
    auto supervisor = Supervisor::create(options()).value();
    Result<Wiring> wiring = start_relays(*supervisor);
    REQUIRE(wiring.ok());
    Source source{kA, 1000};
    {
        StageLoop loop{std::move(wiring).value(), *supervisor, {}};
        loop.add(kConductor, source);
        CHECK(loop.run().ok());
    }
    REQUIRE(source.answers.size() == 1000);
    for (int i = 0; i < 1000; ++i) REQUIRE(source.answers[static_cast<std::size_t>(i)] == i + 1002);
    CHECK(supervisor->shutdown().ok());
    supervisor.reset();
}

TEST_CASE("hellos come in the order of the children, with what they said") {
    const Leftovers before;
    auto supervisor = Supervisor::create(options()).value();
    const std::vector<ProcessSpec> children{child(kA, "a", "relay 2"), child(kB, "b", "relay 0")};
    REQUIRE(supervisor->start(children).ok());
    const auto hellos = supervisor->await_hellos().value();
    REQUIRE(hellos.size() == 2);
    CHECK(hellos[0].role == "relay");
    CHECK(hellos[0].dim == 2);
    CHECK(hellos[1].dim == 0);
    CHECK(static_cast<pid_t>(hellos[0].pid) == supervisor->pids()[0]);
    supervisor.reset();  // killed without a word
}

TEST_CASE("a stage killed in the middle of the run ends it at once, by name") {
    for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
        const Leftovers before;
        auto supervisor = Supervisor::create(options()).value();
        Result<Wiring> wiring = start_relays(*supervisor);
        REQUIRE(wiring.ok());
        Source source{kA, 1'000'000'000};
        const pid_t pid = supervisor->pids()[victim];
        std::chrono::steady_clock::time_point killed;
        std::thread killer{[&] {
            std::this_thread::sleep_for(50ms);
            killed = Clock::now();
            ::kill(pid, SIGKILL);
        }};
        Status ended;
        {
            StageLoop loop{std::move(wiring).value(), *supervisor, {}};
            loop.add(kConductor, source);
            ended = loop.run();
        }
        killer.join();
        CHECK(Clock::now() - killed < 2s);
        REQUIRE_FALSE(ended.ok());
        CHECK(ended.error().code == Errc::PeerGone);
        CHECK(has(ended.error().what, victim == 0 ? "stage 'segment-1'" : "stage 'segment-2'"));
        CHECK(has(ended.error().what, "was killed by signal 9 (Killed)"));
        CHECK_FALSE(source.answers.empty());
        supervisor.reset();
        CHECK(::kill(pid, 0) != 0);
    }
}

TEST_CASE("a stage that does not come up is named, with how it ended and its last words") {
    struct Case {
        const char* order;
        Errc code;
        std::vector<const char*> says;
    };
    const std::vector<Case> cases{
        {"exit-on-load",
         Errc::PeerGone,
         {"exited with code 3", "loading weights", "no such tensor: blk.0"}},
        {"abort-on-load", Errc::PeerGone, {"was killed by signal 6 (Aborted)"}},
        {"fail-on-load", Errc::BadFile, {"exited with code 1: model.gguf is truncated at byte 42"}},
        {"hang-on-load", Errc::PeerGone, {"did not load within 300 ms"}},
        {"hang-on-wire", Errc::PeerGone, {"did not attach to its channels within 300 ms"}},
        {"close-on-wire", Errc::PeerGone, {"closed its control channel"}},
    };
    for (const Case& one : cases) {
        CAPTURE(one.order);
        const Leftovers before;
        SupervisorOptions short_limit = options();
        short_limit.start_limit = 300ms;
        auto supervisor = Supervisor::create(short_limit).value();
        const Result<Wiring> wiring = start_relays(*supervisor, one.order);
        REQUIRE_FALSE(wiring.ok());
        CHECK(wiring.error().code == one.code);
        CHECK(has(wiring.error().what, "stage 'segment-2'"));
        for (const char* part : one.says) CHECK(has(wiring.error().what, part));
        supervisor.reset();
    }
}

TEST_CASE("time in which the parent stands still does not count as loading") {
    const Leftovers before;
    const auto began = Clock::now();  // before the pause, however late this process goes on
    const pid_t stopper = ::fork();
    REQUIRE(stopper >= 0);
    if (stopper == 0) {
        ::usleep(100'000);
        ::kill(::getppid(), SIGSTOP);
        ::usleep(1'500'000);
        ::kill(::getppid(), SIGCONT);
        ::_exit(0);
    }
    SupervisorOptions short_limit = options();
    short_limit.start_limit = 800ms;
    auto supervisor = Supervisor::create(short_limit).value();
    REQUIRE_FALSE(start_relays(*supervisor, "hang-on-load").ok());
    CHECK(Clock::now() - began > 1'900ms);
    supervisor.reset();
    CHECK(::waitpid(stopper, nullptr, 0) == stopper);
}

TEST_CASE("a stage's own helpers go with it") {
    const Leftovers before;
    auto supervisor = Supervisor::create(options()).value();
    REQUIRE(start_relays(*supervisor, "fork-and-relay 0").ok());
    const pid_t group = supervisor->pids()[1];
    CHECK(::kill(-group, 0) == 0);
    SUBCASE("in good order") {
        CHECK(supervisor->shutdown().ok());
    }
    SUBCASE("at once") {}
    supervisor.reset();
    for (int i = 0; i < 100 && ::kill(-group, 0) == 0; ++i) std::this_thread::sleep_for(10ms);
    CHECK(::kill(-group, 0) != 0);
}

TEST_CASE("a stage that ignores the end of the run is killed after the grace time and named") {
    const Leftovers before;
    SupervisorOptions short_grace = options();
    short_grace.shutdown_grace = 100ms;
    auto supervisor = Supervisor::create(short_grace).value();
    const std::vector<ProcessSpec> children{child(kA, "stubborn", "hang-on-load")};
    REQUIRE(supervisor->start(children).ok());
    const Status ended = supervisor->shutdown();
    REQUIRE_FALSE(ended.ok());
    CHECK(has(ended.error().what, ") did not end within 100 ms"));
    supervisor.reset();
}

TEST_CASE("SIGTERM ends the loop of the conductor as requested by the user") {
    const Leftovers before;
    SupervisorOptions with_signals = options();
    with_signals.catch_signals = true;
    auto supervisor = Supervisor::create(with_signals).value();
    Result<Wiring> wiring = start_relays(*supervisor);
    REQUIRE(wiring.ok());
    Source source{kA, 1'000'000'000};
    Status ended;
    {
        StageLoop loop{std::move(wiring).value(), *supervisor, {}};
        loop.add(kConductor, source);
        std::thread sender{[] {
            std::this_thread::sleep_for(30ms);
            ::kill(::getpid(), SIGTERM);
        }};
        ended = loop.run();
        sender.join();
    }
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.error().code == Errc::Cancelled);
    CHECK(supervisor->shutdown().ok());
    supervisor.reset();
}
