// What only the emulated libraries can be made to do: lose writes, hang, lack memory, differ.
#include <chrono>
#include <fmt/core.h>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/emulated/driver/emulation.hpp"

#include "link_fixture.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

/// Rules for one test.
struct Rules {
    explicit Rules(const emulated::LinkRules& rules) { emulated::set_link_rules(rules); }
    ~Rules() { emulated::set_link_rules({}); }
};

/// An edge from `from` to `to`; the producer's end may be refused.
struct Edge {
    std::unique_ptr<InLink> in;
    Result<std::unique_ptr<OutLink>> out;
    OutLink& producer() { return *out.value(); }

    static Edge open(Device& from, Device& to, const Plan& plan) {
        LinkOffer offer;
        auto in = to.links->open_in(plan.transport, spec_of(plan), offer);
        REQUIRE(in.ok());
        return {std::move(in).value(),
                from.links->open_out(plan.transport, spec_of(plan), std::move(offer))};
    }
};

bool maps_device_memory() {
    std::ifstream maps{"/proc/self/maps"};
    for (std::string line; std::getline(maps, line);) {
        if (line.find("paceline-emulated") != std::string::npos) return true;
    }
    return false;
}

constexpr Plan kNccl{.transport = Transport::Nccl};
constexpr Plan kExported{.transport = Transport::Exported};

}  // namespace

TEST_CASE("links in both directions open together, whatever the delays") {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        emulated::LinkRules rules;
        rules.seed = seed;
        const Rules set{rules};
        CAPTURE(seed);
        Device one{0};
        Device two{1};
        // Each device learns of its consumer's end first: they begin with different communicators.
        LinkOffer there_offer;
        LinkOffer back_offer;
        auto there_in = two.links->open_in(Transport::Nccl, spec_of(kNccl), there_offer);
        auto back_in = one.links->open_in(Transport::Nccl, spec_of(kNccl), back_offer);
        REQUIRE(there_in.ok());
        REQUIRE(back_in.ok());
        Edge there{std::move(there_in).value(),
                   one.links->open_out(Transport::Nccl, spec_of(kNccl), std::move(there_offer))};
        Edge back{std::move(back_in).value(),
                  two.links->open_out(Transport::Nccl, spec_of(kNccl), std::move(back_offer))};
        REQUIRE(there.out.ok());
        REQUIRE(back.out.ok());
        Edge more = Edge::open(one, two, kNccl);
        std::string backwards;
        std::thread other{[&] {
            backwards = run_both(*back.in, *one.driver, back.producer(), *two.driver, kNccl);
        }};
        CHECK(run_both(*there.in, *two.driver, there.producer(), *one.driver, kNccl) == "");
        other.join();
        CHECK(backwards == "");
        CHECK(opened(*more.in) == "");
        CHECK(opened(more.producer()) == "");
    }
    CHECK(emulated::take_misuse().empty());
}

TEST_CASE("nothing of a link is left after its end") {
    for (const Plan& plan : {kExported, kNccl}) {
        {
            Device one{0};
            Device two{1};
            Edge edge = Edge::open(one, two, plan);
            CHECK(run_both(*edge.in, *two.driver, edge.producer(), *one.driver, plan) == "");
            CHECK(maps_device_memory());
            edge.in.reset();
            edge.out = Error{};
            CHECK(until([] { return emulated::objects() == 0 && !maps_device_memory(); }));
        }
        CHECK(emulated::objects() == 0);
    }
    CHECK(emulated::take_misuse().empty());
}

TEST_CASE("a producer's end that is destroyed ends the consumer's, and the other way round") {
    for (const bool consumer_first : {false, true}) {
        Device one{0};
        Device two{1};
        Edge edge = Edge::open(one, two, kNccl);
        REQUIRE(opened(*edge.in) == "");
        REQUIRE(opened(edge.producer()) == "");
        if (consumer_first) {
            edge.in.reset();
            // More than fits on its way: the send cannot end.
            edge.producer().send(0, kNccl.slot_bytes);
            for (std::uint32_t slot = 1; slot < kNccl.slots; ++slot) {
                edge.producer().send(slot, kNccl.slot_bytes);
            }
            for (int more = 0; more < 8; ++more) edge.producer().send(0, 8);
            const Error error = error_of(edge.producer());
            CHECK(error.code == Errc::PeerGone);
            CHECK(error.what.find("rank 0") != std::string::npos);
            CHECK(error.what.find("send of") != std::string::npos);
        } else {
            edge.out = Error{};
            edge.in->expect(2, 16);
            CHECK(error_of(*edge.in).code == Errc::PeerGone);
        }
    }
    CHECK(emulated::take_misuse().empty());
}

TEST_CASE("a library without ncclCommRevoke is closed by abort alone") {
    emulated::LinkRules rules;
    rules.nccl_revokes = false;
    const Rules set{rules};
    Device one{0};
    Device two{1};
    Edge edge = Edge::open(one, two, kNccl);
    CHECK(run_both(*edge.in, *two.driver, edge.producer(), *one.driver, kNccl) == "");
}

TEST_CASE("two versions of NCCL are refused with both named") {
    Device one{0};
    Device two{1};
    LinkOffer offer;
    auto in = two.links->open_in(Transport::Nccl, spec_of(kNccl), offer);
    REQUIRE(in.ok());
    emulated::LinkRules rules;
    rules.nccl_version = 21903;
    const Rules set{rules};
    const auto out = one.links->open_out(Transport::Nccl, spec_of(kNccl), std::move(offer));
    REQUIRE_FALSE(out.ok());
    CHECK(out.error().code == Errc::Unsupported);
    CHECK(out.error().what.find("2.28.9") != std::string::npos);
    CHECK(out.error().what.find("2.19.3") != std::string::npos);
}

TEST_CASE("a device without memory for the first operation ends both ends") {
    emulated::LinkRules rules;
    rules.connect_fails = true;
    const Rules set{rules};
    Device one{0};
    Device two{1};
    Edge edge = Edge::open(one, two, kNccl);
    CHECK(error_of(*edge.in).what.find("warm-up") != std::string::npos);
    CHECK(error_of(edge.producer()).what.find("warm-up") != std::string::npos);
}

TEST_CASE(
    "an offer whose process is gone fails at once, not when its listener has refused for a "
    "minute") {
    Device one{0};
    Device two{1};
    LinkOffer offer;
    auto in = two.links->open_in(Transport::Nccl, spec_of(kNccl), offer);
    REQUIRE(in.ok());
    in = Error{};
    two.links.reset();
    auto out = one.links->open_out(Transport::Nccl, spec_of(kNccl), std::move(offer));
    REQUIRE(out.ok());
    const Error error = error_of(*out.value());
    CHECK(error.code == Errc::PeerGone);
    CHECK(error.what.find("joining the communicator") != std::string::npos);
}

TEST_CASE("an abort that does not return is reported, and holds up no destructor for long") {
    emulated::LinkRules rules;
    rules.abort_hangs = true;
    Device one{0};
    Device two{1};
    Edge edge = Edge::open(one, two, kNccl);
    Edge other = Edge::open(one, two, kNccl);
    REQUIRE(opened(*edge.in) == "");
    REQUIRE(opened(*other.in) == "");
    emulated::set_link_rules(rules);
    const auto begin = Clock::now();
    edge.in.reset();
    CHECK(Clock::now() - begin < 500ms);
    CHECK(two.links->health().ok());
    const Error error = error_of(*other.in, 8s);
    CHECK(error.what.find("this process has to end") != std::string::npos);
    CHECK_FALSE(two.links->health().ok());
    LinkOffer offer;
    CHECK_FALSE(two.links->open_in(Transport::Nccl, spec_of(kNccl), offer).ok());
    const auto end = Clock::now();
    other.in.reset();
    two.links.reset();
    CHECK(Clock::now() - end < 8s);
    emulated::set_link_rules({});
}

TEST_CASE("a producer whose writes are lost is found before its first tensor is read") {
    emulated::LinkRules rules;
    rules.peer_writes_are_lost = true;
    const Rules set{rules};
    Device one{0};
    Device two{1};
    Edge edge = Edge::open(one, two, kExported);
    REQUIRE(edge.out.ok());  // it reads what it wrote
    edge.in->expect(0, 8);
    CHECK_FALSE(edge.in->arrived(0));
    CHECK(error_of(*edge.in).what.find("not in the memory") != std::string::npos);
}

TEST_CASE("a device that does not exist is refused") {
    const auto device = make_tensor_device(2);
    REQUIRE_FALSE(device.ok());
    CHECK(device.error().code == Errc::Unsupported);
    CHECK(link_abilities(1).exported);
    CHECK(link_abilities(1).nccl);
    CHECK_FALSE(link_abilities(2).exported);
    CHECK(link_abilities(2).why_no_exported.find("cuda:2") != std::string::npos);
}
