// Processes with a device edge between them: the offer by way of the conductor, and recovery.
#include <chrono>
#include <dirent.h>
#include <signal.h>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "runtime/parent/supervisor.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

int open_descriptors() {
    int count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
    if (folder != nullptr) ::closedir(folder);
    return count;
}

/// The conductor: `wanted` numbers one after the other; begins again when one was lost.
struct Asker : Actor {
    Asker(int numbers, int deaths) : wanted{numbers}, losses_wanted{deaths} {}
    void on_start(StageContext& given) override {
        context = &given;
        ask();
    }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        if (as<msg::Proposal>(bytes).root_position != next + 1000) return;  // asked for twice
        ++next;
        if (joins >= losses_wanted && next - next_at_join >= wanted) return context->stop();
        ask();
    }
    void on_peer(StageId, PeerChange change) override {
        if (change == PeerChange::Lost) {
            ++losses;
            return;
        }
        next_at_join = next;
        if (++joins == losses) ask();
    }
    void ask() {
        msg::Proposal proposal{};
        proposal.root_position = next;
        CHECK(send(*context, kA, proposal) == Push::Ok);
    }

    StageContext* context = nullptr;
    int wanted;
    int losses_wanted;
    int next = 0;
    int next_at_join = 0;
    int losses = 0;
    int joins = 0;
};

ProcessSpec child(StageId id, std::string name, std::string_view order, OnDeath on_death) {
    ProcessSpec spec;
    spec.id = id;
    spec.name = std::move(name);
    spec.payload.resize(order.size());
    std::memcpy(spec.payload.data(), order.data(), order.size());
    spec.on_death = on_death;
    return spec;
}

struct Pipeline {
    explicit Pipeline(Transport transport,
                      std::string_view reader = "read-tensors 0",
                      OnDeath on_death = OnDeath::RebuildChain,
                      std::chrono::milliseconds link_limit = 10s) {
        SupervisorOptions options;
        options.command = {PACELINE_STAGE_FIXTURE};
        options.catch_signals = false;
        options.link_limit = link_limit;
        supervisor = Supervisor::create(std::move(options)).value();
        const std::vector<ProcessSpec> children{child(kA, "early", "send-tensors 2", on_death),
                                                child(kB, "final", reader, on_death)};
        REQUIRE(supervisor->start(children).ok());
        REQUIRE(supervisor->await_hellos().ok());
        const std::vector<EdgeSpec> edges{{kConductor, kA, 8, 2, 0, 0},
                                          {kA, kB, 8, 2, 3, 64, transport, "early -> final"},
                                          {kB, kConductor, 8, 2, 0, 0}};
        wiring = supervisor->wire(edges, 0).value();
    }
    Status run(Actor& conductor) {
        StageLoop loop{std::move(*wiring), *supervisor, {}};
        loop.add(kConductor, conductor);
        return loop.run();
    }
    std::unique_ptr<Supervisor> supervisor;
    std::optional<Wiring> wiring;
};

}  // namespace

TEST_CASE("processes exchange tensors over links that they opened by way of the conductor") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        CAPTURE(name_of(transport));
        const int descriptors = open_descriptors();
        {
            Pipeline pipeline{transport};
            Asker asker{500, 0};
            CHECK(pipeline.run(asker).ok());
            CHECK(asker.next == 500);
            CHECK(pipeline.supervisor->shutdown().ok());
        }
        CHECK(open_descriptors() == descriptors);  // none of the offers' is kept
    }
}

TEST_CASE("either end that is killed comes back with a new link, and so do both") {
    for (const Transport transport : {Transport::Exported, Transport::Nccl}) {
        for (const int victims : {1, 2, 3}) {
            CAPTURE(name_of(transport));
            CAPTURE(victims);
            Pipeline pipeline{transport};
            const std::vector<pid_t> pids = pipeline.supervisor->pids();
            std::thread killer{[&] {
                std::this_thread::sleep_for(30ms);
                if ((victims & 1) != 0) ::kill(pids[0], SIGKILL);
                if ((victims & 2) != 0) ::kill(pids[1], SIGKILL);
            }};
            Asker asker{50, victims == 3 ? 2 : 1};
            CHECK(pipeline.run(asker).ok());
            killer.join();
            CHECK(asker.losses == (victims == 3 ? 2 : 1));
            CHECK(pipeline.supervisor->shutdown().ok());
        }
    }
}

TEST_CASE("a link that never opens ends the run with transport, both stages and operation") {
    Pipeline pipeline{Transport::Nccl, "deaf-tensors 0", OnDeath::StopRun, 1500ms};
    Asker asker{1, 0};
    const Status ended = pipeline.run(asker);
    REQUIRE_FALSE(ended.ok());
    const std::string& text = ended.error().what;
    CAPTURE(text);
    CHECK(text.find("stage 'final'") != std::string::npos);
    CHECK(text.find(
              "transport nccl of early -> final: connecting: it did not connect within 1500 ms") !=
          std::string::npos);
    (void)pipeline.supervisor->shutdown();
}
