#include "launch/session/stage_actors.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>

#include <spdlog/spdlog.h>

#include "actors/draft/correct_actor.hpp"
#include "actors/draft/draft_actor.hpp"
#include "actors/segment/segment_actor.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/make_backend.hpp"
#include "launch/load/model_grammars.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "launch/session/draft_sources.hpp"
#include "model/weights/trained_parts.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

StageId stage_id(int number) {
    return StageId{static_cast<std::uint16_t>(number)};
}

/// The stages that only give hints: draft and correct.
std::vector<StageId> speculative_stages_of(const StageAssignment& a) {
    std::vector<StageId> ids;
    if (a.draft_stage != 0) ids.push_back(stage_id(a.draft_stage));
    if (a.correct_stage != 0) ids.push_back(stage_id(a.correct_stage));
    return ids;
}

/// The options of the backend of `spec` that do not depend on its role. The process was pinned to
/// its cores before it was started; now each thread gets one.
CpuOptions base_options(const StageAssignment& assignment, const StageSpec& spec) {
    ThreadPlan plan{assignment.threads, assignment.cores, assignment.usable_cores};
    plan.cores.resize(std::min(plan.cores.size(), static_cast<std::size_t>(plan.threads)));
    CpuOptions options = cpu_options(assignment.model, plan, assignment.kv_slots, spec.device);
    options.rows_max = static_cast<int>(spec.rows_max);
    return options;
}

SegmentPlan segment_plan(const StageAssignment& a, const StageSpec& spec) {
    SegmentPlan plan;
    const int index = spec.id.value;
    plan.count = a.segments;
    if (index > 1) plan.previous = stage_id(index - 1);
    if (index < a.segments) plan.next = stage_id(index + 1);
    if (a.draft_stage != 0) plan.draft = stage_id(a.draft_stage);
    plan.speculative = speculative_stages_of(a);
    if (plan.draft && a.draft.is_tapped())
        plan.tap = TapOptions{*plan.draft, static_cast<std::uint32_t>(a.draft.skip.interval)};
    plan.verifier = stage_id(a.segments);
    if (index == a.segments) {
        plan.verdict_to.push_back(kConductor);
        for (int segment = 1; segment < a.segments; ++segment)
            plan.verdict_to.push_back(stage_id(segment));
        for (const StageId stage : plan.speculative) plan.verdict_to.push_back(stage);
    }
    plan.dispatch = a.dispatch;
    plan.dispatch.draft_is_instant = a.draft_stage != 0 && a.draft.answers_at_once();
    plan.dispatch.exits_start_early = a.exit && a.exit->options.proposes;
    plan.free_candidates = !a.draft.computes() && !a.exit;
    for (const StageId exit : a.exit_stages) {
        if (exit.value != 1) plan.priced_exits.push_back(exit);
    }
    plan.first_segment = StageId{1};
    plan.retained = a.retained;
    for (const RetainedBy& each : a.retained) {
        if (each.stage == spec.id) plan.retained_slots = each.slots;
    }
    if (a.exit) plan.hold_limit = a.exit->options.defer_limit;
    if (index == a.segments) plan.verify.grammars = lazy_grammar_loader(a.model);
    return plan;
}

Result<std::unique_ptr<Backend>> load(const ModelFile& file,
                                      const CpuOptions& options,
                                      const StageSpec& spec,
                                      const BackendMaker& make,
                                      control::Hello& hello) {
    const auto begin = Clock::now();
    Result<std::unique_ptr<Backend>> made = make(file, options, spec);
    if (!made) return made.error();
    const Backend& backend = *made.value();
    const MemoryUse memory = backend.memory_use();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    spdlog::info(
        "weights of layers {} to {} of {} loaded: {:.1f} MB in {:.2f} s, KV cache {:.1f} MB, on {}",
        backend.first_layer(), backend.last_layer() - 1, file.path(),
        static_cast<double>(memory.weight_bytes) / 1e6, seconds,
        static_cast<double>(memory.kv_bytes) / 1e6, to_text(spec.device));
    hello.weight_bytes += memory.weight_bytes;
    hello.kv_bytes += memory.kv_bytes;
    hello.workspace_bytes += memory.workspace_bytes;
    hello.pinned_bytes += memory.pinned_bytes;
    return made;
}

/// Segments that share a process say one class for all of them: it has to be true of each.
Status check_class(const Backend& segment, const control::Hello& hello) {
    if (hello.equality_class.empty() || hello.equality_class == segment.equality_class()) return {};
    return Error{Errc::BadArgument, "segments of one process have the equality classes \"" +
                                        hello.equality_class + "\" and \"" +
                                        segment.equality_class() +
                                        "\": mixed classes do not give equal bits"};
}

/// The last segment sends an EAGLE draft the states that it reads. Errors: those of
/// open_eagle_part(); BadArgument for states of layers that another segment has.
Status add_features(const StageAssignment& assignment,
                    const ModelFile& file,
                    const StageSpec& spec,
                    SegmentPlan& plan) {
    if (plan.next || !plan.draft || !assignment.draft.reads_features()) return {};
    Result<EaglePart> part = open_eagle_part(assignment.parts.draft, file);
    if (!part) return part.error();
    plan.features = FeatureOptions{*plan.draft, std::move(part.value().spec.layers)};
    const std::vector<int>& layers = plan.features->layers;
    if (layers.empty()) return {};
    if (layers.front() > spec.layers.first) return {};
    return Error{Errc::BadArgument,
                 fmt::format("{} reads states after layer {}: the last segment has the layers from "
                             "{} on; give the target one segment",
                             assignment.parts.draft, layers.front(), spec.layers.first)};
}

/// The first segment drafts for itself.
Status add_self_draft(const StageAssignment& assignment,
                      const ModelFile& file,
                      CpuOptions& options,
                      SegmentPlan& plan) {
    Result<SelfDraftPlan> self = plan_self_draft(*assignment.self_draft, assignment.parts, file);
    if (!self) return self.error();
    if (Status s = check_first_segment(self.value().options, options.last_layer); !s.ok()) return s;
    options.final_head = options.final_head || self.value().final_head;
    for (HeadSpec& head : self.value().heads) options.heads.push_back(std::move(head));
    options.adapter = std::move(self.value().adapter);
    plan.self_draft = std::move(self).value().options;
    plan.self_draft->on_auto_off = [](bool drafts, double gain) {
        if (drafts) return spdlog::info("drafts again, to measure the gain anew");
        spdlog::info("decodes plainly: with drafts it is {:.2f} times as fast", gain);
    };
    return {};
}

Result<HostedActor> make_segment(const ModelFile& file,
                                 const StageAssignment& assignment,
                                 const StageSpec& spec,
                                 const BackendMaker& make,
                                 control::Hello& hello) {
    SegmentPlan plan = segment_plan(assignment, spec);
    if (Status s = validate(plan.dispatch); !s.ok()) return s.error();
    CpuOptions options = base_options(assignment, spec);
    options.first_layer = spec.layers.first;
    options.last_layer = spec.layers.last;
    if (assignment.exit) {
        const ExitPlace place{spec.layers.last, spec.exit,
                              spec.id == stage_id(assignment.segments)};
        Result<ExitParts> parts = open_exit_parts(*assignment.exit, assignment.parts, file);
        if (!parts) return parts.error();
        ExitHeads heads = exit_heads(*assignment.exit, file.config(), parts.value(), place,
                                     speculative_stages_of(assignment));
        options.final_head = heads.final_head;
        options.heads = std::move(heads.heads);
        options.adapter = std::move(heads.adapter);
        plan.exit = std::move(heads.options);
        if (plan.exit) {
            if (Status s = validate(*plan.exit); !s.ok()) return s.error();
        }
    }
    if (assignment.self_draft && !plan.previous) {
        if (Status s = add_self_draft(assignment, file, options, plan); !s.ok()) return s.error();
    }
    if (Status s = add_features(assignment, file, spec, plan); !s.ok()) return s.error();
    Result<std::unique_ptr<Backend>> backend = load(file, options, spec, make, hello);
    if (!backend) return backend.error();
    if (Status s = check_class(*backend.value(), hello); !s.ok()) return s.error();
    hello.role = "segment";
    hello.equality_class = backend.value()->equality_class();
    hello.model_fingerprint = std::to_string(file.fingerprint());
    hello.dim = static_cast<std::uint32_t>(file.config().dim);
    if (hello.last_layer == 0) hello.first_layer = static_cast<std::uint32_t>(spec.layers.first);
    hello.last_layer = static_cast<std::uint32_t>(spec.layers.last);
    auto actor = std::make_unique<SegmentActor>(std::move(plan), *backend.value());
    return HostedActor{spec.id, std::move(backend).value(), std::move(actor)};
}

/// The search of a draft has found another set.
void tell_set(const SkipSearch& search) {
    spdlog::info("drafts without {} of {} sub-layers from now on: {}; matchness {:.2f}, {} trials",
                 search.best().count(), 2 * search.best().layers(), search.best().text(),
                 search.matchness(), search.trials());
}

/// Draft, or Correct beside it. Draft alone grows the whole tree.
std::unique_ptr<Actor> draft_or_correct(const StageAssignment& a,
                                        const StageSpec& spec,
                                        int vocab_size,
                                        DraftTools tools) {
    DraftPlan plan{.first_segment = StageId{1},
                   .verifier = stage_id(a.segments),
                   .vocab_size = vocab_size,
                   .growth = a.draft.growth,
                   .shares_cores = a.shares_cores && !spec.device.gpu.has_value()};
    if (a.candidate_stage != 0) plan.exit = stage_id(a.candidate_stage);
    const bool both = a.draft_stage != 0 && a.correct_stage != 0;
    if (!both) return std::make_unique<DraftActor>(plan, std::move(tools));
    if (spec.role == StageRole::Draft)
        return std::make_unique<DraftActor>(plan, std::move(tools), stage_id(a.correct_stage));
    return std::make_unique<CorrectActor>(plan, std::move(tools), stage_id(a.draft_stage));
}

Result<HostedActor> make_draft(const ModelFile& target,
                               const StageAssignment& assignment,
                               const StageSpec& spec,
                               const BackendMaker& make,
                               control::Hello& hello) {
    DraftConfig config = assignment.draft;
    // Two sources that observe would use the same names for rows of their own.
    if (spec.role == StageRole::Correct) config.observe_nothing();
    DraftTools tools;
    tools.grammars = lazy_grammar_loader(assignment.model);
    tools.grammar_use = config.grammar;
    Result<DraftSourceFactory> source = draft_source(config, target.tokenizer());
    if (!source) return source.error();
    tools.source = std::move(source).value();
    tools.phrases = config.phrase_options();
    if (tools.phrases && config.pool == PhrasePoolOf::Process)
        tools.phrase_pool = tools.phrases->make_pool();
    const int vocab_size = target.config().vocab_size;
    std::unique_ptr<Backend> backend;
    if (config.computes()) {
        Result<DraftBackend> plan =
            plan_draft_backend(config, assignment.parts, target, base_options(assignment, spec));
        if (!plan) return plan.error();
        Result<std::unique_ptr<Backend>> made =
            load(plan.value().file(target), plan.value().options, spec, make, hello);
        if (!made) return made.error();
        backend = std::move(made).value();
        tools.model = std::make_unique<DraftModel>(
            *backend, DraftModelOptions{.head = plan.value().head,
                                        .vocab_size = vocab_size,
                                        .shared_tokens = plan.value().shared_tokens,
                                        .rows_max = spec.rows_max,
                                        .skip = plan.value().skip,
                                        .whole_text = plan.value().whole_text,
                                        .target_features = spec.role == StageRole::Draft &&
                                                           config.reads_features()});
        tools.programme = plan.value().programme;
        tools.search = std::move(plan.value().search);
        tools.on_set = tell_set;
    }
    auto actor = draft_or_correct(assignment, spec, vocab_size, std::move(tools));
    return HostedActor{spec.id, std::move(backend), std::move(actor)};
}

}  // namespace

BackendMaker real_backends() {
    return [](const ModelFile& file, const CpuOptions& options, const StageSpec& spec) {
        return make_backend(file, options, spec.device);
    };
}

Result<std::vector<HostedActor>> make_stage_actors(const StageAssignment& assignment,
                                                   control::Hello& hello,
                                                   const BackendMaker& make) {
    const Result<ModelFile> file = open_named_model(assignment.model);
    if (!file) return file.error();
    if (hello.role.empty()) hello.role = "draft";
    hello.vocab_size = static_cast<std::uint32_t>(file.value().config().vocab_size);
    std::vector<HostedActor> hosted;
    for (const StageSpec& spec : assignment.stages) {
        Result<HostedActor> made = spec.role == StageRole::Segment
                                       ? make_segment(file.value(), assignment, spec, make, hello)
                                       : make_draft(file.value(), assignment, spec, make, hello);
        if (!made) return made.error();
        hosted.push_back(std::move(made).value());
    }
    return hosted;
}

}  // namespace paceline
