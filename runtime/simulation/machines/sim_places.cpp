#include "runtime/simulation/machines/sim_places.hpp"

#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <utility>

#include "runtime/simulation/sim_stages.hpp"

namespace paceline {
namespace {

/// As the conductor's hub looks for places that are free.
constexpr SimTime kLook{100'000'000};

}  // namespace

SimPlaces::SimPlaces(SimSite& site, SimLater& later, OnClosed on_closed)
    : site_{site},
      later_{later},
      on_closed_{std::move(on_closed)},
      rules_{site.options.machines.lease} {
    for (std::uint32_t i = 1; i <= site.options.machines.others; ++i) places_.emplace_back(i);
}

SimPlaces::Place* SimPlaces::place_of(const SimLinePtr& line) {
    const auto found = std::find_if(places_.begin(), places_.end(),
                                    [&](const Place& each) { return each.line == line; });
    return found == places_.end() ? nullptr : &*found;
}

// ---- who has which place ----

bool SimPlaces::hello(const Agent& agent, const SimLinePtr& line) {
    for (Place& place : places_) {
        if (!place.line || place.agent.machine != agent.machine) continue;
        if (place.agent != agent) return false;  // two tasks on one machine
        // The end of its old connection has not arrived.
        close(place, "its agent has connected anew");
    }
    const Guest guest{agent, line};
    if (const auto index = place_for(agent.machine)) {
        seat(*index, guest);
    } else {
        guests_.push_back(guest);
        seat_spares();
    }
    return true;
}

std::optional<std::size_t> SimPlaces::place_for(std::uint32_t machine) const {
    for (std::size_t i = 0; i < places_.size(); ++i) {
        if (!places_[i].line && places_[i].named == machine) return i;
    }
    return std::nullopt;
}

void SimPlaces::seat(std::size_t index, const Guest& guest) {
    Place& place = places_[index];
    // An agent comes without stages: those of its earlier connection have ended.
    if (place.lease) end_lease(index, place.why + "; it is back");
    place.named = guest.agent.machine;
    place.agent = guest.agent;
    place.line = guest.line;
    place.line->place = static_cast<std::uint32_t>(index + 1);
    ++place.epoch.value;
    place.line->node_epoch = place.epoch;
    place.lease.emplace(rules_, site_.core.now);
    site_.core.tell([&] {
        return fmt::format("machine {} has place {}, node epoch {}", place.named, index + 1,
                           place.epoch.value);
    });
    for (std::size_t word = 0; word < kCancelLines; ++word) send_word(place.line, word);
    later_.at(place.lease->end(), [this, index, epoch = place.epoch] { look(index, epoch); });
    place.roll.link_back(place.epoch);
    tell_news(place);
}

/// A machine without stages takes the place of one whose lease has ended.
void SimPlaces::seat_spares() {
    for (std::size_t i = 0; i < places_.size() && !guests_.empty(); ++i) {
        if (places_[i].line || places_[i].lease) continue;
        const Guest guest = guests_.front();
        guests_.erase(guests_.begin());
        seat(i, guest);
    }
}

// ---- leases and connections ----

void SimPlaces::look(std::size_t index, Epoch epoch) {
    Place& place = places_[index];
    if (!place.lease || place.epoch != epoch) return;
    if (!place.lease->is_over(site_.core.now))
        return later_.at(place.lease->end(), [this, index, epoch] { look(index, epoch); });
    if (place.line) close(place, "nothing came from it until its lease ended");
    end_lease(index, place.why);
    later_.at(site_.core.now + site_.core.random.uniform(SimTime{0}, kLook),
              [this] { seat_spares(); });
}

bool SimPlaces::ask(const SimLinePtr& line) {
    if (Place* place = place_of(line)) {
        place->lease->grant(site_.core.now);
        return true;
    }
    return std::any_of(guests_.begin(), guests_.end(),
                       [&](const Guest& guest) { return guest.line == line; });
}

void SimPlaces::lost(const SimLinePtr& line, const std::string& why) {
    std::erase_if(guests_, [&](const Guest& guest) { return guest.line == line; });
    if (Place* place = place_of(line)) lose(*place, why);
}

void SimPlaces::lose(Place& place, const std::string& why) {
    site_.core.tell([&] { return fmt::format("machine {} is lost: {}", place.named, why); });
    place.line->conductor_end = site_.core.now;
    place.line.reset();
    place.why = why;
    place.roll.link_lost(why);
    tell_news(place);
}

void SimPlaces::close(Place& place, const std::string& why) {
    const SimLinePtr line = place.line;
    const Agent agent = place.agent;
    lose(place, why);
    later_.along(line, SimWay::Down, [this, agent, line] { on_closed_(agent, line); });
}

/// From here on its stages count as ended.
void SimPlaces::end_lease(std::size_t index, const std::string& why) {
    Place& place = places_[index];
    site_.core.tell([&] { return fmt::format("the lease of machine {} is over", place.named); });
    place.lease.reset();
    for (const auto& process : site_.stages.incarnations()) {
        const SimLinePtr& line = process->self.line;
        if (process->ended() || !line || line->place != index + 1) continue;
        if (!line->served || line->was_frozen) continue;
        site_.core.violate("the lease of its machine is over, and " + process->self.title() +
                           " still runs");
    }
    place.roll.lease_ended(why);
    tell_news(place);
}

// ---- its stages ----

void SimPlaces::started(const SimProcess& process) {
    const std::size_t index = process.self.spec.process.node - 1;
    Place& place = places_[index];
    place.roll.start({process.self.id(), process.self.epoch});
    if (place.roll.is_connected()) return;
    later_.at(site_.core.now, [this, index] {
        places_[index].roll.give_up_unstarted();
        tell_news(places_[index]);
    });
}

void SimPlaces::ended(const SimProcess& process) {
    places_[process.self.spec.process.node - 1].roll.ended({process.self.id(), process.self.epoch});
}

bool SimPlaces::accepts(const SimProcess& process) const {
    const SimIdentity& self = process.self;
    return places_[self.spec.process.node - 1].roll.accepts({self.id(), self.epoch});
}

void SimPlaces::tell_news(Place& place) {
    while (const std::optional<NodeRoll::News> news = place.roll.next()) site_.machine_news(*news);
}

// ---- the board ----

void SimPlaces::publish(std::size_t index) {
    for (const Place& place : places_) {
        if (place.line) send_word(place.line, index);
    }
}

void SimPlaces::send_word(const SimLinePtr& line, std::size_t index) {
    const std::uint64_t word = site_.board[index].load(std::memory_order_relaxed);
    if (word == 0) return;
    later_.along(line, SimWay::Down, [line, index, word] {
        line->board[index].store(word, std::memory_order_relaxed);
    });
}

}  // namespace paceline
