// The node agent alone, with processes that send too much, do not read or die together.
#include <array>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <set>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/parent/control_outbox.hpp"
#include "runtime/parent/local_node.hpp"

using namespace paceline;
using namespace std::chrono_literals;

namespace {

constexpr Incarnation kWho{StageId{1}, Epoch{1}};

NodeEvents deaf_events() {
    NodeEvents events;
    events.on_message = [](Incarnation, ControlSocket::Received) {};
    events.on_exit = [](Incarnation, bool, const std::string&) {};
    events.on_silence = [](Incarnation, const Error&) {};
    return events;
}

Status start_shell(NodeAgent& node, const char* script, Incarnation who = kWho) {
    return node.start(who, {.id = who.id, .name = "unruly"}, {"/bin/sh", "-c", script});
}

/// Until it is a zombie, which stays until the node agent reaps it.
void kill_and_await(pid_t pid) {
    REQUIRE(::kill(pid, SIGKILL) == 0);
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
}

}  // namespace

TEST_CASE("a stage that writes lines without end does not keep its parent from anything else") {
    std::uint64_t lines = 0;
    NodeEvents events = deaf_events();
    // As slow as a terminal: the stage always has more to say.
    events.on_line = [&lines](Incarnation, std::string_view) {
        ++lines;
        std::this_thread::sleep_for(20us);
    };
    auto node = make_local_node(std::move(events), false).value();
    REQUIRE(start_shell(*node, "exec yes there is a lot to say").ok());
    // Each wait comes back, although there are more lines.
    for (int polls = 0; polls < 2 || lines <= 100; ++polls)
        node->wait(std::chrono::steady_clock::now() + 300ms);
}

TEST_CASE("a stage that does not read keeps no other stage waiting, and is reported once") {
    std::vector<Error> silences;
    NodeEvents events = deaf_events();
    events.on_silence = [&silences](Incarnation, const Error& error) { silences.push_back(error); };
    auto node = make_local_node(std::move(events), false).value();
    REQUIRE(start_shell(*node, "sleep 60").ok());
    const control::Begin large{{}, {}, std::vector<std::byte>(4U << 20)};
    // More than a socket holds.
    CHECK(node->send(kWho, large, {}, 50ms, {}).ok());
    CHECK(node->send(kWho, large, {}, 50ms, {}).ok());
    CHECK(silences.empty());
    while (silences.empty()) node->wait(std::chrono::steady_clock::now() + 10ms);
    REQUIRE(silences.size() == 1);
    CHECK(silences[0].code == Errc::System);
    CHECK(silences[0].what.find("stage 'unruly'") == 0);
    CHECK(silences[0].what.find("has read nothing for 50 ms") != std::string::npos);
    const Status late = node->send(kWho, large, {}, 10s, {});
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code == Errc::PeerGone);
    node->poll();
    CHECK(silences.size() == 1);
}

TEST_CASE("what waits for a stage that does not read is bounded") {
    std::vector<Error> silences;
    NodeEvents events = deaf_events();
    events.on_silence = [&silences](Incarnation, const Error& error) { silences.push_back(error); };
    auto node = make_local_node(std::move(events), false).value();
    REQUIRE(start_shell(*node, "sleep 60").ok());
    const control::Begin large{{}, {}, std::vector<std::byte>(4U << 20)};
    int taken = 0;
    while (taken < 100 && node->send(kWho, large, {}, 3600s, {}).ok()) ++taken;
    CHECK(taken >= 4);
    CHECK(taken <= static_cast<int>(ControlOutbox::kBytesMax >> 22U) + 1);
    REQUIRE(silences.size() == 1);
    CHECK(silences[0].what.find("wait to be read already") != std::string::npos);
}

TEST_CASE("a stopped stage is not blamed for what it cannot read") {
    std::vector<Error> silences;
    NodeEvents events = deaf_events();
    events.on_silence = [&silences](Incarnation, const Error& error) { silences.push_back(error); };
    bool stopped = false;
    events.on_stopped = [&stopped](Incarnation, bool now) { stopped = now; };
    auto node = make_local_node(std::move(events), false).value();
    REQUIRE(start_shell(*node, "sleep 60").ok());
    const auto wait = [&node] { node->wait(std::chrono::steady_clock::now() + 10ms); };
    ::kill(node->pid(kWho), SIGSTOP);
    while (!stopped) wait();
    const control::Begin large{{}, {}, std::vector<std::byte>(4U << 20)};
    CHECK(node->send(kWho, large, {}, 50ms, {}).ok());
    for (int i = 0; i < 20; ++i) wait();
    CHECK(silences.empty());
    ::kill(node->pid(kWho), SIGCONT);
    while (silences.empty()) wait();
    CHECK_FALSE(stopped);
}

TEST_CASE("what waited for a stage arrives whole and in order once it reads") {
    std::vector<RequestId> read;
    auto [ours, theirs] = ControlSocket::make_pair().value();
    ControlOutbox outbox;
    const auto now = ControlOutbox::Clock::now();
    std::array<int, 2> ends{-1, -1};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    std::optional<OwnedFd> lent{ends[1]};
    const OwnedFd kept{ends[0]};
    for (std::uint64_t i = 1; i <= 20; ++i) {
        const control::Begin begin{RequestId{i}, Attempt{1}, std::vector<std::byte>(100'000)};
        const std::vector<int> files(i == 15 ? 300 : 0, lent->get());
        REQUIRE(outbox.push(ours, ControlSocket::Frame{begin, files}, 1s, now).ok());
    }
    lent.reset();  // the outbox has copies
    CHECK_FALSE(outbox.empty());
    std::size_t files = 0;
    while (read.size() < 20) {
        REQUIRE(outbox.flush(ours, now).ok());
        auto received = theirs.try_receive();
        REQUIRE(received.ok());
        if (!received.value()) continue;
        const auto& begin = std::get<control::Begin>(received.value()->message);
        CHECK(begin.payload.size() == 100'000);
        read.push_back(begin.request);
        files += received.value()->files.size();
    }
    for (std::uint64_t i = 0; i < 20; ++i) CHECK(read[i] == RequestId{i + 1});
    CHECK(files == 300);
    CHECK(outbox.empty());
}

TEST_CASE("a stage is not taken for a dead one because all before it died together") {
    const std::array<StageId, 4> stages{StageId{1}, StageId{2}, StageId{3}, StageId{4}};
    int exits = 0;
    std::set<StageId> at_work;
    std::unique_ptr<NodeAgent> node;
    NodeEvents events = deaf_events();
    events.on_exit = [&](Incarnation, bool, const std::string&) {
        // The last one dies while the first is reaped: what the kernel tells next is about the dead
        // alone.
        if (++exits == 1) kill_and_await(node->pid({stages.back(), Epoch{1}}));
    };
    events.on_line = [&at_work](Incarnation who, std::string_view) { at_work.insert(who.id); };
    node = make_local_node(std::move(events), false).value();
    const auto wait = [&node] { node->wait(std::chrono::steady_clock::now() + 10ms); };
    for (const StageId id : stages)
        REQUIRE(start_shell(*node, "exec sleep 60", {id, Epoch{1}}).ok());
    for (std::size_t i = 0; i + 1 < stages.size(); ++i)
        kill_and_await(node->pid({stages[i], Epoch{1}}));
    while (exits < 4) wait();
    for (const StageId id : stages)
        REQUIRE(start_shell(*node, "echo at work; exec sleep 60", {id, Epoch{2}}).ok());
    while (exits == 4 && at_work.size() < stages.size()) wait();
    CHECK(exits == 4);
    for (const StageId id : stages) CHECK(node->pid({id, Epoch{2}}) > 0);
}
