#include "launch/placement/method_fit.hpp"

#include <optional>
#include <utility>

#include "launch/config/methods.hpp"
#include "launch/placement/stage_sizes.hpp"

namespace paceline {
namespace {

struct Seen {
    bool trained = false;
    bool missing = false;
};

void see_exits(const ExitConfig& exit,
               const UsedParts& parts,
               const Placement& placement,
               Seen& seen) {
    const bool asks = exit.head == ExitHead::Trained || exit.head == ExitHead::Adapter;
    for (const StageId id : placement.exits()) {
        const ExitHead head = parts.head_behind(placement.stage(id).layers.last, exit.head);
        if (head == ExitHead::Trained || head == ExitHead::Adapter) {
            seen.trained = true;
        } else if (asks) {
            seen.missing = true;
        }
    }
    if (parts.ahead_missing) seen.missing = true;
    if (exit.head == ExitHead::Random || exit.ahead_block == AheadBlock::Random || exit.ahead == 0)
        return;
    (parts.ahead_heads > 0 ? seen.trained : seen.missing) = true;
    if (parts.ahead_heads < exit.ahead) seen.missing = true;
}

MethodFit fit_of(const Method& method, const ModelFile& file, const PartsSearch& search) {
    MethodFit fit{.name = method.name};
    const auto refuse = [&fit](const Error& error) {
        fit.refusal = error.what;
        return fit;
    };
    Result<PipelineConfig> config = method_config(method.name);
    if (!config) return refuse(config.error());
    const Result<ResolvedConfig> pipeline = use_parts(std::move(config).value(), search, file);
    if (!pipeline) return refuse(pipeline.error());
    const Result<Placement> placement = place(pipeline.value().config, file.config().layers, {0});
    if (!placement) return refuse(placement.error());
    if (const auto sizes = StageSizes::open(file, ModelOptions{}, pipeline.value(), {}); !sizes)
        return refuse(sizes.error());
    fit.parts = parts_use(pipeline.value(), placement.value());
    return fit;
}

}  // namespace

PartsUse parts_use(const ResolvedConfig& pipeline, const Placement& placement) {
    const auto& [config, parts] = pipeline;
    Seen seen;
    if (config.draft) {
        seen.missing = parts.draft_missing || parts.store_missing;
        seen.trained = config.draft->is_part();
    }
    if (config.self_draft && config.self_draft->source == SelfDraftSource::Exit &&
        config.self_draft->head != SelfDraftHead::LogitLens) {
        const bool adapter = config.self_draft->head == SelfDraftHead::Adapter;
        const std::string& part = adapter ? parts.files.adapter : parts.files.heads;
        (part.empty() ? seen.missing : seen.trained) = true;
    }
    if (config.exit) see_exits(*config.exit, parts, placement, seen);
    if (seen.missing) return PartsUse::StandIns;
    return seen.trained ? PartsUse::Trained : PartsUse::None;
}

bool lacks_own_part(const PipelineConfig& asked, const UsedParts& parts) {
    if (asked.draft && asked.draft->model == DraftModelKind::Eagle && parts.draft_missing)
        return true;
    const std::optional<SelfDraftConfig>& self = asked.self_draft;
    const bool adapter = self && self->head == SelfDraftHead::Adapter;
    return parts.store_missing || parts.ahead_missing || (adapter && parts.files.adapter.empty());
}

bool lacks_own_part(std::string_view method, const ModelFile& file, const PartsSearch& search) {
    const Result<PipelineConfig> asked = method_config(method);
    if (!asked) return true;
    const Result<ResolvedConfig> found = use_parts(asked.value(), search, file);
    return !found || lacks_own_part(asked.value(), found.value().parts);
}

std::function<bool(const std::string& method)> own_part_lacking(const ModelFile& file,
                                                                PartsSearch search) {
    return [&file, search = std::move(search)](const std::string& method) {
        return lacks_own_part(method, file, search);
    };
}

std::vector<MethodFit> method_fits(const ModelFile& file, const PartsSearch& search) {
    std::vector<MethodFit> fits;
    for (const Method& method : methods()) fits.push_back(fit_of(method, file, search));
    return fits;
}

std::string names_of(const std::vector<MethodFit>& fits, PartsUse parts) {
    std::string names;
    for (const MethodFit& fit : fits) {
        if (!fit.refusal.empty() || fit.parts != parts) continue;
        names += (names.empty() ? "" : ", ") + std::string{fit.name};
    }
    return names;
}

}  // namespace paceline
