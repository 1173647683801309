#include "launch/stage_main.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "actors/draft_actor.hpp"
#include "actors/prompt_lookup_source.hpp"
#include "actors/segment_actor.hpp"
#include "launch/load_model.hpp"
#include "launch/stage_assignment.hpp"
#include "runtime/stage_loop.hpp"
#include "runtime/stage_process.hpp"

namespace paceline {
namespace {

/// The stage id of the last segment, whose verdicts everybody follows.
StageId judge_of(const StageAssignment& assignment) {
    return StageId{static_cast<std::uint16_t>(assignment.segments)};
}

SegmentPlan segment_plan(const StageAssignment& a) {
    SegmentPlan plan;
    plan.index = a.segment;
    plan.count = a.segments;
    const auto id = [](int number) { return StageId{static_cast<std::uint16_t>(number)}; };
    if (a.segment > 1) plan.previous = id(a.segment - 1);
    if (a.segment < a.segments) plan.next = id(a.segment + 1);
    if (a.draft_stage != 0) plan.draft = id(a.draft_stage);
    plan.judge = judge_of(a);
    if (a.segment == a.segments) {
        plan.verdict_to.push_back(kConductor);
        for (int segment = 1; segment < a.segments; ++segment)
            plan.verdict_to.push_back(id(segment));
        if (a.draft_stage != 0) plan.verdict_to.push_back(id(a.draft_stage));
    }
    plan.dispatch.start = a.draft_stage != 0 ? StartRule::Turns : StartRule::AtOnce;
    plan.dispatch.proposal_wait = Micros{a.draft_wait_us};
    return plan;
}

/// Says hello, runs `actor` until the end, and gives the exit code.
int work(StageProcess& process, control::Hello hello, Actor& actor) {
    Result<Wiring> wiring = process.introduce(std::move(hello));
    if (!wiring) return process.finish(wiring.error());
    StageLoop loop{std::move(wiring).value(), process, {}};
    loop.add(process.assignment().stage, actor);
    return process.finish(loop.run());
}

int run_segment(StageProcess& process, const StageAssignment& assignment) {
    const Result<ModelFile> file = ModelFile::open(assignment.model.model);
    if (!file) return process.finish(file.error());
    // The process was pinned to its cores before it was started; now each thread gets one.
    ThreadPlan plan{assignment.threads, assignment.cores, assignment.usable_cores};
    plan.cores.resize(std::min(plan.cores.size(), static_cast<std::size_t>(plan.threads)));
    CpuOptions options = cpu_options(assignment.model, plan, assignment.kv_slots);
    options.first_layer = assignment.layers.first;
    options.last_layer = assignment.layers.last;
    options.rows_max = kWaveRowsMax;
    const Result<std::unique_ptr<CpuBackend>> made = make_cpu_backend(file.value(), options);
    if (!made) return process.finish(made.error());
    CpuBackend& backend = *made.value();
    const MemoryUse memory = backend.memory_use();
    control::Hello hello;
    hello.role = "segment";
    hello.equality_class = backend.equality_class();
    hello.model_fingerprint = std::to_string(file.value().fingerprint());
    hello.vocab_size = static_cast<std::uint32_t>(backend.config().vocab_size);
    hello.dim = static_cast<std::uint32_t>(backend.config().dim);
    hello.first_layer = static_cast<std::uint32_t>(assignment.layers.first);
    hello.last_layer = static_cast<std::uint32_t>(assignment.layers.last);
    hello.weight_bytes = memory.weight_bytes;
    hello.kv_bytes = memory.kv_bytes;
    hello.workspace_bytes = memory.workspace_bytes;
    SegmentActor actor{segment_plan(assignment), backend};
    return work(process, std::move(hello), actor);
}

int run_draft(StageProcess& process, const StageAssignment& assignment) {
    const Result<ModelFile> file = ModelFile::open(assignment.model.model);
    if (!file) return process.finish(file.error());
    const int vocab_size = file.value().config().vocab_size;
    const NgramRange range{assignment.draft.min_ngram, assignment.draft.max_ngram};
    if (const Result<PromptLookup> lookup = PromptLookup::make(range); !lookup)
        return process.finish(lookup.error());
    const DraftSourceFactory sources = [range](const Request&) {
        return std::make_unique<PromptLookupSource>(
            PromptLookup::make(range).value());  // checked above
    };
    DraftActor actor{
        {.first_segment = StageId{1}, .judge = judge_of(assignment), .vocab_size = vocab_size},
        sources};
    control::Hello hello;
    hello.role = "draft";
    hello.vocab_size = static_cast<std::uint32_t>(vocab_size);
    return work(process, std::move(hello), actor);
}

}  // namespace

int stage_main(int control_fd) {
    Result<std::unique_ptr<StageProcess>> joined = StageProcess::join(control_fd);
    if (!joined) {
        std::fprintf(stderr, "paceline stage: %s\n", joined.error().what.c_str());
        return 1;
    }
    StageProcess& process = *joined.value();
    const Result<StageAssignment> assignment = decode_assignment(process.assignment().payload);
    if (!assignment) return process.finish(assignment.error());
    return assignment.value().role == StageRole::Draft ? run_draft(process, assignment.value())
                                                       : run_segment(process, assignment.value());
}

}  // namespace paceline
