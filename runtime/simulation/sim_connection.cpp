#include "runtime/simulation/sim_connection.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

SimTime SimConnection::send(SimMessage message) {
    SimSite& site = self_.site;
    // The conductor's own news come to it at once.
    const SimTime delay =
        self_.is_conductor() ? SimTime{0} : site.timing.control_hop(site.core.random);
    const SimTime arrives =
        self_.line ? self_.now() + delay + self_.line->delay : self_.now() + delay;
    if (self_.line && !self_.line->takes(SimWay::Down)) return kSimNever;
    last_arrival_ = std::max(arrives, last_arrival_);
    messages_.push_back({last_arrival_, std::move(message)});
    return arrival(last_arrival_);
}

std::optional<SimTime> SimConnection::next_arrival() const {
    if (messages_.empty()) return std::nullopt;
    const SimTime arrives = arrival(messages_.front().arrives);
    return arrives == kSimNever ? std::nullopt : std::optional{arrives};
}

SimMessage SimConnection::receive() {
    SimMessage message = std::move(messages_.front().message);
    messages_.pop_front();
    return message;
}

void SimConnection::report(SimReport report) {
    SimSite& site = self_.site;
    const AllocationPause pause{site};
    SimTime arrives = self_.now() + site.timing.news(site.core.random);
    if (self_.line) {
        if (!self_.line->takes(SimWay::Up)) return;
        arrives += self_.line->delay;
    }
    last_report_ = std::max(arrives, last_report_);
    reports_.push_back(std::move(report));
    self_.push(last_report_, SimEventKind::ControlUp);
}

SimReport SimConnection::take_report() {
    PACE_CHECK(!reports_.empty(), "an event for a report that was not made");
    SimReport report = std::move(reports_.front());
    reports_.pop_front();
    return report;
}

}  // namespace paceline
