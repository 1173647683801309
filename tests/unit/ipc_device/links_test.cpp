// Links with both ends in one process, on whatever devices there are.
#include <atomic>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <doctest/doctest.h>

#include "link_fixture.hpp"
#include "peer_process.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

struct Both {
    explicit Both(const Plan& plan, int consumer = 0, int producer = other_device())
        : to{consumer}, from{producer} {
        LinkOffer offer;
        LinkSpec in_spec = spec_of(plan);
        in_spec.wake = [this] { ++in_wakes; };
        LinkSpec out_spec = spec_of(plan);
        out_spec.wake = [this] { ++out_wakes; };
        auto opened_in = to.links->open_in(plan.transport, in_spec, offer);
        REQUIRE_MESSAGE(opened_in.ok(), (opened_in.ok() ? "" : opened_in.error().what));
        in = std::move(opened_in).value();
        auto opened_out = from.links->open_out(plan.transport, out_spec, std::move(offer));
        REQUIRE_MESSAGE(opened_out.ok(), (opened_out.ok() ? "" : opened_out.error().what));
        out = std::move(opened_out).value();
    }
    Device to;
    Device from;
    std::atomic<int> in_wakes{0};
    std::atomic<int> out_wakes{0};
    std::unique_ptr<InLink> in;
    std::unique_ptr<OutLink> out;
};

constexpr Plan kPlans[] = {
    {.transport = Transport::Exported, .slots = 1, .slot_bytes = 64},
    {.transport = Transport::Exported, .slots = 8, .slot_bytes = 100'000},
    {.transport = Transport::Exported, .slots = 2, .slot_bytes = 16U << 20U, .tensors = 8},
    {.transport = Transport::Nccl, .slots = 1, .slot_bytes = 64},
    {.transport = Transport::Nccl, .slots = 8, .slot_bytes = 100'000},
    {.transport = Transport::Nccl, .slots = 2, .slot_bytes = 16U << 20U, .tensors = 8},
};

}  // namespace

TEST_CASE("tensors of all sizes arrive whole and in order") {
    for (const Plan& plan : kPlans) {
        if (skipped(plan.transport)) continue;
        CAPTURE(static_cast<int>(plan.transport));
        CAPTURE(plan.slot_bytes);
        Both ends{plan};
        CHECK(run_both(*ends.in, *ends.to.driver, *ends.out, *ends.from.driver, plan) == "");
        if (plan.transport == Transport::Nccl) {
            CHECK(ends.in_wakes >= 1 + static_cast<int>(plan.tensors));
            CHECK(ends.out_wakes >= 1);
        }
    }
}

TEST_CASE("links that end leave no descriptor behind") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        if (skipped(transport)) continue;
        const Plan plan{.transport = transport};
        const auto once = [&] {
            Both ends{plan};
            CHECK(run_both(*ends.in, *ends.to.driver, *ends.out, *ends.from.driver, plan) == "");
        };
        once();  // libraries open what they keep
        const int before = descriptors();
        once();
        CHECK(until([&] { return descriptors() == before; }));
    }
}

TEST_CASE("an offer that does not fit the edge is refused as a breach of the protocol") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        if (skipped(transport)) continue;
        const Plan plan{.transport = transport};
        Device to{0};
        Device from{other_device()};
        const auto refusal = [&](const Plan& own, const std::function<void(LinkOffer&)>& spoil) {
            LinkOffer offer;
            const auto in = to.links->open_in(transport, spec_of(plan), offer);
            REQUIRE(in.ok());
            spoil(offer);
            const auto out = from.links->open_out(transport, spec_of(own), std::move(offer));
            return out.ok() ? Error{Errc::Cancelled, "accepted"} : out.error();
        };
        const auto as_it_is = [](LinkOffer&) {};
        Plan more = plan;
        more.slots = 5;
        CHECK(refusal(more, as_it_is).code == Errc::Protocol);
        Plan larger = plan;
        larger.slot_bytes = 4097;
        const Error error = refusal(larger, as_it_is);
        CHECK(error.code == Errc::Protocol);
        CHECK(error.what.find("first -> second") != std::string::npos);
        CHECK(error.what.find("4097") != std::string::npos);
        const auto is_protocol = [&](const std::function<void(LinkOffer&)>& spoil) {
            return refusal(plan, spoil).code == Errc::Protocol;
        };
        CHECK(is_protocol([](LinkOffer& offer) { offer.files.clear(); }));
        CHECK(is_protocol([](LinkOffer& offer) { offer.bytes.clear(); }));
        CHECK(is_protocol([](LinkOffer& offer) { offer.bytes.pop_back(); }));
        CHECK(is_protocol([](LinkOffer& offer) { offer.bytes[0] ^= std::byte{1}; }));
        // A descriptor of something else.
        CHECK(refusal(plan, [](LinkOffer& offer) {
                  offer.files[0].reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
              }).code != Errc::Cancelled);
    }
}

TEST_CASE("a tensor that is announced larger than a slot ends the link") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        if (skipped(transport)) continue;
        const Plan plan{.transport = transport};
        Both ends{plan};
        REQUIRE(opened(*ends.in) == "");
        ends.in->expect(0, plan.slot_bytes + 1);
        CHECK(error_of(*ends.in).code == Errc::Protocol);
    }
}

TEST_CASE("a transport without links is refused") {
    Device device{0};
    LinkOffer offer;
    const auto in = device.links->open_in(Transport::Host, spec_of({}), offer);
    REQUIRE_FALSE(in.ok());
    CHECK(in.error().code == Errc::BadArgument);
}

TEST_CASE("memory for channels of one process is the device's") {
    Device device{0};
    auto memory = device.links->allocate(1000);
    REQUIRE(memory.ok());
    const std::uint64_t sent = 0x0123456789abcdefU;
    std::uint64_t got = 0;
    CHECK(device.driver->write(memory.value().get() + 992, &sent, sizeof(sent)).ok());
    CHECK(device.driver->read(&got, memory.value().get() + 992, sizeof(got)).ok());
    CHECK(got == sent);
}
