#include "launch/session/stage_main.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include <spdlog/spdlog.h>

#include "launch/base/run_log.hpp"
#include "launch/load/gpu_links.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "launch/session/stage_actors.hpp"
#include "model/feature_slots.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/warm_up.hpp"
#include "model/weights/message_text.hpp"
#include "runtime/loop/stage_loop.hpp"
#include "runtime/loop/stage_process.hpp"

namespace paceline {
namespace {

const StageSpec* spec_of(const StageAssignment& assignment, StageId id) {
    const auto found = std::find_if(assignment.stages.begin(), assignment.stages.end(),
                                    [id](const StageSpec& spec) { return spec.id == id; });
    return found == assignment.stages.end() ? nullptr : &*found;
}

/// Between two stages of this process.
Transport transport_of(const StageAssignment& assignment, const EdgeSpec& edge) {
    const StageSpec* from = spec_of(assignment, edge.from);
    const StageSpec* to = spec_of(assignment, edge.to);
    const bool one_gpu = from != nullptr && to != nullptr && from->device.gpu.has_value() &&
                         from->device.gpu == to->device.gpu;
    return assignment.tensors_on_device && one_gpu ? Transport::Local : Transport::Host;
}

/// What segments of this process send a draft that lives here too, beside their verdicts: taps, or
/// features, which wait on the host for the pass that reads them.
Status connect_draft(StageLoop& loop,
                     const StageAssignment& assignment,
                     const std::vector<HostedActor>& hosted,
                     const HostedActor& draft) {
    for (const HostedActor& one : hosted) {
        const bool segment = one.id.value >= 1 && one.id.value <= assignment.segments;
        if (!segment) continue;
        const Backend& backend = *one.backend;
        std::optional<EdgeSpec> edge;
        if (assignment.draft.is_tapped()) {
            edge = tap_edge(one.id, draft.id, backend.last_layer() - backend.first_layer(),
                            backend.config().dim);
            edge->transport = transport_of(assignment, *edge);
        } else if (assignment.draft.reads_features() && one.id.value == assignment.segments) {
            const std::size_t width = draft.backend->feature_slots()->width();
            edge = feature_edge(one.id, draft.id, backend.config().dim,
                                width / static_cast<std::size_t>(backend.config().dim));
        }
        if (!edge) continue;
        if (Status s = loop.connect(*edge); !s.ok()) return s;
    }
    return {};
}

/// Neighbours that live here pass hidden states, and keys and values, on without leaving the
/// process.
Status connect_neighbours(StageLoop& loop,
                          const StageAssignment& assignment,
                          const std::vector<HostedActor>& hosted) {
    const auto find = [&](std::int32_t id) {
        const auto found = std::find_if(hosted.begin(), hosted.end(),
                                        [&](const HostedActor& one) { return one.id.value == id; });
        return found == hosted.end() ? nullptr : &*found;
    };
    const auto connect = [&](EdgeSpec edge) {
        if (edge.tensor_slots > 0) edge.transport = transport_of(assignment, edge);
        return loop.connect(edge);
    };
    for (std::int32_t id = 1; id < assignment.segments; ++id) {
        const HostedActor* from = find(id);
        if (from == nullptr || find(id + 1) == nullptr) continue;
        if (Status s = connect(batch_edge(from->id, from->backend->config().dim,
                                          assignment.dispatch.batch_rows()));
            !s.ok())
            return s;
    }
    const HostedActor* draft = find(assignment.draft_stage);
    const HostedActor* correct = find(assignment.correct_stage);
    if (draft != nullptr) {
        if (Status s = connect_draft(loop, assignment, hosted, *draft); !s.ok()) return s;
    }
    if (draft == nullptr || correct == nullptr) return {};
    return connect(trunk_edge(draft->id, correct->id,
                              draft->backend == nullptr ? 0 : draft->backend->kv_bytes()));
}

/// The device of this process, if tensors of its edges lie there; else nullptr.
Result<std::unique_ptr<TensorDevice>> tensor_device(const StageAssignment& assignment) {
    for (const StageSpec& spec : assignment.stages) {
        const bool wanted = assignment.tensors_on_device && spec.device.gpu.has_value();
        if (wanted) return make_gpu_tensor_device(*spec.device.gpu);
    }
    return std::unique_ptr<TensorDevice>{};
}

/// The time of one row through the target's layers of this process. Drafts are disposable: how long
/// their first job takes is learnt when it runs.
Micros warm_up_segments(const StageAssignment& assignment, const std::vector<HostedActor>& hosted) {
    Micros time{0};
    for (const HostedActor& one : hosted) {
        const StageSpec* spec = spec_of(assignment, one.id);
        if (spec != nullptr && spec->role == StageRole::Segment) time += warm_up(*one.backend);
    }
    return time;
}

/// Loads, says hello, runs all actors until the end.
Status run_actors(StageProcess& process) {
    const Result<StageAssignment> assignment = decode_assignment(process.assignment().payload);
    if (!assignment) return assignment.error();
    if (assignment.value().verbose) spdlog::set_level(spdlog::level::info);
    spdlog::info("started, epoch {}", process.assignment().epoch.value);
    control::Hello hello;
    Result<std::vector<HostedActor>> hosted = make_stage_actors(assignment.value(), hello);
    if (!hosted) return hosted.error();
    const Micros row_time = warm_up_segments(assignment.value(), hosted.value());
    spdlog::info("warm: a row takes {:.2f} ms", static_cast<double>(row_time.count()) / 1e3);
    const Result<std::unique_ptr<TensorDevice>> device = tensor_device(assignment.value());
    if (!device) return device.error();
    Result<Wiring> wiring = process.introduce(std::move(hello));
    if (!wiring) return wiring.error();
    spdlog::info("wired: {} channels in, {} out, epoch {}", wiring.value().in.size(),
                 wiring.value().out.size(), wiring.value().epoch.value);
    StageLoop loop{
        std::move(wiring).value(), process, {.device = device.value().get(), .row_time = row_time}};
    for (const HostedActor& one : hosted.value()) loop.add(one.id, *one.actor);
    if (Status s = connect_neighbours(loop, assignment.value(), hosted.value()); !s.ok()) return s;
    Status ended = loop.run();
    if (ended.ok()) spdlog::info("ended");
    return ended;
}

/// After an error of its GPU a process gets nothing more out of it: the stage ends, and its
/// supervisor starts another.
Status work(StageProcess& process) {
    try {
        return run_actors(process);
    } catch (const cuda::DeviceError& error) {
        spdlog::error("the GPU failed: {}", error.what());
        return Error{Errc::System, std::string{"the GPU failed: "} + error.what()};
    }
}

}  // namespace

int stage_main(int control_fd) {
    Result<std::unique_ptr<StageProcess>> joined = StageProcess::join(control_fd);
    if (!joined) {
        std::fprintf(stderr, "paceline stage: %s\n", visible_lines(joined.error().what).c_str());
        return 1;
    }
    StageProcess& process = *joined.value();
    log_as_stage(process.assignment().name);
    return process.finish(work(process));
}

}  // namespace paceline
