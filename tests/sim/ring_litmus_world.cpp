#include "tests/sim/ring_litmus_world.hpp"

#include <array>
#include <memory>

#include "tests/sim/ring_litmus_node.hpp"

namespace paceline::test {
namespace {

class World {
public:
    explicit World(std::uint64_t seed)
        : scenario_{Scenario::of(seed)},
          channels_{Channel{0, scenario_}, Channel{1, scenario_}},
          bells_{Doorbell::local(), Doorbell::local()},
          fibers_{seed, scenario_.switch_one_in} {
        for (std::uint32_t end = 0; end < 2; ++end) {
            nodes_[end] = std::make_unique<Node>(
                end, seed,
                Node::Surroundings{
                    fibers_, scenario_, bells_[end], bells_[1 - end], channels_[1 - end],
                    channels_[end], [this](const std::string& what) { fail(what); },
                    [this, end](std::uint32_t points) { points_to_live_[end] = points; }});
            fibers_.add([this, end] { nodes_[end]->run(); });
        }
    }

    Verdict run() {
        fibers_.run();
        if (verdict_.failure.empty()) check_end();
        verdict_.hash = fibers_.hash();
        verdict_.messages = channels_[0].taken() + channels_[1].taken();
        return verdict_;
    }

    void meet(FaultPoint point) {
        fibers_.turn(static_cast<std::uint32_t>(point));
        const bool is_sending = point <= FaultPoint::RingPublished;
        std::uint32_t& left = points_to_live_[fibers_.current()];
        if (!is_sending || left == 0 || --left > 0) return;
        ++verdict_.deaths;
        throw Killed{};
    }

    void sleep(const std::atomic<std::uint32_t>& word) {
        ++verdict_.sleeps;
        fibers_.park(word);
    }

private:
    void fail(const std::string& what) {
        if (verdict_.failure.empty()) verdict_.failure = what;
        fibers_.stop();
        throw Fibers::GivenUp{};
    }

    /// All are over or asleep, and none is left to ring.
    void check_end() {
        for (std::size_t end = 0; end < 2; ++end) {
            const std::string who = "end " + std::to_string(end);
            if (fibers_.is_parked(end) && nodes_[end]->has_reason()) {
                verdict_.failure = who + " sleeps while something waits for it: a lost wake-up";
                return;
            }
            if (!fibers_.is_over(end)) verdict_.failure = who + " waits for ever";
        }
        for (const Channel& channel : channels_) {
            if (verdict_.failure.empty() && channel.taken() != channel.put()) {
                verdict_.failure = "a message was lost";
            }
        }
        for (std::size_t end = 0; end < 2; ++end) {
            const std::uint64_t dropped = nodes_[1 - end]->old_frames_dropped();
            verdict_.stale += dropped;
            if (verdict_.failure.empty() && dropped != nodes_[end]->old_frames_published()) {
                verdict_.failure = "not every frame of an old epoch was counted";
            }
        }
    }

    Scenario scenario_;
    std::array<Channel, 2> channels_;
    std::array<Doorbell, 2> bells_;
    std::array<std::unique_ptr<Node>, 2> nodes_;
    Verdict verdict_;
    std::array<std::uint32_t, 2> points_to_live_{};
    Fibers fibers_;  // destroyed first: it unwinds what still runs
};

World* the_world = nullptr;

}  // namespace

Verdict run_litmus(std::uint64_t seed, PlantedBug bug) {
    planted_bug = bug;
    fault_hook = [](FaultPoint point) { the_world->meet(point); };
    sleep_hook = [](const std::atomic<std::uint32_t>& word) { the_world->sleep(word); };
    Verdict verdict;
    {
        World world{seed};
        the_world = &world;
        verdict = world.run();
    }
    the_world = nullptr;
    fault_hook = nullptr;
    sleep_hook = nullptr;
    planted_bug = PlantedBug::None;
    return verdict;
}

std::string describe_litmus(std::uint64_t seed) {
    return Scenario::of(seed).text();
}

}  // namespace paceline::test
