#include "launch/load/self_draft_plan.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>

#include "launch/load/draft_backend.hpp"
#include "launch/load/search_plan.hpp"
#include "model/kv_layout.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {
namespace {

/// The set to begin with.
Result<SkipSet> first_set(const SkipConfig& skip, int layers) {
    Result<SkipSet> set = skip.set_of(layers, "[self_draft]");
    if (!set || set.value().count() > 0) return set;
    return Error{
        Errc::BadArgument,
        fmt::format("[self_draft] skip_ratio = {} leaves nothing to skip of {} layers, the "
                    "first {} and last {} of which are kept",
                    skip.ratio, layers, skip.keep_first, skip.keep_last)};
}

/// Layers that a programme skips.
int layers_skipped(const SkipConfig& skip, int layers) {
    return std::max(skip.count_of(layers), 1);
}

/// The head that was trained for the exit, or the exit that the target was trained for.
Status plan_head(const PartFiles& files, const ModelFile& target, SelfDraftPlan& plan) {
    if (files.heads.empty()) {
        const MergedLora* lora = target.lora();
        if (lora != nullptr && lora->exit > 0) plan.options.exit = lora->exit;
        return {};
    }
    Result<HeadsPart> part = open_heads_part(files.heads, target);
    if (!part) return part.error();
    const auto found = part.value().exits.find(plan.options.exit);
    if (found == part.value().exits.end()) return {};
    plan.final_head = false;
    plan.options.head = HeadId{1};
    plan.heads.push_back({.transform = found->second,
                          .tokens = part.value().tokens,
                          .norm_first = part.value().norm_first});
    return {};
}

/// The adapter that was trained for the exit; another exit's knows nothing of these states.
Status plan_adapter(const PartFiles& files, const ModelFile& target, SelfDraftPlan& plan) {
    Result<AdapterPart> part = open_adapter_part(files.adapter, target);
    if (!part) return part.error();
    const auto found = part.value().adapters.find(plan.options.exit);
    if (found == part.value().adapters.end()) {
        std::string layers;
        for (const auto& [layer, spec] : part.value().adapters)
            layers += fmt::format("{}{}", layers.empty() ? "" : ", ", layer);
        return Error{
            Errc::BadArgument,
            fmt::format("[self_draft] exit = {} with head = \"adapter\": {} has no adapter "
                        "after layer {}, it has one after {}",
                        plan.options.exit, files.adapter, plan.options.exit, layers)};
    }
    plan.final_head = false;
    plan.options.head = HeadId::Adapter;
    plan.options.adapter = true;
    plan.adapter = found->second;
    return {};
}

Status plan_probes(const PartFiles& files, const ModelFile& target, SelfDraftPlan& plan) {
    if (files.probe.empty()) {
        return Error{Errc::BadArgument,
                     "[self_draft] probe = true: there is no probe for this target "
                     "(docs/trained-parts.md)"};
    }
    Result<ProbePart> part = open_probe_part(files.probe, target);
    if (!part) return part.error();
    const ProbeHead head = plan.final_head ? ProbeHead::Lens : ProbeHead::Trained;
    const Probe* greedy = part.value().find(plan.options.exit, head, ProbeMode::Greedy);
    const Probe* sampled = part.value().find(plan.options.exit, head, ProbeMode::Sampled);
    if (greedy == nullptr || sampled == nullptr) {
        return Error{Errc::BadArgument,
                     fmt::format("[self_draft] probe = true: {} has no probes of exit {} with the "
                                 "head \"{}\"",
                                 files.probe, plan.options.exit, name_of(head))};
    }
    plan.options.probes = DraftProbes{.greedy = *greedy, .sampled = *sampled};
    return {};
}

Status plan_exit(const SelfDraftConfig& config,
                 const PartFiles& files,
                 const ModelFile& target,
                 SelfDraftPlan& plan) {
    const int layers = target.config().layers;
    if (config.exit >= layers) {
        return Error{Errc::BadArgument,
                     fmt::format("[self_draft] exit = {}: the target has {} layers, an exit comes "
                                 "after fewer",
                                 config.exit, layers)};
    }
    plan.options.exit = config.exit_of(layers);
    plan.final_head = true;
    const bool adapter = config.head == SelfDraftHead::Adapter && !files.adapter.empty();
    if (adapter) return plan_adapter(files, target, plan);
    if (config.head != SelfDraftHead::LogitLens) {
        if (Status trained = plan_head(files, target, plan); !trained) return trained;
    }
    return config.probe ? plan_probes(files, target, plan) : Status{};
}

Status plan_skip(const SelfDraftConfig& config, const ModelFile& target, SelfDraftPlan& plan) {
    const int layers = target.config().layers;
    SelfDraftOptions& options = plan.options;
    Result<SkipSet> set = first_set(config.skip, layers);
    if (!set) return set.error();
    options.skip = std::move(set).value();
    options.choice = config.skip.choose;
    options.interval = config.skip.interval;
    options.optimise_share = config.search.optimise_share;
    options.window = config.search.window;
    options.programme_skip = layers_skipped(config.skip, layers);
    options.programme_keep_first = config.skip.keep_first;
    options.programme_keep_last = config.skip.keep_last;
    if (config.tree != SelfDraftTree::None) options.tree.emplace();
    if (config.tree == SelfDraftTree::Code) options.tree->candidates = {3, 5, 8, 10};
    if (config.skip.choose != SkipChoice::Search) return {};
    Result<SearchTrialOptions> search =
        plan_search(config.skip, config.search, layers, "[self_draft]");
    if (!search) return search.error();
    options.search = search.value().search;
    options.state = std::move(search.value().state);
    options.save = std::move(search.value().save);
    return {};
}

/// Drafts are read by the target's own head: without the tokens that are not listed.
void plan_short_list(const SelfDraftConfig& config, const ModelFile& target, SelfDraftPlan& plan) {
    if (plan.options.head != HeadId::Final) return;
    std::vector<TokenId> tokens = short_list(config.short_list, target.config().vocab_size);
    if (tokens.empty()) return;
    plan.final_head = false;
    plan.options.head = HeadId{1};
    plan.heads.push_back({.tokens = std::move(tokens)});
}

}  // namespace

Result<SelfDraftPlan> plan_self_draft(const SelfDraftConfig& config,
                                      const PartFiles& files,
                                      const ModelFile& target) {
    SelfDraftPlan plan{.options = config.options};
    Status planned = config.source == SelfDraftSource::Exit ? plan_exit(config, files, target, plan)
                                                            : plan_skip(config, target, plan);
    plan_short_list(config, target, plan);
    if (planned.ok()) planned = validate(plan.options, target.config().layers);
    if (!planned.ok()) return planned.error();
    return plan;
}

Status check_first_segment(const SelfDraftOptions& options, int layers) {
    if (options.exit <= layers) return {};
    return Error{Errc::BadArgument,
                 fmt::format("[self_draft] exit = {}: the first segment has {} layers",
                             options.exit, layers)};
}

std::int32_t scratch_slots(const SelfDraftConfig& config, int layers) {
    SelfDraftOptions options;
    if (config.source == SelfDraftSource::Skip) options.choice = config.skip.choose;
    options.window = config.search.window;
    options.programme_skip = layers_skipped(config.skip, layers);
    return pages_for(options.scratch_slots()) * kKvPageSlots;
}

}  // namespace paceline
