#include <chrono>
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/stage_loop.hpp"
#include "runtime/supervisor.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

ChildSpec child(StageId id, std::string name, std::string_view order) {
    ChildSpec spec{id, std::move(name), {}, std::vector<std::byte>(order.size()), OnDeath::StopRun};
    std::memcpy(spec.payload.data(), order.data(), order.size());
    return spec;
}

SupervisorOptions options() {
    SupervisorOptions options;
    options.command = {PACELINE_STAGE_FIXTURE};
    options.start_limit = 10s;
    options.catch_signals = false;
    return options;
}

std::vector<EdgeSpec> edges() {
    return {{kConductor, kA, 8, 2, 0, 0}, {kA, kB, 8, 2, 2, 64}, {kB, kConductor, 8, 2, 0, 0}};
}

int entries_of(const char* path) {
    int count = 0;
    DIR* folder = ::opendir(path);
    while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
    if (folder != nullptr) ::closedir(folder);
    return count;
}

/// What must be the same after a run as before it.
struct Leftovers {
    int descriptors = entries_of("/proc/self/fd");
    int shm = entries_of("/dev/shm");
    ~Leftovers() {
        CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child, dead or alive
        CHECK(errno == ECHILD);
        CHECK(entries_of("/proc/self/fd") == descriptors);
        CHECK(entries_of("/dev/shm") <= shm);
    }
};

/// Starts A -> B and gives the conductor's wiring.
Result<Wiring> start_relays(Supervisor& supervisor, std::string_view order_b = "relay 0") {
    const std::vector<ChildSpec> children{child(kA, "segment-1", "relay 2"),
                                          child(kB, "segment-2", order_b)};
    const Status started = supervisor.start(children);
    if (!started.ok()) return started.error();
    const Result<std::vector<control::Hello>> hellos = supervisor.await_hellos();
    if (!hellos.ok()) return hellos.error();
    return supervisor.wire(edges(), 0);
}

bool has(const std::string& text, std::string_view part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE(text);
    return found;
}

}  // namespace

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
    const std::vector<ChildSpec> children{child(kA, "a", "relay 2"), child(kB, "b", "relay 0")};
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
    const std::vector<ChildSpec> children{child(kA, "stubborn", "hang-on-load")};
    REQUIRE(supervisor->start(children).ok());
    const Status ended = supervisor->shutdown();
    REQUIRE_FALSE(ended.ok());
    CHECK(has(ended.error().what, ") did not end within 100 ms"));
    supervisor.reset();
}

TEST_CASE("SIGTERM ends the loop of the conductor as a wish of the user") {
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

TEST_CASE("policies that do not exist yet are refused by name") {
    CHECK(parse_on_death("stop-run").value() == OnDeath::StopRun);
    CHECK(parse_on_death("restart-alone").value() == OnDeath::RestartAlone);
    CHECK_FALSE(parse_on_death("shrug").ok());
    auto supervisor = Supervisor::create(options()).value();
    ChildSpec spec = child(kA, "draft", "relay 0");
    spec.on_death = OnDeath::RestartAlone;
    const Status started = supervisor->start(std::vector{spec});
    REQUIRE_FALSE(started.ok());
    CHECK(started.error().code == Errc::Unsupported);
    CHECK(has(started.error().what, "stage 'draft': on_death = \"restart-alone\""));
}
