#include "tests/support/toy/toy_faults.hpp"

#include <cstring>
#include <type_traits>

namespace paceline::testing {

static_assert(std::is_trivially_copyable_v<ToyAssignment>);

std::vector<std::byte> encode_toy(const ToyAssignment& assignment) {
    std::vector<std::byte> payload(sizeof assignment);
    std::memcpy(payload.data(), &assignment, sizeof assignment);
    return payload;
}

std::optional<ToyAssignment> decode_toy(std::span<const std::byte> payload) {
    ToyAssignment assignment;
    if (payload.size() != sizeof assignment) return std::nullopt;
    std::memcpy(&assignment, payload.data(), sizeof assignment);
    return assignment;
}

std::vector<ProcessSpec> toy_children(const ToyPlan& plan,
                                      std::span<const ToyFaultOf> faults,
                                      PlantedBug bug) {
    const std::optional<StageId> draft = toy_draft(plan);
    std::vector<ProcessSpec> children;
    for (const std::vector<StageId>& home : toy_homes(plan)) {
        ToyAssignment assignment{plan, {}, bug};
        std::size_t count = 0;
        for (const ToyFaultOf& fault : faults) {
            if (fault.process == home.front()) assignment.faults.at(count++) = fault.fault;
        }
        const bool disposable = home.size() == 1 && home.front() == draft;
        ProcessSpec child;
        child.id = home.front();
        child.name = toy_name(plan, home.front());
        child.payload = encode_toy(assignment);
        child.on_death = disposable ? OnDeath::RestartAlone : OnDeath::RebuildChain;
        child.actors = home;
        children.push_back(std::move(child));
    }
    return children;
}

}  // namespace paceline::testing
