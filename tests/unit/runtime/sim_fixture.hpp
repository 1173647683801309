// What the tests of simulated processes share: fixed times, a body of actors, a silent conductor.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "runtime/simulation/sim_world.hpp"

namespace paceline::test {

/// Jobs take 1 ms, news and loading 1 us, hops nothing.
struct FixedTiming final : SimTiming {
    [[nodiscard]] SimTime job(StageId, const JobLabel&, SimRandom&) override {
        return SimTime{std::chrono::milliseconds{1}};
    }
    [[nodiscard]] SimTime hop(const EdgeSpec&, std::uint32_t, SimRandom&) override {
        return SimTime{0};
    }
    [[nodiscard]] SimTime control_hop(SimRandom&) override { return SimTime{0}; }
    [[nodiscard]] SimTime news(SimRandom&) override { return kShort; }
    [[nodiscard]] SimTime load(StageId, SimRandom&) override { return kShort; }
    [[nodiscard]] SimTime kill(SimRandom&) override { return kShort; }

    static constexpr SimTime kShort{std::chrono::microseconds{1}};
};

/// Makes an actor for each address when it is first asked for.
class OwningBody final : public SimBody {
public:
    explicit OwningBody(std::function<std::unique_ptr<Actor>(StageId)> make)
        : make_{std::move(make)} {}
    [[nodiscard]] Actor& actor(StageId id) override {
        std::unique_ptr<Actor>& own = actors_[id];
        if (own == nullptr) own = make_(id);
        return *own;
    }

private:
    std::function<std::unique_ptr<Actor>(StageId)> make_;
    std::map<StageId, std::unique_ptr<Actor>> actors_;
};

struct IdleConductor : Actor {
    void on_start(StageContext& c) override { context = &c; }
    void handle(StageId, std::uint16_t, std::span<const std::byte>) override {}
    StageContext* context = nullptr;
};

}  // namespace paceline::test
