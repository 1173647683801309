#include "launch/placement/stage_sizes.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <functional>

#include "launch/load/load_model.hpp"
#include "launch/load/stored_types.hpp"
#include "model/kv_layout.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kKvPagesMax = (std::uint64_t{1} << 30) / kKvPageSlots;

/// The context of every request begins with a page of its own, and may speculate beyond its end.
std::int32_t slots_for(Position context, int requests) {
    if (requests == 1) return context + kSpareSlots;
    return requests * (pages_for(context) * kKvPageSlots + kSpareSlots);
}

}  // namespace

bool drafts_share_kv(const Placement& placement, const ModelOptions& options) {
    std::vector<KvType> types;
    for (const PlacedStage& stage : placement.stages) {
        if (stage.role != StageRole::Segment) types.push_back(kv_type(options, stage.device));
    }
    return std::adjacent_find(types.begin(), types.end(), std::not_equal_to<>{}) == types.end();
}

StageSizes::StageSizes(const ModelFile& file,
                       const ModelOptions& options,
                       const PipelineConfig& config)
    : file_{&file}, options_{options}, config_{&config} {}

Result<StageSizes> StageSizes::open(const ModelFile& file,
                                    const ModelOptions& options,
                                    const ResolvedConfig& pipeline,
                                    const KvSize& kv) {
    const PipelineConfig& config = pipeline.config;
    const PartFiles& files = pipeline.parts.files;
    StageSizes sizes{file, options, config};
    if (Status sized = sizes.size_caches(kv); !sized) return sized.error();
    if (config.self_draft) {
        Result<SelfDraftPlan> self = plan_self_draft(*config.self_draft, files, file);
        if (!self) return self.error();
        sizes.self_ = std::move(self).value();
        sizes.scratch_slots_ = scratch_slots(*config.self_draft, file.config().layers);
    }
    sizes.backend_ = cpu_options(options, ThreadPlan{}, sizes.kv_slots());
    if (config.draft && config.draft->computes()) {
        Result<DraftBackend> planned =
            plan_draft_backend(*config.draft, files, file, sizes.backend_);
        if (!planned) return planned.error();
        sizes.draft_ = std::move(planned).value();
    }
    if (config.exit) {
        Result<ExitParts> opened = open_exit_parts(*config.exit, files, file);
        if (!opened) return opened.error();
        sizes.parts_ = std::move(opened).value();
    }
    return sizes;
}

Status StageSizes::size_caches(const KvSize& kv) {
    context_ = context_of(options_, file_->config());
    text_slots_ = slots_for(context_, kv.contexts);
    if (kv.bytes == 0) return {};
    const std::uint64_t page = page_bytes();
    const auto pages = std::min<std::uint64_t>(kv.bytes / page, kKvPagesMax);
    text_slots_ = static_cast<std::int32_t>(pages) * kKvPageSlots;
    const Position fits = std::max(text_slots_ - kKvPageSlots, 0);  // a page for candidates
    if (fits >= context_) return {};
    if (options_.context > 0 || fits < kKvPageSlots) {
        return Error{Errc::BadArgument,
                     fmt::format("--kv-memory: {} bytes are room for {} tokens of this model, {} "
                                 "bytes each; one request may have {} (--context)",
                                 kv.bytes, fits, page / kKvPageSlots, context_)};
    }
    context_ = fits;
    return {};
}

std::uint64_t StageSizes::page_bytes() const {
    const ModelConfig& model = file_->config();
    return kv_bytes_per_slot(model, kv_type(options_, device_of(options_))) *
           static_cast<std::uint64_t>(model.layers) * kKvPageSlots;
}

std::vector<MemoryNeed> StageSizes::needs(const Placement& placement) const {
    return plan_stages(*file_, backend_, placement, config_->exit, parts_, draft_,
                       kv_type(options_, Device{0}), self_);
}

Status StageSizes::check_groups(const PipelineConfig& config) const {
    for (const StageConfig& stage : config.stages) {
        const int gpus = std::max(stage.tensor, static_cast<int>(stage.device.gpus().size()));
        if (gpus < 2 || (!is_segment(stage) && !draft_)) continue;
        const ModelFile& model = is_segment(stage) ? *file_ : draft_->file(*file_);
        const int heads = model.config().kv_heads;
        if (gpus <= heads) continue;
        return Error{Errc::BadArgument,
                     fmt::format("{}: [[stage]] \"{}\": {}: {} GPUs, but {} has {} KV heads; at "
                                 "most {} GPUs share the stage",
                                 config.file, stage.name,
                                 stage.device.others.empty()
                                     ? fmt::format("tensor = {}", stage.tensor)
                                     : fmt::format("device = \"{}\"", to_text(stage.device)),
                                 gpus, visible(model.path(), kLineShownBytesMax), heads, heads)};
    }
    return {};
}

std::string StageSizes::rounded(const Placement& placement) const {
    const auto line = [&](const ModelFile& file, const Device& device) {
        const std::string text = rounded_types_text(file, backend_.dtype, device);
        return text.empty() ? text : visible(file.path() + ": " + text, kLineShownBytesMax) + "\n";
    };
    // A GPU rounds whatever a CPU does.
    Device of_target;
    for (const PlacedStage& stage : placement.stages) {
        if (stage.role == StageRole::Segment && stage.device.gpu) of_target = stage.device;
    }
    std::string text = line(*file_, of_target);
    if (draft_ && draft_->own && placement.draft())
        text += line(draft_->file(*file_), placement.stage(*placement.draft()).device);
    return text;
}

EdgeSizes StageSizes::edges(const Placement& placement) const {
    EdgeSizes sizes{.dim = file_->config().dim};
    if (draft_ && drafts_share_kv(placement, options_))
        sizes.draft_kv_row_bytes = kv_row_bytes(*draft_, *file_);
    if (draft_ && draft_->options.eagle) sizes.feature_states = draft_->options.eagle->states();
    return sizes;
}

}  // namespace paceline
