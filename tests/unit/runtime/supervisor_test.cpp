#include "runtime/parent/supervisor.hpp"

#include <array>
#include <chrono>
#include <fcntl.h>
#include <fmt/core.h>
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

namespace {

/// Kills a process when so many answers have come.
struct KillingSource : Source {
    using Source::Source;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        Source::handle(from, kind, bytes);
        if (answers.size() == 100) ::kill(victim, SIGKILL);
    }
    pid_t victim = 0;
};

}  // namespace

TEST_CASE("a stage killed in the middle of the run ends it, by name") {
    for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
        const Leftovers before;
        auto supervisor = Supervisor::create(options()).value();
        Result<Wiring> wiring = start_relays(*supervisor);
        REQUIRE(wiring.ok());
        KillingSource source{kA, 1'000'000'000};
        const pid_t pid = supervisor->pids()[victim];
        source.victim = pid;
        Status ended;
        {
            StageLoop loop{std::move(wiring).value(), *supervisor, {}};
            loop.add(kConductor, source);
            ended = loop.run();
        }
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
        {"close-on-wire", Errc::PeerGone, {"closed its control channel"}},
    };
    for (const Case& one : cases) {
        CAPTURE(one.order);
        const Leftovers before;
        auto supervisor = Supervisor::create(options()).value();
        const Result<Wiring> wiring = start_relays(*supervisor, one.order);
        REQUIRE_FALSE(wiring.ok());
        CHECK(wiring.error().code == one.code);
        CHECK(has(wiring.error().what, "stage 'segment-2'"));
        for (const char* part : one.says) CHECK(has(wiring.error().what, part));
        supervisor.reset();
    }
}

TEST_CASE("a stage that hangs before it is ready is named, with the limit") {
    struct Case {
        const char* order;
        const char* what;
    };
    const Case cases[] = {{"hang-on-load", "did not load"},
                          {"hang-on-wire", "did not attach to its channels"}};
    for (const Case& one : cases) {
        const Leftovers before;
        // Twice as long while the machine is too slow for what the stages do before they hang.
        for (std::chrono::milliseconds limit = 300ms;; limit *= 2) {
            SupervisorOptions short_limit = options();
            short_limit.start_limit = limit;
            auto supervisor = Supervisor::create(short_limit).value();
            const Result<Wiring> wiring = start_relays(*supervisor, one.order);
            REQUIRE_FALSE(wiring.ok());
            CHECK(wiring.error().code == Errc::PeerGone);
            const std::string& what = wiring.error().what;
            const bool named = what.find("stage 'segment-2'") == 0;
            if (!named || what.find(one.what) == std::string::npos) {
                REQUIRE(has(what, " within "));
                continue;
            }
            CHECK(has(what, fmt::format("{} within {} ms", one.what, limit.count())));
            break;
        }
    }
}

TEST_CASE("time in which the parent stands still does not count as loading") {
    const Leftovers before;
    // Again with a longer limit if a busy machine let the limit pass before this process was
    // stopped.
    for (std::chrono::milliseconds limit = 800ms;; limit *= 2) {
        std::array<int, 2> ends{-1, -1};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
        const OwnedFd heard{ends[0]};
        const OwnedFd says{ends[1]};
        const auto began = Clock::now();  // before the pause, however late this process goes on
        const pid_t stopper = ::fork();
        REQUIRE(stopper >= 0);
        if (stopper == 0) {
            ::usleep(100'000);
            if (::write(says.get(), "", 1) != 1) ::_exit(1);
            ::kill(::getppid(), SIGSTOP);
            ::usleep(1'500'000);
            ::kill(::getppid(), SIGCONT);
            ::_exit(0);
        }
        SupervisorOptions short_limit = options();
        short_limit.start_limit = limit;
        auto supervisor = Supervisor::create(short_limit).value();
        REQUIRE_FALSE(start_relays(*supervisor, "hang-on-load").ok());
        const auto took = Clock::now() - began;
        char byte = 0;
        const bool stopped = ::read(heard.get(), &byte, 1) == 1;
        supervisor.reset();
        CHECK(::waitpid(stopper, nullptr, 0) == stopper);
        if (!stopped) continue;
        CHECK(took > limit + 1'100ms);
        break;
    }
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
    while (::kill(-group, 0) == 0) std::this_thread::sleep_for(10ms);
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
