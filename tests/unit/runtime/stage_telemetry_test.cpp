#include "runtime/observe/stage_telemetry.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/transport/owned_fd.hpp"
#include "runtime/observe/trace_copy.hpp"

using namespace paceline;
using namespace std::chrono_literals;

namespace {

// As drawn in stage_telemetry.hpp.
constexpr std::size_t kCapacityOffset = 20;
constexpr std::size_t kNameOffset = 28;
constexpr std::size_t kTracedOffset = 768;
constexpr std::size_t kTraceOffset = 896;
constexpr std::size_t kSlotBytes = 64;

std::chrono::nanoseconds now() {
    return std::chrono::steady_clock::now().time_since_epoch();
}

/// A telemetry block with its writer, a reader, and the bytes under both.
struct TelemetryFixture {
    ShmFile file;
    StageTelemetry telemetry;
    StageTelemetryView view;
    ShmRegion raw;

    explicit TelemetryFixture(std::uint32_t trace_events = 8, const std::string& name = "segment-1")
        : file{StageTelemetry::create(StageId{2}, Epoch{3}, name, trace_events).value()},
          telemetry{StageTelemetry::attach(ShmRegion::attach(file.fd(), 1).value()).value()},
          view{StageTelemetryView::attach(file.fd()).value()},
          raw{ShmRegion::attach(file.fd(), 1).value()} {}

    template <class T>
    void poke(std::size_t offset, T value) {
        std::memcpy(raw.bytes().data() + offset, &value, sizeof value);
    }
};

TraceEvent mark(std::uint32_t id) {
    TraceEvent event;
    event.time_us = id;
    event.id = id;
    event.count = id * 7;
    event.peer_epoch = Epoch{id};
    return event;
}

std::vector<std::uint32_t> ids(const std::vector<TraceEvent>& events) {
    std::vector<std::uint32_t> found;
    for (const TraceEvent& event : events) {
        CHECK(event.time_us == event.id);
        CHECK(event.count == event.id * 7);
        CHECK(event.peer_epoch.value == event.id);
        found.push_back(event.id);
    }
    return found;
}

std::string link_of(int fd) {
    std::array<char, 512> text{};
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    REQUIRE(::readlink(path.c_str(), text.data(), text.size() - 1) > 0);
    return text.data();
}

}  // namespace

TEST_CASE("a telemetry block says who writes it, and its file can be found by its name") {
    TelemetryFixture fixture;
    const TelemetrySnapshot shot = fixture.view.snapshot();
    CHECK(shot.stage == StageId{2});
    CHECK(shot.epoch == Epoch{3});
    CHECK(shot.name == "segment-1");
    CHECK(shot.pid == static_cast<std::uint32_t>(::getpid()));
    CHECK(shot.activity == Activity::Starting);
    CHECK(shot.since > 0ns);
    CHECK(shot.since <= now());
    CHECK(link_of(fixture.file.fd()).starts_with("/memfd:" + std::string{kTelemetryFilePrefix}));
}

TEST_CASE("counters add up and gauges keep the last value, each in its own place") {
    TelemetryFixture fixture;
    for (std::size_t i = 0; i < kCounters; ++i) {
        fixture.telemetry.count(static_cast<Counter>(i), i + 1);
        fixture.telemetry.count(static_cast<Counter>(i));
    }
    fixture.telemetry.set(free_gauge(0), 9);
    fixture.telemetry.set(free_gauge(0), 4);
    fixture.telemetry.set(free_gauge(kGauges - 1), 2);
    const TelemetrySnapshot shot = fixture.view.snapshot();
    for (std::size_t i = 0; i < kCounters; ++i) CHECK(shot.counters[i] == i + 2);
    CHECK(shot.gauge(free_gauge(0)) == 4);
    CHECK(shot.gauge(free_gauge(kGauges - 1)) == 2);
}

TEST_CASE("every event and activity has a name of its own") {
    const auto check_names = [](int first, int last, auto name) {
        std::set<std::string> names{"unknown"};
        for (int i = first; i <= last; ++i) CHECK(names.insert(name(i)).second);
    };
    check_names(1, static_cast<int>(TraceKind::Mark),
                [](int i) { return name_of(static_cast<TraceKind>(i)); });
    check_names(0, static_cast<int>(Activity::Ended),
                [](int i) { return name_of(static_cast<Activity>(i)); });
}

TEST_CASE("an activity is published with its beginning and its deadline") {
    TelemetryFixture fixture;
    const std::uint64_t progress = fixture.view.snapshot().progress;
    const auto before = now();
    fixture.telemetry.enter(Activity::Computing, 5s);
    const TelemetrySnapshot busy = fixture.view.snapshot();
    CHECK(busy.activity == Activity::Computing);
    CHECK(busy.since >= before);
    CHECK(busy.deadline == busy.since + 5s);
    CHECK(busy.progress != progress);
    fixture.telemetry.enter(Activity::Waiting, 0s);
    const TelemetrySnapshot idle = fixture.view.snapshot();
    CHECK(idle.activity == Activity::Waiting);
    CHECK(idle.deadline == 0ns);
    CHECK(idle.progress != busy.progress);
}

TEST_CASE("a name that is too long is cut, one that could harm a terminal is made harmless") {
    CHECK(TelemetryFixture{8, std::string(500, 'x')}.view.snapshot().name == std::string(63, 'x'));
    CHECK(TelemetryFixture{8, "a\x1b[2J\nb\xc3\xa9"}.view.snapshot().name == "a?[2J?b??");
    TelemetryFixture fixture;
    for (std::size_t i = 0; i < 64; ++i) fixture.poke(kNameOffset + i, 'y');  // no end
    CHECK(fixture.view.snapshot().name == std::string(64, 'y'));
}

TEST_CASE("what a stage scribbles into its telemetry block does not reach beyond it") {
    TelemetryFixture fixture;
    fixture.telemetry.trace(mark(1));
    for (std::size_t i = 0; i < fixture.raw.bytes().size(); ++i) fixture.poke(i, '\xff');
    const TelemetrySnapshot shot = fixture.view.snapshot();
    CHECK(shot.activity == Activity::Ended);  // the last one that there is
    CHECK(shot.since == 0ns);                 // not -1: a time may be subtracted from any other
    CHECK(shot.deadline == 0ns);
    CHECK(fixture.view.trace().size() <= 8);  // nonsense, but no more of it than there is room
    CHECK(fixture.view.traced() == ~std::uint64_t{0});
    for (std::size_t i = 0; i < fixture.raw.bytes().size(); ++i) fixture.poke(i, '\0');
    CHECK(fixture.view.snapshot().name.empty());
    CHECK(fixture.view.trace().empty());
}

TEST_CASE(
    "a telemetry block that claims a larger trace than it has is refused, by reader and writer") {
    TelemetryFixture fixture;
    SUBCASE("twice as many events") {
        fixture.poke<std::uint32_t>(kCapacityOffset, 16);
    }
    SUBCASE("more than any telemetry may have") {
        fixture.poke<std::uint32_t>(kCapacityOffset, 1U << 31U);
    }
    SUBCASE("no power of two") {
        fixture.poke<std::uint32_t>(kCapacityOffset, 7);
    }
    SUBCASE("another format") {
        fixture.poke<std::uint64_t>(0, 1);
    }
    SUBCASE("another version") {
        fixture.poke<std::uint32_t>(8, 99);
    }
    const Result<StageTelemetryView> view = StageTelemetryView::attach(fixture.file.fd());
    REQUIRE_FALSE(view.ok());
    CHECK(view.error().code == Errc::Protocol);
    CHECK_FALSE(StageTelemetry::attach(ShmRegion::attach(fixture.file.fd(), 1).value()).ok());
}

TEST_CASE("a trace that claims to have grown after it was checked is read as it was") {
    TelemetryFixture fixture;
    fixture.telemetry.trace(mark(1));
    fixture.poke<std::uint32_t>(kCapacityOffset, 1U << 20U);
    CHECK(ids(fixture.view.trace()) == std::vector<std::uint32_t>{1});
}

TEST_CASE("memory that is no telemetry block, or that could shrink under its reader, is refused") {
    const ShmFile tiny = ShmFile::create("tiny", kTraceOffset - 1, {}).value();
    CHECK_FALSE(StageTelemetryView::attach(tiny.fd()).ok());
    CHECK_FALSE(StageTelemetry::attach(ShmRegion::attach(tiny.fd(), 1).value()).ok());
    CHECK_FALSE(StageTelemetryView::attach(-1).ok());

    TelemetryFixture fixture;
    const OwnedFd copy{::memfd_create("paceline-telemetry-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    const std::span<std::byte> bytes = fixture.raw.bytes();
    REQUIRE(::write(copy.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    CHECK_FALSE(StageTelemetryView::attach(copy.get()).ok());
    REQUIRE(::fcntl(copy.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(StageTelemetryView::attach(copy.get()).ok());
}

TEST_CASE("a reader needs no more than a descriptor that it may read") {
    TelemetryFixture fixture;
    const std::string path = "/proc/self/fd/" + std::to_string(fixture.file.fd());
    const OwnedFd readable{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    const Result<StageTelemetryView> view = StageTelemetryView::attach(readable.get());
    REQUIRE(view.ok());
    fixture.telemetry.count(free_counter(0), 5);
    CHECK(view.value().snapshot().counter(free_counter(0)) == 5);
}

TEST_CASE("the trace ring wraps and keeps the newest events, oldest first") {
    TelemetryFixture fixture{6};  // rounded up to 8
    CHECK(fixture.view.trace().empty());
    for (std::uint32_t i = 1; i <= 8; ++i) fixture.telemetry.trace(mark(i));
    CHECK(ids(fixture.view.trace()) == std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8});
    for (std::uint32_t i = 9; i <= 21; ++i) fixture.telemetry.trace(mark(i));
    CHECK(ids(fixture.view.trace()) == std::vector<std::uint32_t>{14, 15, 16, 17, 18, 19, 20, 21});
    CHECK(fixture.view.traced() == 21);
}

TEST_CASE("an event that was being written when its writer died is left out") {
    TelemetryFixture fixture;
    for (std::uint32_t i = 1; i <= 8; ++i) fixture.telemetry.trace(mark(i));
    const std::size_t slot = kTraceOffset + 2 * kSlotBytes;  // of event 3
    SUBCASE("its stamp is gone, its bytes are half new") {
        fixture.poke<std::uint64_t>(slot, 0);
        fixture.poke<std::uint32_t>(slot + 8, 999);
    }
    SUBCASE("the new event is complete, but was not counted") {
        fixture.poke<std::uint64_t>(slot, 11);
    }
    CHECK(ids(fixture.view.trace()) == std::vector<std::uint32_t>{1, 2, 4, 5, 6, 7, 8});
}

TEST_CASE("events that were counted but never written are left out") {
    TelemetryFixture fixture;
    fixture.telemetry.trace(mark(1));
    fixture.poke<std::uint64_t>(kTracedOffset, 5);
    CHECK(ids(fixture.view.trace()) == std::vector<std::uint32_t>{1});
    fixture.poke<std::uint64_t>(kTracedOffset, std::uint64_t{1} << 60U);
    CHECK(fixture.view.trace().empty());
}

TEST_CASE("a writer that attaches again goes on after the events that are there") {
    TelemetryFixture fixture;
    for (std::uint32_t i = 1; i <= 3; ++i) fixture.telemetry.trace(mark(i));
    StageTelemetry again =
        StageTelemetry::attach(ShmRegion::attach(fixture.file.fd(), 1).value()).value();
    again.trace(mark(4));
    CHECK(ids(fixture.view.trace()) == std::vector<std::uint32_t>{1, 2, 3, 4});
}

TEST_CASE("events of another machine are appended with their times shifted") {
    TelemetryFixture f{2};
    ShmRegion memory = ShmRegion::attach(f.file.fd(), 1).value();
    CHECK(trace_capacity_of(memory.bytes()) == 2);
    std::array<TraceEvent, 3> events{};
    for (std::size_t i = 0; i < events.size(); ++i) events[i].time_us = 10 * static_cast<int>(i);
    append_trace(memory.bytes(), std::span{events}.first(1), 1s);
    append_trace(memory.bytes(), std::span{events}.last(2), -5us);
    CHECK(f.view.traced() == 3);
    const std::vector<TraceEvent> kept = f.view.trace();
    REQUIRE(kept.size() == 2);
    CHECK(kept[0].time_us == 5);
    CHECK(kept[1].time_us == 15);
    CHECK(trace_capacity_of(memory.bytes().first(100)) == 0);
    append_trace(memory.bytes().first(100), events, 0s);  // no block
    CHECK(f.view.traced() == 3);
}

TEST_CASE("a telemetry block without a trace records none") {
    TelemetryFixture fixture{0};
    CHECK_FALSE(fixture.telemetry.traces());
    fixture.telemetry.trace(mark(1));
    CHECK(fixture.view.trace().empty());
    CHECK(fixture.view.traced() == 0);

    StageTelemetry local = StageTelemetry::local(StageId{1}, Epoch{1}, "alone");
    CHECK_FALSE(local.traces());
    local.enter(Activity::Computing, 1s);
    local.count(Counter::Jobs);
    local.trace(mark(1));
}

TEST_CASE("a reader that looks while the ring is overwritten sees only whole events, in order") {
    TelemetryFixture fixture{256};
    std::atomic<bool> over{false};
    std::thread writer{[&] {
        for (std::uint32_t i = 1; !over.load(); ++i) fixture.telemetry.trace(mark(i));
    }};
    std::size_t seen = 0;
    std::size_t wrong = 0;
    while (seen < 10'000'000 || fixture.view.traced() < 10'000'000) {
        const std::vector<TraceEvent> events = fixture.view.trace();
        seen += events.size();
        std::int64_t last = 0;
        for (const TraceEvent& event : events) {
            const bool whole = event.time_us == event.id && event.count == event.id * 7 &&
                               event.peer_epoch.value == event.id;
            if (!whole || event.time_us <= last) ++wrong;
            last = event.time_us;
        }
    }
    CHECK(wrong == 0);
    over.store(true);
    writer.join();
}

TEST_CASE("what a killed process said can still be read") {
    const ShmFile file = StageTelemetry::create(StageId{1}, Epoch{2}, "victim", 8).value();
    const StageTelemetryView view = StageTelemetryView::attach(file.fd()).value();
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        Result<ShmRegion> region = ShmRegion::attach(file.fd(), 1);
        if (!region.ok()) ::_exit(1);
        Result<StageTelemetry> telemetry = StageTelemetry::attach(std::move(region).value());
        if (!telemetry.ok()) ::_exit(1);
        telemetry.value().count(free_counter(3), 42);
        for (std::uint32_t i = 1; i <= 10; ++i) telemetry.value().trace(mark(i));
        telemetry.value().enter(Activity::Computing, 1ms);
        ::raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const TelemetrySnapshot shot = view.snapshot();
    CHECK(shot.pid == static_cast<std::uint32_t>(child));
    CHECK(shot.counter(free_counter(3)) == 42);
    CHECK(shot.activity == Activity::Computing);
    CHECK(shot.deadline == shot.since + 1ms);
    CHECK(ids(view.trace()) == std::vector<std::uint32_t>{3, 4, 5, 6, 7, 8, 9, 10});
}
