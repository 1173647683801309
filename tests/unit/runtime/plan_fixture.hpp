// What the tests of loops and wiring share: a plan with everything wired, and one process's end.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/loop/wiring.hpp"

namespace paceline::test {

struct Wired {
    ProcessSpec process;
    Epoch epoch{1};
};

inline WiringPlan wired_plan(const std::vector<Wired>& processes, std::vector<EdgeSpec> edges) {
    std::vector<ProcessSpec> specs;
    for (const Wired& one : processes) specs.push_back(one.process);
    WiringPlan plan =
        WiringPlan::create(specs, std::move(edges), WiringPlan::Checksums::Payloads).value();
    for (const Wired& one : processes) {
        const Status wired = plan.wire(one.process.id, one.epoch);
        PACE_CHECK(wired.ok(), "a test plan that cannot be wired");
    }
    return plan;
}

/// What a stage would get from its Wire message.
inline Wiring wiring_of(const WiringPlan& plan, StageId id, Epoch epoch) {
    AttachedEdges edges = plan.attach(id).value();
    return Wiring{
        .self = id,
        .actors = plan.process(id).actors,
        .epoch = epoch,
        .spin_micros = plan.process(id).spin_micros,
        .bell = plan.bell_of(id).value(),
        .hang_limit_ms = 0,
        .out = std::move(edges.out),
        .in = std::move(edges.in),
        .absent = std::move(edges.absent),
        .telemetry = std::make_shared<StageTelemetry>(StageTelemetry::local(id, epoch, "test")),
        .board = nullptr};
}

}  // namespace paceline::test
