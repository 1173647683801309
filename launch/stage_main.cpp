#include "launch/stage_main.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include <spdlog/spdlog.h>

#include "actors/draft_actor.hpp"
#include "actors/prompt_lookup_source.hpp"
#include "actors/segment_actor.hpp"
#include "launch/load_model.hpp"
#include "launch/pipeline_layout.hpp"
#include "launch/run_log.hpp"
#include "launch/stage_assignment.hpp"
#include "runtime/stage_loop.hpp"
#include "runtime/stage_process.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// An actor of this process, and what it works on.
struct Hosted {
    StageId id;
    std::unique_ptr<CpuBackend> backend;  // of a segment; before the actor, which borrows it
    std::unique_ptr<Actor> actor;
};

/// The stage id of the last segment, whose verdicts everybody follows.
StageId judge_of(const StageAssignment& assignment) {
    return StageId{static_cast<std::uint16_t>(assignment.segments)};
}

SegmentPlan segment_plan(const StageAssignment& a, const StageDuty& duty) {
    SegmentPlan plan;
    plan.index = duty.id.value;
    plan.count = a.segments;
    const auto id = [](int number) { return StageId{static_cast<std::uint16_t>(number)}; };
    if (plan.index > 1) plan.previous = id(plan.index - 1);
    if (plan.index < a.segments) plan.next = id(plan.index + 1);
    if (a.draft_stage != 0) plan.draft = id(a.draft_stage);
    plan.judge = judge_of(a);
    if (plan.index == a.segments) {
        plan.verdict_to.push_back(kConductor);
        for (int segment = 1; segment < a.segments; ++segment)
            plan.verdict_to.push_back(id(segment));
        if (a.draft_stage != 0) plan.verdict_to.push_back(id(a.draft_stage));
    }
    plan.dispatch.start = a.draft_stage != 0 ? StartRule::Turns : StartRule::AtOnce;
    plan.dispatch.proposal_wait = Micros{a.draft_wait_us};
    return plan;
}

CpuOptions segment_options(const StageAssignment& assignment, const StageDuty& duty) {
    // The process was pinned to its cores before it was started; now each thread gets one.
    ThreadPlan plan{assignment.threads, assignment.cores, assignment.usable_cores};
    plan.cores.resize(std::min(plan.cores.size(), static_cast<std::size_t>(plan.threads)));
    CpuOptions options = cpu_options(assignment.model, plan, assignment.kv_slots);
    options.first_layer = duty.layers.first;
    options.last_layer = duty.layers.last;
    options.rows_max = kWaveRowsMax;
    return options;
}

Result<Hosted> make_segment(const ModelFile& file,
                            const StageAssignment& assignment,
                            const StageDuty& duty,
                            control::Hello& hello) {
    const auto begin = Clock::now();
    Result<std::unique_ptr<CpuBackend>> made =
        make_cpu_backend(file, segment_options(assignment, duty));
    if (!made) return made.error();
    CpuBackend& backend = *made.value();
    const MemoryUse memory = backend.memory_use();
    spdlog::info("weights of layers {} to {} loaded: {:.1f} MB in {:.2f} s, KV cache {:.1f} MB",
                 duty.layers.first, duty.layers.last - 1,
                 static_cast<double>(memory.weight_bytes) / 1e6, seconds_since(begin),
                 static_cast<double>(memory.kv_bytes) / 1e6);
    hello.role = "segment";
    hello.equality_class = backend.equality_class();
    hello.model_fingerprint = std::to_string(file.fingerprint());
    hello.dim = static_cast<std::uint32_t>(backend.config().dim);
    if (hello.last_layer == 0) hello.first_layer = static_cast<std::uint32_t>(duty.layers.first);
    hello.last_layer = static_cast<std::uint32_t>(duty.layers.last);
    hello.weight_bytes += memory.weight_bytes;
    hello.kv_bytes += memory.kv_bytes;
    hello.workspace_bytes += memory.workspace_bytes;
    auto actor = std::make_unique<SegmentActor>(segment_plan(assignment, duty), backend);
    return Hosted{duty.id, std::move(made).value(), std::move(actor)};
}

Result<Hosted> make_draft(const ModelFile& file,
                          const StageAssignment& assignment,
                          const StageDuty& duty) {
    const NgramRange range{assignment.draft.min_ngram, assignment.draft.max_ngram};
    if (const Result<PromptLookup> lookup = PromptLookup::make(range); !lookup)
        return lookup.error();
    const DraftSourceFactory sources = [range](const Request&) {
        return std::make_unique<PromptLookupSource>(
            PromptLookup::make(range).value());  // checked above
    };
    const DraftPlan plan{.first_segment = StageId{1},
                         .judge = judge_of(assignment),
                         .vocab_size = file.config().vocab_size};
    return Hosted{duty.id, nullptr, std::make_unique<DraftActor>(plan, sources)};
}

/// Neighbours that live here pass hidden states on without leaving the process.
void connect_neighbours(StageLoop& loop, const std::vector<Hosted>& hosted, int dim) {
    for (const Hosted& from : hosted) {
        const EdgeSpec edge = wave_edge(from.id, dim);
        const bool to_here = std::any_of(hosted.begin(), hosted.end(), [&](const Hosted& other) {
            return other.id == edge.to && other.backend != nullptr;
        });
        if (from.backend != nullptr && to_here) loop.connect(edge);
    }
}

/// Loads, says hello, runs all actors until the end.
Status work(StageProcess& process) {
    const Result<StageAssignment> assignment = decode_assignment(process.assignment().payload);
    if (!assignment) return assignment.error();
    if (assignment.value().talkative) spdlog::set_level(spdlog::level::info);
    spdlog::info("started, epoch {}", process.assignment().epoch.value);
    const Result<ModelFile> file = ModelFile::open(assignment.value().model.model);
    if (!file) return file.error();
    control::Hello hello;
    hello.role = "draft";
    hello.vocab_size = static_cast<std::uint32_t>(file.value().config().vocab_size);
    std::vector<Hosted> hosted;
    for (const StageDuty& duty : assignment.value().duties) {
        Result<Hosted> made = duty.role == StageRole::Draft
                                  ? make_draft(file.value(), assignment.value(), duty)
                                  : make_segment(file.value(), assignment.value(), duty, hello);
        if (!made) return made.error();
        hosted.push_back(std::move(made).value());
    }
    Result<Wiring> wiring = process.introduce(std::move(hello));
    if (!wiring) return wiring.error();
    spdlog::info("wired: {} channels in, {} out, epoch {}", wiring.value().in.size(),
                 wiring.value().out.size(), wiring.value().epoch.value);
    StageLoop loop{std::move(wiring).value(), process, {}};
    for (const Hosted& one : hosted) loop.add(one.id, *one.actor);
    connect_neighbours(loop, hosted, file.value().config().dim);
    Status ended = loop.run();
    if (ended.ok()) spdlog::info("ended");
    return ended;
}

}  // namespace

int stage_main(int control_fd) {
    Result<std::unique_ptr<StageProcess>> joined = StageProcess::join(control_fd);
    if (!joined) {
        std::fprintf(stderr, "paceline stage: %s\n", joined.error().what.c_str());
        return 1;
    }
    StageProcess& process = *joined.value();
    log_as_stage(process.assignment().name);
    return process.finish(work(process));
}

}  // namespace paceline
