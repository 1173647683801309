#include "runtime/simulation/sim_environment.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/data_kinds.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/simulation/machines/sim_machines.hpp"
#include "runtime/simulation/sim_stages.hpp"

namespace paceline {

std::string describe_frame(std::uint16_t kind, std::span<const std::byte> bytes) {
    static constexpr std::array kNames{"?", "Proposal", "Batch", "Verdict", "Stop", "TensorNote"};
    const msg::Route route = msg::route_of(kind, bytes).value_or(msg::Route{});
    return fmt::format("{} request {} attempt {}", kNames[kind < kNames.size() ? kind : 0],
                       route.request.value, route.attempt.value);
}

SimEnvironment::SimEnvironment(SimProcess& process)
    : process_{process}, random_{process.self.site.core.random.next()} {}

Push SimEnvironment::send(StageId from,
                          StageId to,
                          std::uint16_t kind,
                          std::span<const std::byte> bytes) {
    SimSite& site = process_.self.site;
    const AllocationPause pause{site};
    if (process_.faults.is_doomed()) return Push::Ok;
    const KindRule* rule = find_rule(kDataKinds, kind);
    PACE_CHECK(rule != nullptr, "a message of a kind that does not exist");
    PACE_CHECK(bytes.size() >= rule->bytes_min && bytes.size() <= rule->bytes_max,
               "a message whose length is not its kind's");
    SimEdges::Out* out = process_.edges.find_out(from, to);
    if (out == nullptr) {
        PACE_CHECK(process_.edges.is_absent(to), "a message to a stage without a channel to it");
        count(Counter::FramesStale, 1);
        return Push::Ok;
    }
    SimChannel& channel = *out->channel;
    if (!channel.has_room(rule->urgency)) {
        out->wants_room = true;
        return Push::Full;
    }
    SimCore& core = site.core;
    const SimTime hop = site.timing.hop(channel.spec, msg::rows_of(kind, bytes), core.random);
    const SimTime arrives = channel.push(core.now + hop, kind, bytes);
    core.note(std::uint64_t{kind} << 32U | to.value, channel.from.epoch.value);
    process_.self.tell([&] {
        return fmt::format("-> {} {}{}", to.value, describe_frame(kind, bytes),
                           (channel.read ? "" : " (not read)"));
    });
    if (channel.read) {
        site.stages.process(channel.to.serial).wake(arrives);
    } else {
        count(Counter::FramesStale, 1);
    }
    process_.faults.sent();
    return Push::Ok;
}

void SimEnvironment::post(StageId from, StageId to, const control::Message& message) {
    SimSite& site = process_.self.site;
    const AllocationPause pause{site};
    if (process_.faults.is_doomed()) return;
    if (process_.self.is_conductor()) return site.post(from, to, message);
    PACE_CHECK(to == kConductor, "a stage's control messages go to the conductor");
    process_.connection.report(SimMail{to, from, message});
}

void SimEnvironment::report_fault(StageId self, StageId peer, Error error) {
    const AllocationPause pause{process_.self.site};
    process_.self.tell(
        [&] { return fmt::format("finds a fault of {}: {}", peer.value, error.what); });
    faulty_.push_back({peer, epoch_of(self, peer), std::move(error)});
}

bool SimEnvironment::is_faulty(StageId peer) const {
    return std::any_of(faulty_.begin(), faulty_.end(),
                       [peer](const SimEdgeFault& fault) { return fault.peer == peer; });
}

TensorProducer* SimEnvironment::tensors_to(StageId self, StageId to) {
    SimEdges::Out* out = process_.edges.find_out(self, to);
    return out != nullptr && out->channel->producer ? &*out->channel->producer : nullptr;
}

void SimEnvironment::trace(TraceEvent event) {
    const SimSite& site = process_.self.site;
    if (!site.options.tracing) return;
    const AllocationPause pause{site};
    event.time_us = now().count();
    process_.telemetry.trace.push_back(event);
}

void SimEnvironment::count(Counter counter, std::uint64_t add) {
    process_.telemetry.block.counters[static_cast<std::size_t>(counter)] += add;
}

void SimEnvironment::set(Gauge gauge, std::uint64_t value) {
    process_.telemetry.block.gauges[static_cast<std::size_t>(gauge)] = value;
}

const std::atomic<std::uint64_t>* SimEnvironment::cancel_word(RequestId request) {
    const SimIdentity& self = process_.self;
    return &(self.line ? self.line->board : self.site.board)[request.value % kCancelLines];
}

void SimEnvironment::cancel_before(RequestId request, Attempt valid) {
    SimSite& site = process_.self.site;
    const std::size_t index = request.value % kCancelLines;
    PACE_CHECK(!process_.self.line, "the conductor alone cancels");
    site.board[index].store(CancelBoard::mark_of(request, valid), std::memory_order_relaxed);
    if (site.machines == nullptr) return;
    const AllocationPause pause{site};
    site.machines->places().publish(index);
}

}  // namespace paceline
