// The node agent alone, with processes that talk too much or do not listen.
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

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

StartSpec shell(const char* script) {
    StartSpec spec;
    spec.who = kWho;
    spec.name = "unruly";
    spec.command = {"/bin/sh", "-c", script};
    return spec;
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
    REQUIRE(node->start(shell("exec yes there is a lot to say")).ok());
    const auto end = std::chrono::steady_clock::now() + 300ms;
    int polls = 0;
    while (std::chrono::steady_clock::now() < end) {
        node->wait(end);
        ++polls;
    }
    CHECK(polls > 1);
    CHECK(lines > 100);
}

TEST_CASE("a stage that does not read is reported once, and no producer waits for it again") {
    std::vector<Error> silences;
    NodeEvents events = deaf_events();
    events.on_silence = [&silences](Incarnation, const Error& error) { silences.push_back(error); };
    auto node = make_local_node(std::move(events), false).value();
    REQUIRE(node->start(shell("sleep 60")).ok());
    const control::Begin large{{}, {}, std::vector<std::byte>(4U << 20)};
    const Status first = node->send(kWho, large, {}, 50ms, {});
    REQUIRE_FALSE(first.ok());
    REQUIRE(silences.size() == 1);
    CHECK(silences[0].code == Errc::System);
    CHECK(silences[0].what.find("stage 'unruly'") == 0);
    const auto start = std::chrono::steady_clock::now();
    const Status second = node->send(kWho, large, {}, 10s, {});
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == Errc::PeerGone);
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    CHECK(silences.size() == 1);
}
