// A session with a conductor that says what a test wants, over the loopback interface with TLS.
#include "runtime/cluster/agent_session.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

#include "tests/support/contains.hpp"

using namespace paceline;
using paceline::testing::contains;

namespace {

remote::Hello hello_of(const std::string& machine, std::uint64_t session) {
    remote::Hello hello;
    hello.build = remote::this_build().name;
    hello.node = "b";
    hello.machine = machine;
    hello.session = session;
    return hello;
}

struct Conductor {
    /// Its answer to Hello; after it nothing comes.
    explicit Conductor(remote::Frame with) : answer{std::move(with)} {
        listener =
            remote::SecureListener::listen(
                io, {"127.0.0.1", 0}, key, {.channel_by_hello = true},
                {.on_connection = [this](remote::ConnectionPtr made) { serve(std::move(made)); },
                 .on_refused = {}})
                .value();
        AgentPlan plan;
        plan.hello = hello_of("machine b", 2);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
        dialling = remote::connect_to(io, listener->place(), key, {}, deadline,
                                      [this, plan](Result<remote::ConnectionPtr> made) {
                                          REQUIRE(made.ok());
                                          session = AgentSession::start(
                                              io, made.value(), plan, [] {},
                                              [this](const SessionEnd& how) { end = how; });
                                      });
    }
    void serve(remote::ConnectionPtr made) {
        connection = std::move(made);
        connection->start({.on_frame = [this](const remote::Frame& frame, Epoch) -> Status {
                               if (const auto* no = std::get_if<remote::Refused>(&frame))
                                   refused = no->reason;
                               if (const auto* counted = std::get_if<remote::Counters>(&frame))
                                   counters.push_back(counted->answers);
                               return {};
                           },
                           .on_end = [](const Error&) {},
                           .on_room = {}});
        (void)connection->send(answer, Epoch{1}, remote::Lane::Control, true);
    }
    [[nodiscard]] const SessionEnd& run_to_end() {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{3};
        while (!end && std::chrono::steady_clock::now() < deadline)
            io.run_one_for(std::chrono::milliseconds{20});
        REQUIRE(end.has_value());
        return *end;
    }

    boost::asio::io_context io;
    remote::NodeKey key = remote::NodeKey::random().value();
    remote::Frame answer;
    std::unique_ptr<remote::SecureListener> listener;
    std::unique_ptr<remote::Connecting> dialling;
    remote::ConnectionPtr connection;
    std::unique_ptr<AgentSession> session;
    std::optional<SessionEnd> end;
    std::string refused;
    std::vector<std::uint64_t> counters;  // what each of them answers
};

}  // namespace

TEST_CASE("the first lease of an agent is as long as its conductor says") {
    remote::Hello answer = hello_of("machine a", 1);
    answer.lease_ms = 150;
    Conductor conductor{answer};
    const SessionEnd& end = conductor.run_to_end();
    CHECK(end.cause == SessionEnd::Cause::LeaseOver);
    CHECK(contains(end.text, "nothing came from the conductor for 0.15 s"));
}

TEST_CASE("an agent refuses a conductor that has the identity of its own machine or process") {
    for (const remote::Hello& answer : {hello_of("machine b", 1), hello_of("machine a", 2)}) {
        CAPTURE(answer.machine);
        Conductor conductor{answer};
        const SessionEnd& end = conductor.run_to_end();
        CHECK(end.cause == SessionEnd::Cause::Refused);
        CHECK(contains(end.text, "the connection leads back to it"));
    }
}

TEST_CASE("an agent is told whether its refusal may pass") {
    for (const bool passes : {false, true}) {
        CAPTURE(passes);
        Conductor conductor{remote::Refused{"not now", passes}};
        const SessionEnd& end = conductor.run_to_end();
        CHECK(end.cause == SessionEnd::Cause::Refused);
        CHECK(end.text == "not now");
        CHECK(end.passes == passes);
    }
}

TEST_CASE("an agent answers each counters-ask with its number, in order") {
    Conductor conductor{hello_of("machine a", 1)};
    while (!conductor.connection) conductor.io.run_one_for(std::chrono::milliseconds{20});
    for (const std::uint64_t number : {1, 2}) {
        (void)conductor.connection->send(remote::CountersAsk{number}, Epoch{1},
                                         remote::Lane::Control, true);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (conductor.counters.size() < 2 && std::chrono::steady_clock::now() < deadline)
        conductor.io.run_one_for(std::chrono::milliseconds{20});
    CHECK(conductor.counters == std::vector<std::uint64_t>{1, 2});
}
