// Links between two processes, on whatever devices there are; the peer may die at any point.
#include <chrono>
#include <fmt/core.h>

#include <doctest/doctest.h>

#include "link_fixture.hpp"
#include "peer_process.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

/// The consumer, in this process.
struct Consumer {
    explicit Consumer(const Plan& plan) : device{0} {
        auto made = device.links->open_in(plan.transport, spec_of(plan), offer);
        REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().what));
        link = std::move(made).value();
    }
    Device device;
    LinkOffer offer;
    std::unique_ptr<InLink> link;
};

/// How long destroying the link and then the device takes, and whether no descriptor is left.
void end_and_check(Consumer& consumer) {
    const auto begin = Clock::now();
    consumer.link.reset();
    CHECK(Clock::now() - begin < 1s);
    consumer.device.links.reset();
    CHECK(Clock::now() - begin < 6s);
}

}  // namespace

TEST_CASE("tensors cross between processes") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        if (skipped_between_processes(transport)) continue;
        for (const std::size_t slot_bytes : {std::size_t{64}, std::size_t{1} << 20U}) {
            const Plan plan{.transport = transport, .slots = 4, .slot_bytes = slot_bytes};
            CAPTURE(static_cast<int>(transport));
            CAPTURE(slot_bytes);
            PeerProcess peer{plan, Role::Whole};
            Consumer consumer{plan};
            peer.give(std::move(consumer.offer));
            CHECK(consume(*consumer.link, *consumer.device.driver, peer.line(), plan) == "");
            CHECK(peer.wait() == 0);
            end_and_check(consumer);
        }
    }
}

TEST_CASE("a producer that dies before it opens its end ends the consumer's link") {
    const Plan plan{.transport = Transport::Nccl};
    if (skipped_between_processes(plan.transport)) return;
    PeerProcess peer{plan, Role::Unready};
    Consumer consumer{plan};
    peer.give(std::move(consumer.offer));
    consumer.offer = {};
    CHECK(consumer.link->poll().value() == LinkState::Connecting);
    peer.kill();
    const Error error = error_of(*consumer.link);
    CHECK(error.code == Errc::PeerGone);
    CHECK(error.what.find("first -> second") != std::string::npos);
    CHECK(error.what.find("rank 1") != std::string::npos);
    end_and_check(consumer);
}

TEST_CASE("a producer that dies between message and tensor ends the consumer's link") {
    const Plan plan{.transport = Transport::Nccl};
    if (skipped_between_processes(plan.transport)) return;
    PeerProcess peer{plan, Role::Silent};
    Consumer consumer{plan};
    peer.give(std::move(consumer.offer));
    consumer.offer = {};
    REQUIRE(opened(*consumer.link) == "");
    consumer.link->expect(0, 8);
    CHECK_FALSE(until([&] { return consumer.link->arrived(0); }, 100ms));
    CHECK(consumer.link->poll().ok());
    peer.kill();
    const Error error = error_of(*consumer.link);
    CHECK(error.code == Errc::PeerGone);
    CHECK(error.what.find("receive of 8 bytes, slot 0") != std::string::npos);
    CHECK_FALSE(consumer.link->arrived(0));
    end_and_check(consumer);
}

TEST_CASE("a producer that dies in the middle of sending does not stop the consumer's end") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        if (skipped_between_processes(transport)) continue;
        for (int round = 0; round < 5; ++round) {
            const Plan plan{
                .transport = transport, .slots = 4, .slot_bytes = 300'000, .tensors = 1'000'000};
            PeerProcess peer{plan, Role::Whole};
            Consumer consumer{plan};
            peer.give(std::move(consumer.offer));
            consumer.offer = {};
            Plan first = plan;
            first.tensors = static_cast<std::uint32_t>(3 + 7 * round);
            CHECK(consume(*consumer.link, *consumer.device.driver, peer.line(), first) == "");
            peer.kill();
            if (transport == Transport::Exported) {  // the consumer's own memory
                std::byte first_byte{};
                CHECK(consumer.device.driver->read(&first_byte, consumer.link->slot(0), 1).ok());
            }
            end_and_check(consumer);
        }
    }
}

TEST_CASE("a link that its producer never answers can be destroyed at any time") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        if (skipped_between_processes(transport)) continue;
        for (const auto wait : {0ms, 1ms, 20ms}) {
            const Plan plan{.transport = transport};
            Consumer consumer{plan};
            std::this_thread::sleep_for(wait);
            end_and_check(consumer);
        }
    }
}
