#include "runtime/parent/supervisor.hpp"

#include <chrono>
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "tests/unit/runtime/pinger.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

ChildSpec child(StageId id, std::string name, std::string_view order) {
    ChildSpec spec;
    spec.id = id;
    spec.name = std::move(name);
    spec.payload.resize(order.size());
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

namespace {

std::vector<ChildSpec> restartable(std::string_view order_b) {
    std::vector<ChildSpec> children{child(kA, "segment-1", "relay 2"),
                                    child(kB, "segment-2", order_b)};
    for (ChildSpec& spec : children) spec.on_death = OnDeath::RebuildChain;
    return children;
}

struct Pipeline {
    explicit Pipeline(SupervisorOptions chosen, std::string_view order_b = "relay 0") {
        chosen.on_news = [this](const std::string& sentence) { news.push_back(sentence); };
        supervisor = Supervisor::create(std::move(chosen)).value();
        REQUIRE(supervisor->start(restartable(order_b)).ok());
        REQUIRE(supervisor->await_hellos().ok());
        wiring = supervisor->wire(edges(), 0).value();
    }
    Status run(Actor& conductor) {
        StageLoop loop{std::move(*wiring), *supervisor, {}};
        loop.add(kConductor, conductor);
        return loop.run();
    }
    std::vector<std::string> news;
    std::unique_ptr<Supervisor> supervisor;
    std::optional<Wiring> wiring;
};

}  // namespace

TEST_CASE("a stage that is killed comes back as the next incarnation, with new channels") {
    for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
        const Leftovers before;
        {
            Pipeline pipeline{options()};
            const pid_t pid = pipeline.supervisor->pids()[victim];
            std::thread killer{[pid] {
                std::this_thread::sleep_for(30ms);
                ::kill(pid, SIGKILL);
            }};
            Pinger pinger{1};
            CHECK(pipeline.run(pinger).ok());
            killer.join();
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

TEST_CASE("a stage that loads while the parent stands still keeps its time if another one dies then") {
    const Leftovers before;
    SupervisorOptions chosen = options();
    chosen.start_limit = 3s;
    {
        Pipeline pipeline{chosen, "relay-loads-again 0"};  // for four seconds
        const std::vector<pid_t> pids = pipeline.supervisor->pids();
        const pid_t stopper = ::fork();
        REQUIRE(stopper >= 0);
        if (stopper == 0) {
            ::kill(pids[1], SIGKILL);
            ::usleep(300'000);  // until its successor loads
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
        std::thread killer{[pids] {
            std::this_thread::sleep_for(30ms);
            for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        }};
        Pinger pinger{2};
        CHECK(pipeline.run(pinger).ok());
        killer.join();
        CHECK(pipeline.supervisor->shutdown().ok());
    }
}

TEST_CASE("a stopped stage is waited for, and replaced after the grace time") {
    const Leftovers before;
    SupervisorOptions chosen = options();
    chosen.stop_grace = 200ms;
    {
        Pipeline pipeline{chosen};
        const pid_t pid = pipeline.supervisor->pids()[0];
        int losses = 0;
        SUBCASE("continued before") {
            std::thread stopper{[pid] {
                ::kill(pid, SIGSTOP);
                std::this_thread::sleep_for(60ms);
                ::kill(pid, SIGCONT);
            }};
            Pinger pinger{0};
            CHECK(pipeline.run(pinger).ok());
            stopper.join();
            losses = pinger.losses;
            CHECK(losses == 0);
        }
        SUBCASE("not continued") {
            ::kill(pid, SIGSTOP);
            Pinger pinger{1};
            CHECK(pipeline.run(pinger).ok());
            losses = pinger.losses;
            CHECK(losses == 1);
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

TEST_CASE("a stage's wish for a Begin reaches the conductor's actor, and no stage is replaced") {
    Pipeline pipeline{options(), "relay-and-ask 0"};
    Pinger pinger{0};
    pinger.wishes_wanted = 1;
    CHECK(pipeline.run(pinger).ok());
    CHECK(pinger.wishes == 1);
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
        std::thread killer{[pid] {
            std::this_thread::sleep_for(30ms);
            ::kill(pid, SIGKILL);
        }};
        Pinger pinger{1};
        CHECK(pipeline.run(pinger).ok());
        killer.join();
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
