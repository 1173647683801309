// Finding pipelines by the telemetry blocks that a process holds, on telemetry blocks made here.
#include "launch/cli/top/top_scan.hpp"

#include <csignal>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"
#include "runtime/loop/control_port.hpp"

using namespace paceline;

namespace {

StageTelemetry writer_of(const ShmFile& file) {
    return StageTelemetry::attach(ShmRegion::attach(file.fd(), 1).value()).value();
}

/// This process, as a conductor.
struct Conductor {
    ShmFile file = StageTelemetry::create(kConductor, Epoch{1}, "conductor", 4).value();
    StageTelemetry telemetry = writer_of(file);
};

std::optional<PipelineSample> find_here() {
    std::vector<PipelineSample> found = scan_pipelines(::getpid());
    REQUIRE(found.size() <= 1);
    return found.empty() ? std::nullopt : std::optional{found.front()};
}

/// A child that writes a telemetry block and then does nothing.
struct Child {
    pid_t pid;
    explicit Child(const ShmFile& file) : pid{::fork()} {
        if (pid != 0) {
            const StageTelemetryView view = StageTelemetryView::attach(file.fd()).value();
            while (view.snapshot().pid == 0) ::usleep(1000);
            return;
        }
        StageTelemetry telemetry = writer_of(file);
        ::pause();
        ::_exit(0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    void signal_and_wait(int signal, int options) const {
        ::kill(pid, signal);
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid), &info,
                 static_cast<int>(static_cast<unsigned>(options) | WNOWAIT));
    }
};

}  // namespace

TEST_CASE("a process that holds no telemetry blocks runs no pipeline") {
    CHECK_FALSE(find_here().has_value());
}

TEST_CASE("a conductor is found by the telemetry blocks it holds, with what they say") {
    Conductor conductor;
    conductor.telemetry.count(counters::kTokensCommitted, 17);
    const ShmFile segment = StageTelemetry::create(StageId{1}, Epoch{1}, "segment-1", 4).value();
    StageTelemetry telemetry = writer_of(segment);
    telemetry.set(gauges::kQueueDepth, 3);
    const std::optional<PipelineSample> found = find_here();
    REQUIRE(found.has_value());
    CHECK(found->conductor == ::getpid());
    REQUIRE(found->stages.size() == 2);
    CHECK(found->stages[0].telemetry.name == "conductor");
    CHECK(found->stages[0].telemetry.counter(counters::kTokensCommitted) == 17);
    CHECK(found->stages[0].process == ProcessState::Alive);
    CHECK(found->stages[1].telemetry.name == "segment-1");
    CHECK(found->stages[1].telemetry.gauge(gauges::kQueueDepth) == 3);
    // Also among all others.
    bool listed = false;
    for (const PipelineSample& any : scan_pipelines()) listed |= any.conductor == ::getpid();
    CHECK(listed);
}

TEST_CASE("a process that holds only a stage's telemetry block is no conductor") {
    const ShmFile segment = StageTelemetry::create(StageId{1}, Epoch{1}, "segment-1", 4).value();
    const StageTelemetry telemetry = writer_of(segment);
    CHECK_FALSE(find_here().has_value());
}

TEST_CASE("a process that inherited the descriptors of a conductor is no conductor") {
    Conductor conductor;
    const ShmFile segment = StageTelemetry::create(StageId{1}, Epoch{1}, "segment-1", 4).value();
    const Child child{segment};
    CHECK(find_here().has_value());
    CHECK(scan_pipelines(child.pid).empty());
}

TEST_CASE("of several incarnations the newest is shown") {
    Conductor conductor;
    const ShmFile second = StageTelemetry::create(StageId{1}, Epoch{2}, "segment-1", 4).value();
    const ShmFile first = StageTelemetry::create(StageId{1}, Epoch{1}, "segment-1", 4).value();
    const ShmFile third = StageTelemetry::create(StageId{1}, Epoch{3}, "segment-1", 4).value();
    const std::optional<PipelineSample> found = find_here();
    REQUIRE(found.has_value());
    REQUIRE(found->stages.size() == 2);
    CHECK(found->stages[1].telemetry.epoch == Epoch{3});
    CHECK(found->stages[1].process == ProcessState::Alive);  // not started yet, so not gone
}

TEST_CASE("a stage that was stopped or has died is shown so, also before it is reaped") {
    Conductor conductor;
    const ShmFile file = StageTelemetry::create(StageId{1}, Epoch{1}, "victim", 4).value();
    const Child child{file};
    CHECK(find_here()->stages.at(1).process == ProcessState::Alive);
    child.signal_and_wait(SIGSTOP, WSTOPPED);
    CHECK(find_here()->stages.at(1).process == ProcessState::Stopped);
    child.signal_and_wait(SIGKILL, WEXITED);
    CHECK(find_here()->stages.at(1).process == ProcessState::Gone);
    CHECK(find_here()->stages.at(1).telemetry.name == "victim");
}

TEST_CASE("without a proc file system nothing is found") {
    Conductor conductor;
    CHECK(scan_pipelines({}, "/nonexistent").empty());
}
