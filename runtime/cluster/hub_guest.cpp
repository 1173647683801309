#include "runtime/cluster/hub_guest.hpp"

#include <fmt/core.h>

namespace paceline {

std::optional<Objection> objection_to(const Guest& guest,
                                      const remote::Hello& conductor,
                                      const std::vector<std::weak_ptr<Guest>>& others) {
    const remote::Hello& hello = guest.hello;
    if (hello.machine == conductor.machine || hello.session == conductor.session) {
        return Objection{fmt::format(
            "machine '{}' is that of the conductor: an agent is for another one (or has a "
            "--node-name of its own)",
            hello.node)};
    }
    const std::string here = fmt::format("the machine at {}", guest.raw->link.peer());
    const auto same_name = [&](const std::string& other) {
        return fmt::format(
            "two machines are called '{}': {} and {}; give one of them another name with "
            "--node-name",
            hello.node, other, here);
    };
    if (hello.node == conductor.node) return Objection{same_name("the conductor's")};
    for (const std::weak_ptr<Guest>& each : others) {
        const GuestPtr other = each.lock();
        if (!other || !other->is_agent()) continue;
        if (other->hello.machine == hello.machine) {
            return Objection{
                fmt::format("machine '{}' has an agent already: two tasks on one machine",
                            hello.node),
                true};
        }
        if (other->hello.node != hello.node) continue;
        return Objection{same_name("the machine at " + other->raw->link.peer()), true};
    }
    return std::nullopt;
}

}  // namespace paceline
