// A hub and agents that say what a test wants, over the loopback interface with TLS.
#include "runtime/cluster/conductor_hub.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <doctest/doctest.h>

#include "ipc/remote/secure_connection.hpp"
#include "tests/support/contains.hpp"

using namespace paceline;
using paceline::testing::contains;
using std::chrono::milliseconds;

namespace {

remote::Hello hello_of(const std::string& node, const std::string& machine, std::uint64_t session) {
    remote::Hello hello;
    hello.build = remote::this_build().name;
    hello.node = node;
    hello.machine = machine;
    hello.session = session;
    return hello;
}

std::uint16_t free_port() {
    using Tcp = boost::asio::ip::tcp;
    boost::asio::io_context io;
    const Tcp::acceptor probe{io, Tcp::endpoint{boost::asio::ip::make_address("127.0.0.1"), 0}};
    return probe.local_endpoint().port();
}

/// An agent's connection, which says Hello and nothing more.
struct Agent {
    std::unique_ptr<remote::Connecting> dialling;
    remote::ConnectionPtr connection;
    std::optional<remote::Hello> answer;
    std::string refused;
    bool passes = false;  // of the refusal
    bool over = false;

    [[nodiscard]] bool is_decided() const { return answer || !refused.empty(); }
};

struct Meeting {
    explicit Meeting(LeaseRules lease = {}, std::size_t nodes = 1) {
        HubPlan plan;
        plan.listen = {"127.0.0.1", free_port()};
        plan.hello = hello_of("a", "machine a", 1);
        plan.nodes = nodes;
        plan.lease = lease;
        plan.say = [this](const std::string& sentence, bool) {
            const std::lock_guard lock{door};
            said += sentence + "\n";
        };
        place = plan.listen;
        hub = ConductorHub::open(key, std::move(plan)).value();
    }
    /// Of an agent that has said Hello and was answered or refused.
    std::shared_ptr<Agent> meet(const remote::Hello& hello) {
        auto agent = std::make_shared<Agent>();
        const auto on_frame = [agent](const remote::Frame& frame, Epoch) -> Status {
            if (const auto* answer = std::get_if<remote::Hello>(&frame)) agent->answer = *answer;
            if (const auto* no = std::get_if<remote::Refused>(&frame)) {
                agent->refused = no->reason;
                agent->passes = no->passes;
            }
            return {};
        };
        agent->dialling = remote::connect_to(
            io, place, key, {}, std::chrono::steady_clock::now() + std::chrono::seconds{10},
            [agent, hello, on_frame](Result<remote::ConnectionPtr> made) {
                REQUIRE(made.ok());
                agent->connection = made.value();
                agent->connection->start({.on_frame = on_frame,
                                          .on_end = [agent](const Error&) { agent->over = true; },
                                          .on_room = {}});
                (void)agent->connection->send(hello, Epoch{}, remote::Lane::Control, true);
            });
        agents.push_back(agent);
        run_until([&] { return agent->is_decided(); });
        return agent;
    }
    template <class Done>
    void run_until(Done done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        while (!done() && std::chrono::steady_clock::now() < deadline) {
            io.restart();
            io.run_one_for(milliseconds{20});
        }
        REQUIRE(done());
    }
    ~Meeting() {
        for (const auto& agent : agents) agent->connection.reset();
    }

    boost::asio::io_context io;
    remote::NodeKey key = remote::NodeKey::random().value();
    remote::NodePlace place;
    std::mutex door;
    std::string said;
    std::unique_ptr<ConductorHub> hub;
    std::vector<std::shared_ptr<Agent>> agents;
};

}  // namespace

TEST_CASE("the conductor's answer tells the length of the first lease") {
    Meeting meeting{{.length = milliseconds{1'700}}};
    const auto agent = meeting.meet(hello_of("b", "machine b", 2));
    REQUIRE(agent->answer);
    CHECK(agent->answer->lease_ms == 1'700);
}

TEST_CASE("a second machine with the name of one that is there is refused with both addresses") {
    for (const std::size_t nodes : {std::size_t{1}, std::size_t{2}}) {  // a spare, or both wanted
        CAPTURE(nodes);
        Meeting meeting{{}, nodes};
        const auto first = meeting.meet(hello_of("b", "machine b", 2));
        CHECK(first->refused.empty());
        const auto second = meeting.meet(hello_of("b", "machine c", 3));
        CHECK(contains(second->refused, "two machines are called 'b': the machine at 127.0.0.1:"));
        CHECK(contains(second->refused, "--node-name"));
        CHECK(second->passes);
        const auto third = meeting.meet(hello_of("a", "machine d", 4));
        CHECK(contains(third->refused, "two machines are called 'a': the conductor's and"));
        CHECK_FALSE(third->passes);
        const auto other = meeting.meet(hello_of("c", "machine c", 3));
        CHECK(other->refused.empty());
    }
}

TEST_CASE("a connection that leads back to the conductor's process is refused") {
    Meeting meeting;
    const auto same_machine = meeting.meet(hello_of("b", "machine a", 2));
    CHECK(contains(same_machine->refused, "is that of the conductor"));
    CHECK_FALSE(same_machine->passes);
    const auto same_process = meeting.meet(hello_of("b", "machine b", 1));
    CHECK(contains(same_process->refused, "is that of the conductor"));
}

TEST_CASE("a second agent of a machine is refused, the same one again is not") {
    Meeting meeting;
    (void)meeting.meet(hello_of("b", "machine b", 2));
    const auto spare = meeting.meet(hello_of("c", "machine c", 3));
    CHECK(spare->refused.empty());
    const auto second = meeting.meet(hello_of("c", "machine c", 4));
    CHECK(contains(second->refused, "machine 'c' has an agent already"));
    CHECK(second->passes);
    const auto again = meeting.meet(hello_of("c", "machine c", 3));
    CHECK(again->refused.empty());
    meeting.run_until([&] { return spare->over; });
}

TEST_CASE("an agent without a place that asks for no lease is given up") {
    const LeaseRules rules{.length = milliseconds{1'000}, .margin = milliseconds{500}};
    Meeting meeting{rules};
    const auto first = meeting.meet(hello_of("b", "machine b", 2));
    const auto spare = meeting.meet(hello_of("c", "machine c", 3));
    CHECK(spare->refused.empty());
    std::uint64_t asks = 0;
    auto ask_at = std::chrono::steady_clock::now();
    meeting.run_until([&] {
        if (const auto now = std::chrono::steady_clock::now(); now >= ask_at) {
            ask_at = now + milliseconds{100};
            (void)first->connection->send(remote::LeaseAsk{++asks, 0}, Epoch{},
                                          remote::Lane::Control, true);
        }
        return spare->over;
    });
    CHECK_FALSE(first->over);
    // The hub says it when its own end is over too.
    meeting.run_until([&] {
        const std::lock_guard lock{meeting.door};
        return contains(meeting.said, "machine 'c': ") &&
               contains(meeting.said, "nothing came from it for the length of a lease");
    });
}

TEST_CASE("a machine that was restarted gets its place once the lease of before has ended") {
    const LeaseRules rules{.length = milliseconds{300}, .margin = milliseconds{200}};
    Meeting meeting{rules};
    (void)meeting.meet(hello_of("b", "machine b, boot 1", 2));  // says nothing any more
    std::size_t refusals = 0;
    std::shared_ptr<Agent> back;
    while (!back || !back->answer) {
        if (back) {
            REQUIRE(back->passes);
            REQUIRE(++refusals < 10'000);
        }
        back = meeting.meet(hello_of("b", "machine b, boot 2", 3));
    }
    CHECK(refusals > 0);
    CHECK(meeting.hub->missing().empty());
}

TEST_CASE("the hub tells which machines are missing, before they have come and after") {
    Meeting meeting{{}, 2};
    const std::string place = " at " + meeting.place.text();
    std::vector<std::string> told;
    std::thread waiter{[&] {
        const auto hellos = meeting.hub->await_nodes(milliseconds{20'000}, [&](const auto& text) {
            const std::lock_guard lock{meeting.door};
            told.push_back(text);
        });
        CHECK(hellos.ok());
    }};
    const auto count = [&] {
        const std::lock_guard lock{meeting.door};
        return told.size();
    };
    meeting.run_until([&] { return count() == 1; });
    const auto first = meeting.meet(hello_of("b", "machine b", 2));
    meeting.run_until([&] { return count() == 2; });
    const auto second = meeting.meet(hello_of("c", "machine c", 3));
    waiter.join();
    CHECK(told == std::vector<std::string>{"2 other machines" + place, "1 other machine" + place});
    first->connection->close("the test is over", milliseconds{1'000});
    second->connection->close("the test is over", milliseconds{1'000});
    meeting.run_until([&] { return meeting.hub->missing() == "machine 'b', machine 'c'" + place; });
}

TEST_CASE("a hub that is renewed ends the connections, and the agents get their places again") {
    Meeting meeting{{}, 2};
    const auto first = meeting.meet(hello_of("b", "machine b", 2));
    const auto second = meeting.meet(hello_of("c", "machine c", 3));
    meeting.hub->renew();
    CHECK(meeting.hub->missing() == "machine 'b', machine 'c' at " + meeting.place.text());
    meeting.run_until([&] { return first->over && second->over; });
    CHECK(meeting.meet(hello_of("c", "machine c", 3))->answer);
    CHECK(meeting.meet(hello_of("b", "machine b", 2))->answer);
    CHECK(meeting.hub->missing().empty());
}
