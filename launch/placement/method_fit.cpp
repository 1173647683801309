#include "launch/placement/method_fit.hpp"

#include "launch/config/methods.hpp"
#include "launch/placement/stage_sizes.hpp"

namespace paceline {
namespace {

struct Seen {
    bool trained = false;
    bool missing = false;
};

void see_exits(const ExitConfig& exit, const Placement& placement, Seen& seen) {
    const bool asks = exit.head == ExitHead::Trained || exit.head == ExitHead::Adapter;
    for (const StageId id : placement.exits()) {
        const ExitHead head = exit.head_behind(placement.stage(id).layers.last);
        if (head == ExitHead::Trained || head == ExitHead::Adapter) {
            seen.trained = true;
        } else if (asks) {
            seen.missing = true;
        }
    }
    if (exit.head == ExitHead::Random || exit.ahead == 0) return;
    (exit.ahead_trained > 0 ? seen.trained : seen.missing) = true;
    if (exit.ahead_trained < exit.ahead) seen.missing = true;
}

MethodFit fit_of(const Method& method, const ModelFile& file, const PartsSearch& search) {
    MethodFit fit{.name = method.name};
    const auto refuse = [&fit](const Error& error) {
        fit.refusal = error.what;
        return fit;
    };
    Result<PipelineConfig> config = method_config(method.name);
    if (!config) return refuse(config.error());
    if (Status s = use_parts(config.value(), search, file); !s) return refuse(s.error());
    const Result<Placement> placement = place(config.value(), file.config().layers, {0});
    if (!placement) return refuse(placement.error());
    if (const auto sizes = StageSizes::open(file, ModelOptions{}, config.value(), 1); !sizes)
        return refuse(sizes.error());
    fit.parts = parts_use(config.value(), placement.value());
    return fit;
}

}  // namespace

PartsUse parts_use(const PipelineConfig& config, const Placement& placement) {
    Seen seen;
    if (config.draft) {
        seen.missing = config.draft->part_missing;
        seen.trained = config.draft->model == DraftModelKind::Trained;
    }
    if (config.self_draft && config.self_draft->source == SelfDraftSource::Exit &&
        config.self_draft->head == SelfDraftHead::Trained) {
        (config.self_draft->heads_file.empty() ? seen.missing : seen.trained) = true;
    }
    if (config.exit) see_exits(*config.exit, placement, seen);
    if (seen.missing) return PartsUse::StandIns;
    return seen.trained ? PartsUse::Trained : PartsUse::None;
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
