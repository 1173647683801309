// Stages that die, stop or send invalid messages during a run: they are replaced, or the run ends
// with their report.
#include <array>
#include <chrono>
#include <fcntl.h>
#include <signal.h>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "runtime/parent/supervisor.hpp"
#include "tests/unit/runtime/pinger.hpp"
#include "tests/unit/runtime/relay_processes.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

TEST_CASE("a stage that is killed comes back as the next incarnation, with new channels") {
    for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
        const Leftovers before;
        {
            Pipeline pipeline{options()};
            const pid_t pid = pipeline.supervisor->pids()[victim];
            const std::jthread killer = kill_soon({pid});
            Pinger pinger{1};
            CHECK(pipeline.run(pinger).ok());
            CHECK(pinger.losses == 1);
            CHECK(pipeline.supervisor->pids()[victim] != pid);
            REQUIRE(pipeline.news.size() == 2);
            CHECK(has(pipeline.news[0], "restarting as epoch 2: stage 'segment-"));
            CHECK(has(pipeline.news[0], "was killed by signal 9 (Killed)"));
            CHECK(has(pipeline.news[1], "is at work again (epoch 2)"));
            CHECK(pipeline.supervisor->shutdown().ok());
        }
    }
}

TEST_CASE(
    "a stage that loads while the parent stands still keeps its time if another one dies then") {
    const Leftovers before;
    SupervisorOptions chosen = options();
    chosen.start_limit = 3s;
    std::array<int, 2> ends{-1, -1};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const OwnedFd heard{ends[0]};
    const OwnedFd says{ends[1]};
    chosen.on_log = [&says](std::string_view, std::string_view line) {
        if (line == "loading again") CHECK(::write(says.get(), "", 1) == 1);
    };
    {
        Pipeline pipeline{chosen, "relay-loads-again 0"};  // for four seconds
        const std::vector<pid_t> pids = pipeline.supervisor->pids();
        const pid_t stopper = ::fork();
        REQUIRE(stopper >= 0);
        if (stopper == 0) {
            ::kill(pids[1], SIGKILL);
            char byte = 0;
            if (::read(heard.get(), &byte, 1) != 1) ::_exit(1);  // its successor loads
            ::kill(::getppid(), SIGSTOP);
            ::kill(pids[0], SIGKILL);
            ::usleep(3'400'000);
            ::kill(::getppid(), SIGCONT);
            ::_exit(0);
        }
        Pinger pinger{2};
        CHECK(pipeline.run(pinger).ok());
        CHECK(::waitpid(stopper, nullptr, 0) == stopper);
        std::string news;
        for (const std::string& sentence : pipeline.news) news += sentence + "\n";
        CHECK_MESSAGE(pipeline.news.size() == 4, news);  // two losses, and no third
        CHECK(pipeline.supervisor->shutdown().ok());
    }
}

TEST_CASE("both stages killed at once come back and find each other") {
    const Leftovers before;
    {
        Pipeline pipeline{options()};
        const std::vector<pid_t> pids = pipeline.supervisor->pids();
        const std::jthread killer = kill_soon(pids);
        Pinger pinger{2};
        CHECK(pipeline.run(pinger).ok());
        CHECK(pipeline.supervisor->shutdown().ok());
    }
}

TEST_CASE("a stopped stage is waited for, and replaced after the grace time") {
    const Leftovers before;
    SupervisorOptions chosen = options();
    std::chrono::milliseconds grace = 200ms;
    SUBCASE("continued before") {
        grace = 24h;
    }
    SUBCASE("not continued") {}
    chosen.stop_grace = grace;
    {
        Pipeline pipeline{chosen};
        const pid_t pid = pipeline.supervisor->pids()[0];
        if (grace > 200ms) {
            std::thread stopper{[pid] {
                ::kill(pid, SIGSTOP);
                std::this_thread::sleep_for(60ms);
                ::kill(pid, SIGCONT);
            }};
            Pinger pinger{0};
            CHECK(pipeline.run(pinger).ok());
            stopper.join();
            CHECK(pinger.losses == 0);
        } else {
            ::kill(pid, SIGSTOP);
            Pinger pinger{1};
            CHECK(pipeline.run(pinger).ok());
            CHECK(pinger.losses == 1);
            CHECK(has(pipeline.news[0], "was stopped and not continued for"));
        }
        CHECK(pipeline.supervisor->shutdown().ok());
    }
}

TEST_CASE(
    "a stage that says what only the conductor may say is replaced, and does not end the run") {
    const Leftovers before;
    for (const auto& [order, said] :
         {std::pair{"relay-and-end 0", "'shutdown' in the name of actor 2"},
          {"relay-and-feign 0", "'begin-wanted' in the name of actor 1"}}) {
        SupervisorOptions strict = options();
        strict.restarts.restarts_max = 1;
        Pipeline pipeline{strict, order};
        Pinger pinger{100};
        const Status ended = pipeline.run(pinger);
        REQUIRE_FALSE(ended.ok());
        CHECK(has(ended.error().what, said));
        CHECK(has(ended.error().what, "died 2 times"));
        (void)pipeline.supervisor->shutdown();
    }
}

TEST_CASE("a stage's request for a Begin reaches the conductor's actor, and no stage is replaced") {
    Pipeline pipeline{options(), "relay-and-ask 0"};
    Pinger pinger{0};
    pinger.begins_expected = 1;
    CHECK(pipeline.run(pinger).ok());
    CHECK(pinger.begins_requested == 1);
    CHECK(pipeline.news.empty());
    CHECK(pipeline.supervisor->shutdown().ok());
}

TEST_CASE("a stage that offers a link for a channel that has none is replaced") {
    const Leftovers before;
    {
        SupervisorOptions strict = options();
        strict.restarts.restarts_max = 1;
        Pipeline pipeline{strict, "relay-and-offer 0"};
        Pinger pinger{100};
        const Status ended = pipeline.run(pinger);
        REQUIRE_FALSE(ended.ok());
        CHECK(has(ended.error().what,
                  "it made stage 1 an offer for a channel to stage 2 that has no link"));
        (void)pipeline.supervisor->shutdown();
    }
}

TEST_CASE("a stage that dies too often ends the run, with how it died last and first") {
    const Leftovers before;
    SupervisorOptions chosen = options();
    chosen.restarts.restarts_max = 2;
    chosen.restarts.backoff = {Micros{0}};
    {
        Pipeline pipeline{chosen, "relay-then-exit 0"};
        Pinger pinger{1'000'000};
        const Status ended = pipeline.run(pinger);
        REQUIRE_FALSE(ended.ok());
        CHECK(
            has(ended.error().what, "stage 'segment-2' died 3 times within 30 s of work; last: "));
        CHECK(has(ended.error().what, "exited with code 5"));
        CHECK(has(ended.error().what, "\nthe first failure: stage 'segment-2'"));
        CHECK(has(ended.error().what, " s after it: stage 'segment-2'"));
        pipeline.supervisor.reset();
    }
}

TEST_CASE("the telemetry blocks of dead incarnations can still be read") {
    const Leftovers before;
    {
        SupervisorOptions chosen = options();
        chosen.trace_events = 64;
        Pipeline pipeline{chosen};
        const pid_t pid = pipeline.supervisor->pids()[0];
        const std::jthread killer = kill_soon({pid});
        Pinger pinger{1};
        CHECK(pipeline.run(pinger).ok());
        const std::vector<StageRecord> records = pipeline.supervisor->records();
        REQUIRE(records.size() == 4);  // conductor, two stages, one again
        CHECK(records[0].id == kConductor);
        CHECK(records[1].epoch == Epoch{1});
        CHECK(records[3].id == kA);
        CHECK(records[3].epoch == Epoch{2});
        CHECK(records[1].telemetry.snapshot().pid == static_cast<std::uint32_t>(pid));
        CHECK(records[0].telemetry.snapshot().counter(Counter::Restarts) == 1);
        CHECK(records[1].telemetry.snapshot().counter(Counter::FramesIn) > 0);
        CHECK_FALSE(records[1].telemetry.trace().empty());
    }
}
