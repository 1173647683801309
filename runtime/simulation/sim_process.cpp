#include "runtime/simulation/sim_process.hpp"

#include <algorithm>
#include <utility>

#include "runtime/simulation/sim_loop.hpp"

namespace paceline {

SimProcess::SimProcess(const SimIdentity& identity, const JobRecords& before)
    : self{identity}, loop_{std::make_unique<SimLoop>(*this, before)} {}

SimProcess::~SimProcess() = default;

void SimProcess::load(SimTime takes) {
    schedule_loaded(self.now() + takes);
}

void SimProcess::schedule_loaded(SimTime at) {
    load_ends_ = at;
    self.push(at, SimEventKind::Loaded, ++load_);
}

void SimProcess::loaded(std::uint64_t load) {
    if (ended() || !load_ends_ || load != load_) return;
    if (faults.is_frozen()) return self.push(faults.frozen_until(), SimEventKind::Loaded, load);
    load_ends_.reset();
    connection.report(SimHello{});
}

void SimProcess::run_at_once(SimWire wire) {
    loop_->start(std::move(wire));
    run();
}

void SimProcess::receive(SimMessage message) {
    if (!ended()) wake(connection.send(std::move(message)));
}

void SimProcess::wake(SimTime at) {
    at = std::max(at, self.now());
    if (ended() || at >= wake_at_) return;
    wake_at_ = at;
    self.push(at, SimEventKind::Step);
}

void SimProcess::step(SimTime event_at) {
    if (event_at != wake_at_) return;
    wake_at_ = SimTime::max();
    run();
}

void SimProcess::job_done(std::uint64_t number) {
    if (!ended() && loop_->job_done(number)) run();
}

void SimProcess::thaw() {
    if (ended() || faults.is_frozen()) return;
    self.tell([] { return std::string{"goes on"}; });
    run();
}

void SimProcess::run() {
    if (ended() || load_ends_) return;
    if (std::optional<SimEnd> end = loop_->run_until_blocked()) die(std::move(*end));
}

void SimProcess::suspend(SimTime until, SimTime gap) {
    faults.freeze(until);
    if (load_ends_) schedule_loaded(*load_ends_ + gap);
    loop_->jobs().suspend(gap);
}

void SimProcess::die(SimEnd end) {
    if (ended()) return;
    end_ = std::move(end);
    self.tell([&] { return "is no more: " + end_->how; });
    // Frees its memory. None of its code is on the call stack: a process that dies inside a handler
    // is only doomed until the handler returns.
    edges.clear();
    connection.close();
    loop_.reset();
    self.site.ended(*this);
}

}  // namespace paceline
