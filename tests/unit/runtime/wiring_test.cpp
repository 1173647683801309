#include <algorithm>
#include <fcntl.h>
#include <set>

#include <doctest/doctest.h>

#include "ipc/wire/control_socket.hpp"
#include "ipc/wire/messages.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

std::vector<OwnedFd> copies(const std::vector<int>& files) {
    std::vector<OwnedFd> own;
    for (const int fd : files) own.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return own;
}

constexpr StageId kConductorId{0};
constexpr StageId kStage{1};
constexpr StageId kOther{2};

const std::vector<Wired> kProcesses{{{kConductorId, {kConductorId}, 0}, Epoch{1}},
                                    {{kStage, {kStage}, 20}, Epoch{4}},
                                    {{kOther, {kOther, StageId{7}}, 0}, Epoch{1}}};
const std::vector<EdgeSpec> kEdges{{kStage, kConductorId, 8, 2, 3, 256},
                                   {kStage, StageId{7}, 8, 2, 0, 0},
                                   {kOther, StageId{7}, 8, 2, 0, 0}};

bool carries_a_frame(Wiring& from, Wiring& to) {
    const msg::Stop stop{};
    if (from.out.empty() || to.in.empty()) return false;
    if (from.out[0].ring.try_push(4, std::as_bytes(std::span{&stop, 1})) != Push::Ok) return false;
    return to.in[0].ring.has_frame();
}

}  // namespace

TEST_CASE("both ends of an edge attach to the same memory, each from its side") {
    const WiringPlan plan = wired_plan(kProcesses, kEdges);
    Wiring stage = wiring_of(plan, kStage, Epoch{4});
    Wiring conductor = wiring_of(plan, kConductorId, Epoch{1});
    REQUIRE(stage.out.size() == 2);
    REQUIRE(conductor.in.size() == 1);
    CHECK(carries_a_frame(stage, conductor));
    const PoolRef slot = stage.out[0].pool->acquire().value();
    stage.out[0].pool->publish(slot, 256);
    CHECK(conductor.in[0].pool->view(slot, 256).ok());
}

TEST_CASE("actors that share a process need no channel, and each edge names its own actor") {
    const WiringPlan plan = wired_plan(kProcesses, kEdges);
    const Wiring other = wiring_of(plan, kOther, Epoch{1});
    CHECK(other.out.empty());
    REQUIRE(other.in.size() == 1);
    CHECK(other.in[0].from == kStage);
    CHECK(other.in[0].to == StageId{7});
    CHECK(plan.home_of(StageId{7}) == kOther);
}

TEST_CASE("a process that was lost gets memory that its former incarnation never saw") {
    WiringPlan plan = wired_plan(kProcesses, kEdges);
    Wiring zombie = wiring_of(plan, kStage, Epoch{4});
    plan.unwire(kStage);
    SUBCASE("while it is away its peers have no channel to it") {
        const Wiring conductor = wiring_of(plan, kConductorId, Epoch{1});
        CHECK(conductor.in.empty());
        CHECK(conductor.absent == std::vector{kStage});
    }
    REQUIRE(plan.wire(kStage, Epoch{5}).ok());
    Wiring stage = wiring_of(plan, kStage, Epoch{5});
    const WiringPlan::WireMessage<control::Rewire> outgoing =
        plan.wire_message_about(kStage, kConductorId);
    CHECK(outgoing.message.peers == std::vector{kStage});
    CHECK(outgoing.message.peer_epoch == Epoch{5});
    AttachedEdges edges =
        attach_edges(Epoch{1}, outgoing.message.edges, copies(outgoing.files)).value();
    REQUIRE(edges.in.size() == 1);
    const msg::Stop stop{};
    CHECK(zombie.out[0].ring.try_push(4, std::as_bytes(std::span{&stop, 1})) == Push::Ok);
    CHECK_FALSE(edges.in[0].ring.has_frame());
    CHECK(stage.out[0].ring.try_push(4, std::as_bytes(std::span{&stop, 1})) == Push::Ok);
    CHECK(edges.in[0].ring.has_frame());
}

TEST_CASE("two processes that come back meet when the second one is wired") {
    WiringPlan plan = wired_plan(kProcesses, kEdges);
    plan.unwire(kStage);
    plan.unwire(kOther);
    REQUIRE(plan.wire(kStage, Epoch{5}).ok());
    CHECK(wiring_of(plan, kStage, Epoch{5}).absent == std::vector{StageId{7}});
    REQUIRE(plan.wire(kOther, Epoch{2}).ok());
    const WiringPlan::WireMessage<control::Rewire> outgoing =
        plan.wire_message_about(kOther, kStage);
    const AttachedEdges edges =
        attach_edges(Epoch{5}, outgoing.message.edges, copies(outgoing.files)).value();
    REQUIRE(edges.out.size() == 1);
    CHECK(edges.out[0].to == StageId{7});
    CHECK(edges.out[0].peer_epoch == Epoch{2});
}

TEST_CASE("a plan that makes no sense is refused") {
    const auto refused = [](std::vector<EdgeSpec> edges) {
        std::vector<ProcessSpec> specs;
        for (const Wired& one : kProcesses) specs.push_back(one.process);
        Result<WiringPlan> plan = WiringPlan::create(specs, std::move(edges), {});
        if (!plan.ok()) return true;
        return !plan.value().wire(kConductorId, Epoch{1}).ok() ||
               !plan.value().wire(kStage, Epoch{1}).ok();
    };
    CHECK_FALSE(refused(kEdges));
    CHECK(refused({{kStage, StageId{9}, 8, 2, 0, 0}}));
    CHECK(refused({{StageId{9}, kStage, 8, 2, 0, 0}}));
    CHECK(refused({{kStage, kStage, 8, 2, 0, 0}}));
    CHECK(refused({kEdges[0], kEdges[0]}));
    CHECK(refused({{kStage, kConductorId, 9, 2, 0, 0}}));
    CHECK(refused({{kStage, kConductorId, 8, 8, 0, 0}}));
    CHECK_FALSE(
        WiringPlan::create({{kStage, {kStage}, 0}, {kOther, {kOther, kStage}, 0}}, {}, {}).ok());
}

TEST_CASE("a message whose numbers or files are wrong attaches to nothing") {
    const WiringPlan plan = wired_plan(kProcesses, kEdges);
    const WiringPlan::WireMessage<control::Wire> outgoing = plan.wire_message_for(kConductorId);
    control::Wire wire = outgoing.message;
    std::vector<int> files = outgoing.files;
    SUBCASE("a file that does not exist") {
        wire.edges[0].ring_file = 99;
    }
    SUBCASE("a bell instead of a ring") {
        wire.edges[0].ring_file = wire.bell_file;
    }
    SUBCASE("a ring instead of a pool") {
        wire.edges[0].pool_file = wire.edges[0].ring_file;
    }
    SUBCASE("another incarnation's ring") {
        wire.edges[0].peer_epoch = Epoch{5};
    }
    SUBCASE("no files") {
        files.clear();
    }
    const Result<AttachedEdges> edges = attach_edges(Epoch{1}, wire.edges, copies(files));
    REQUIRE_FALSE(edges.ok());
    CHECK(edges.error().code == Errc::Protocol);
}

namespace {

/// As kEdges, with a link from the stage to the second actor of the other process.
const std::vector<EdgeSpec> kLinked{
    {kStage, kConductorId, 8, 2, 3, 256},
    {kStage, StageId{7}, 8, 2, 3, 256, Transport::Exported, "early -> final"}};

const control::EdgeOffer kOffer{kStage, Epoch{4}, StageId{7}, Epoch{1}, {}};

}  // namespace

TEST_CASE("an edge with a link has a pool without slots, and both ends know transport and name") {
    const WiringPlan plan = wired_plan(kProcesses, kLinked);
    const Wiring stage = wiring_of(plan, kStage, Epoch{4});
    const Wiring other = wiring_of(plan, kOther, Epoch{1});
    REQUIRE(stage.out.size() == 2);
    REQUIRE(other.in.size() == 1);
    CHECK_FALSE(stage.out[0].pool->is_elsewhere());
    CHECK(stage.out[0].transport == Transport::Host);
    CHECK(stage.out[1].pool->is_elsewhere());
    CHECK(stage.out[1].transport == Transport::Exported);
    CHECK(stage.out[1].name == "early -> final");
    CHECK(stage.out[1].pool->slot_count() == 3);
    CHECK(stage.out[1].pool->slot_bytes() == 256);
    CHECK(other.in[0].transport == Transport::Exported);
    CHECK(other.in[0].pool->is_elsewhere());
}

TEST_CASE("the first offer of a channel is passed on if both incarnations are current") {
    using Offer = WiringPlan::Offer;
    WiringPlan plan = wired_plan(kProcesses, kLinked);
    control::EdgeOffer offer = kOffer;
    SUBCASE("once") {
        CHECK(plan.judge(offer, kOther) == Offer::Wanted);
        CHECK(plan.judge(offer, kOther) == Offer::Stale);
    }
    SUBCASE("of another incarnation of the producer") {
        offer.from_epoch = Epoch{3};
        CHECK(plan.judge(offer, kOther) == Offer::Stale);
        CHECK(plan.judge(kOffer, kOther) == Offer::Wanted);
    }
    SUBCASE("of another incarnation of the consumer") {
        offer.to_epoch = Epoch{2};
        CHECK(plan.judge(offer, kOther) == Offer::Stale);
        CHECK(plan.judge(kOffer, kOther) == Offer::Wanted);
    }
    SUBCASE("not while one of them is lost, and again for its next incarnation") {
        CHECK(plan.judge(offer, kOther) == Offer::Wanted);
        plan.unwire(kStage);
        CHECK(plan.judge(offer, kOther) == Offer::Stale);
        REQUIRE(plan.wire(kStage, Epoch{5}).ok());
        CHECK(plan.judge(offer, kOther) == Offer::Stale);
        offer.from_epoch = Epoch{5};
        CHECK(plan.judge(offer, kOther) == Offer::Wanted);
    }
    SUBCASE("of another process, of an edge without a link, of none") {
        CHECK(plan.judge(offer, kStage) == Offer::Wrong);
        CHECK(plan.judge({kStage, Epoch{4}, kConductorId, Epoch{1}, {}}, kConductorId) ==
              Offer::Wrong);
        CHECK(plan.judge({StageId{7}, Epoch{1}, kStage, Epoch{4}, {}}, kStage) == Offer::Wrong);
    }
}

TEST_CASE("a transport that an edge cannot have is refused by the plan and by its ends") {
    std::vector<ProcessSpec> specs;
    for (const Wired& one : kProcesses) specs.push_back(one.process);
    const auto refused = [&](EdgeSpec edge) {
        const Result<WiringPlan> plan = WiringPlan::create(specs, {std::move(edge)}, {});
        return plan.ok() ? "" : plan.error().what;
    };
    CHECK(refused({kStage, kOther, 8, 2, 3, 256, Transport::Nccl}).empty());
    CHECK(refused({kStage, kOther, 8, 2, 3, 256, Transport::Local}) ==
          "channel 1-2: transport local joins two processes");
    CHECK(refused({kStage, kOther, 8, 2, 0, 0, Transport::Nccl}) ==
          "channel 1-2: transport nccl without tensors");
    CHECK(refused({kOther, StageId{7}, 8, 2, 3, 256, Transport::Local}).empty());

    const WiringPlan plan = wired_plan(kProcesses, kLinked);
    const WiringPlan::WireMessage<control::Wire> outgoing = plan.wire_message_for(kStage);
    for (std::size_t edge = 0; edge < 2; ++edge) {
        for (const Transport wrong : {Transport::Host, Transport::Local, Transport::Nccl}) {
            const bool fits = wrong == outgoing.message.edges[edge].transport ||
                              (edge == 1 && wrong == Transport::Nccl);
            control::Wire wire = outgoing.message;
            wire.edges[edge].transport = wrong;
            const auto ends = attach_edges(Epoch{4}, wire.edges, copies(outgoing.files));
            CHECK(ends.ok() == fits);
            if (!ends.ok()) CHECK(ends.error().code == Errc::Protocol);
        }
    }
}

TEST_CASE(
    "the longest pipeline wires up: exits, draft, correct, and a verifier that tells everyone") {
    const auto id = [](std::uint32_t n) { return StageId{static_cast<std::uint16_t>(n)}; };
    const std::uint32_t draft = kSegmentsMax + 1;
    const std::uint32_t correct = kSegmentsMax + 2;
    std::vector<Wired> processes{{{kConductorId, {kConductorId}, 0}, Epoch{1}}};
    for (std::uint32_t n = 1; n <= correct; ++n) processes.push_back({{id(n), {id(n)}, 0}, {}});
    std::vector<EdgeSpec> edges;
    const auto join = [&edges](StageId from, StageId to, std::uint32_t tensors = 0) {
        edges.push_back({from, to, 8, 2, tensors, tensors == 0 ? 0U : 64U});
    };
    for (std::uint32_t n = 1; n <= correct; ++n) {
        join(kConductorId, id(n));
        if (n != kSegmentsMax) join(id(kSegmentsMax), id(n));
        if (n < kSegmentsMax - 1) join(id(n), id(n + 1), 2);
        if (n > kSegmentsMax - 1) continue;
        if (n > 1) join(id(n), id(1));
        join(id(n), id(draft));
        join(id(n), id(correct));
    }
    join(id(kSegmentsMax), kConductorId);
    join(id(draft), id(1));
    join(id(draft), id(correct));
    join(id(correct), id(1));
    const WiringPlan plan = wired_plan(processes, edges);
    for (const Wired& one : processes) {
        const WiringPlan::WireMessage<control::Wire> outgoing =
            plan.wire_message_for(one.process.id);
        CHECK(std::set<int>(outgoing.files.begin(), outgoing.files.end()).size() ==
              outgoing.files.size());
        auto [from, to] = ControlSocket::make_pair().value();
        REQUIRE(from.send(outgoing.message, outgoing.files).ok());
        const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds{5};
        const ControlSocket::Received received = to.receive(soon).value();
        const auto& wire = std::get<control::Wire>(received.message);
        const AttachedEdges ends = attach_edges(one.epoch, wire.edges, received.files).value();
        const auto touches = [&one](const EdgeSpec& edge) {
            return edge.from == one.process.id || edge.to == one.process.id;
        };
        CHECK(static_cast<std::ptrdiff_t>(ends.in.size() + ends.out.size()) ==
              std::count_if(edges.begin(), edges.end(), touches));
        CHECK(attach_bell(received.files, wire.bell_file).ok());
    }
}

TEST_CASE("a process with more channels than one message may name is refused by name and number") {
    std::vector<ProcessSpec> specs{{kStage, {kStage}, 0}};
    std::vector<EdgeSpec> edges;
    for (std::uint32_t n = 0; n <= control::kEdgesMax; ++n) {
        const StageId peer{static_cast<std::uint16_t>(100 + n)};
        specs.push_back({peer, {peer}, 0});
        edges.push_back({kStage, peer, 8, 2, 0, 0});
    }
    const Result<WiringPlan> plan = WiringPlan::create(specs, edges, {});
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.error().what == "stage 1 has more than 256 channels");
    edges.pop_back();
    CHECK(WiringPlan::create(specs, edges, {}).ok());
}
