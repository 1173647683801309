// A pipeline with a process for every layer: 32 segments, a draft and the conductor.
#include <chrono>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "runtime/parent/supervisor.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint16_t kStages = 33;
constexpr StageId kFirst{1};
constexpr StageId kLast{kStages};

/// The chain with its tensors, the conductor and the last one to everybody, everybody to the first
/// and to the last but one.
std::vector<EdgeSpec> edges() {
    std::vector<EdgeSpec> edges;
    const auto join = [&edges](StageId from, StageId to, std::uint32_t tensors) {
        for (const EdgeSpec& edge : edges) {
            if (edge.from == from && edge.to == to) return;
        }
        if (from != to) edges.push_back({from, to, 8, 2, tensors, tensors == 0 ? 0U : 64U});
    };
    for (std::uint16_t n = 1; n < kStages; ++n) {
        join(StageId{n}, StageId{static_cast<std::uint16_t>(n + 1)}, 2);
    }
    join(kLast, kConductor, 0);
    for (std::uint16_t n = 1; n <= kStages; ++n) {
        join(kConductor, StageId{n}, 0);
        join(kLast, StageId{n}, 0);
        join(StageId{n}, kFirst, 0);
        join(StageId{n}, StageId{kStages - 1}, 0);
    }
    return edges;
}

ProcessSpec relay(std::uint16_t number) {
    const std::string order = "relay " + std::to_string(number == kStages ? 0 : number + 1);
    ProcessSpec spec;
    spec.id = StageId{number};
    spec.name = "stage-" + std::to_string(number);
    spec.on_death = OnDeath::RebuildChain;
    spec.payload.resize(order.size());
    std::memcpy(spec.payload.data(), order.data(), order.size());
    return spec;
}

/// Keeps a number on its way through all of them, also when one is lost, until it has come back
/// often enough after that.
struct Pinger : Actor {
    void on_start(StageContext& c) override {
        context = &c;
        ping();
    }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        // Each adds 1, and 1000 for the tensor that it was sent.
        CHECK(as<msg::Proposal>(bytes).root_position == kStages + 1000 * (kStages - 1));
        ++pongs;
        if (pongs == 5 && on_fifth) on_fifth();
        if (joined && ++pongs_after == 10) return context->stop();
        if (!lost || joined) ping();
    }
    void on_peer(StageId, PeerChange change) override {
        lost = lost || change == PeerChange::Lost;
        if (change != PeerChange::Joined) return;
        joined = true;
        ping();
    }
    void ping() { CHECK(send(*context, kFirst, msg::Proposal{}) == Push::Ok); }

    StageContext* context = nullptr;
    std::function<void()> on_fifth;
    int pongs = 0;
    int pongs_after = 0;
    bool lost = false;
    bool joined = false;
};

/// A soft limit of descriptors as low as a shell may have it, for as long as this lives.
struct FewDescriptors {
    FewDescriptors() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
        rlimit few = before;
        few.rlim_cur = 160;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
    rlimit before{};
};

}  // namespace

TEST_CASE("a pipeline of 34 processes wires up, works, loses one in the middle and gets it back") {
    const FewDescriptors few;
    SupervisorOptions options;
    options.command = {PACELINE_STAGE_FIXTURE};
    options.start_limit = 30s;
    options.catch_signals = false;
    options.trace_events = 0;
    auto supervisor = Supervisor::create(options).value();
    std::vector<ProcessSpec> children;
    for (std::uint16_t n = 1; n <= kStages; ++n) children.push_back(relay(n));
    REQUIRE(supervisor->start(children).ok());
    CHECK(supervisor->await_hellos().value().size() == kStages);
    Result<Wiring> wiring = supervisor->wire(edges(), 0);
    if (!wiring.ok()) MESSAGE(wiring.error().what);
    REQUIRE(wiring.ok());
    Pinger pinger;
    const pid_t victim = supervisor->pids()[kStages / 2];
    pinger.on_fifth = [victim] { ::kill(victim, SIGKILL); };
    {
        StageLoop loop{std::move(wiring).value(), *supervisor, {}};
        loop.add(kConductor, pinger);
        const Status ended = loop.run();
        if (!ended.ok()) MESSAGE(ended.error().what);
        CHECK(ended.ok());
    }
    CHECK(pinger.lost);
    CHECK(pinger.pongs_after == 10);
    CHECK(supervisor->pids()[kStages / 2] != victim);
    CHECK(supervisor->shutdown().ok());
}
