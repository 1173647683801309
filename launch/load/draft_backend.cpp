#include "launch/load/draft_backend.hpp"

#include <fmt/core.h>
#include <numeric>

#include "ipc/base/check.hpp"
#include "launch/base/shapes.hpp"
#include "launch/load/packed_cache.hpp"
#include "launch/load/search_plan.hpp"
#include "launch/load/shared_vocabulary.hpp"
#include "model/kv_layers.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {

namespace {

/// Beside a shape a draft may be one too: there is no text whose tokens could differ.
Status open_draft_model(const std::string& path, const ModelFile& target, DraftBackend& plan) {
    Result<ModelFile> own = is_synthetic(target) ? open_shape(path) : ModelFile::open(path);
    if (!own) return own.error();
    if (!is_synthetic(target)) {
        // Of Phi-3: the rope of the texts that the target was opened for.
        own.value().choose_rope(target.config().context_length);
        const Result<int> shared = shared_vocabulary(own.value(), target);
        if (!shared) return shared.error();
        plan.shared_tokens = shared.value();
    }
    plan.own = std::move(own).value();
    return {};
}

}  // namespace

Result<SkipSet> skip_set_of(const DraftConfig& draft, int layers) {
    SkipSet set{layers};
    if (draft.model == DraftModelKind::FirstLayers) {
        for (int layer = draft.layers_of(layers); layer < layers; ++layer) set.skip_layer(layer);
        return set;
    }
    if (draft.model != DraftModelKind::SkipLayers) return set;
    Result<SkipSet> found = draft.skip.set_of(layers, "[draft]");
    if (!found || found.value().count() < 2 * layers) return found;
    return Error{Errc::BadArgument,
                 fmt::format("[draft] skip = \"{}\" leaves none of the model's {} layers",
                             draft.skip.set, layers)};
}

namespace {

/// The layers that some kept sub-layer is in, from the first one of the model on.
int layers_needed(const SkipSet& set) {
    int sublayer = 2 * set.layers() - 1;
    while (sublayer > 0 && set.skips(sublayer)) --sublayer;
    return sublayer / 2 + 1;
}

}  // namespace

std::vector<TokenId> short_list(int count, int vocab_size) {
    if (count >= vocab_size) return {};
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), TokenId{0});
    return tokens;
}

Result<DraftBackend> plan_draft_backend(const DraftConfig& draft,
                                        const PartFiles& files,
                                        const ModelFile& target,
                                        const CpuOptions& target_options) {
    PACE_CHECK(draft.computes(), "a draft that has a model");
    DraftBackend plan;
    plan.options = target_options;
    plan.options.heads.clear();
    plan.options.adapter.reset();
    plan.options.eagle.reset();
    HeadSpec head;
    if (draft.model == DraftModelKind::File) {
        if (Status s = open_draft_model(files.draft, target, plan); !s) return s.error();
        use_named_copy(*plan.own, name(target_options.dtype), files.draft_copy);
    }
    if (draft.model == DraftModelKind::Trained) {
        PACE_CHECK(!files.draft.empty(), "use_parts() has found the draft's part");
        Result<DraftPart> part = open_draft_part(files.draft, target);
        if (!part) return part.error();
        plan.own = std::move(part.value().file);
        head = {.transform = std::move(part.value().transform),
                .tokens = std::move(part.value().tokens),
                .norm_first = false};
    }
    if (draft.model == DraftModelKind::Eagle) {
        PACE_CHECK(!files.draft.empty(), "use_parts() has found the draft's part");
        Result<EaglePart> part = open_eagle_part(files.draft, target);
        if (!part) return part.error();
        plan.own = std::move(part.value().file);
        plan.options.eagle = std::move(part.value().spec);
        head.tokens = std::move(part.value().tokens);
    }
    const ModelConfig& config = plan.file(target).config();
    plan.options.first_layer = 0;
    plan.options.kv_slots = target_options.kv_slots + kDraftSpareSlots;
    Result<SkipSet> skip = skip_set_of(draft, config.layers);
    if (!skip) return skip.error();
    plan.skip = std::move(skip).value();
    plan.whole_text = draft.model == DraftModelKind::SkipLayers && draft.whole_text;
    plan.options.last_layer = plan.whole_text ? config.layers : layers_needed(plan.skip);
    if (!plan.whole_text) plan.options.skipped = plan.skip.mask();
    if (draft.is_tapped()) {
        plan.programme = LayerSkipDpOptions{.layers = config.layers,
                                            .skip = plan.skip.count() / 2,
                                            .keep_first = draft.skip.keep_first,
                                            .keep_last = draft.skip.keep_last};
        plan.options.kv_slots += pages_for(plan.programme->skip + 1) * kKvPageSlots;
    }
    if (draft.searches()) {
        Result<SearchTrialOptions> search =
            plan_search(draft.skip, draft.search, config.layers, "[draft]");
        if (!search) return search.error();
        plan.search = std::move(search).value();
        plan.options.kv_slots += pages_for(plan.search->scratch_slots()) * kKvPageSlots;
    }
    if (head.tokens.empty()) head.tokens = short_list(draft.short_list, config.vocab_size);
    plan.options.final_head = head.tokens.empty() && head.transform.empty();
    if (!plan.options.final_head) {
        plan.options.heads.push_back(std::move(head));
        plan.head = HeadId{1};
    }
    return plan;
}

Status keep_draft_copy(ResolvedConfig& pipeline,
                       const ModelFile& target,
                       const ModelOptions& options,
                       const Environment& environment,
                       OpenOutput output) {
    const std::optional<DraftConfig>& draft = pipeline.config.draft;
    if (!draft || draft->model != DraftModelKind::File || is_synthetic(target)) return {};
    PartFiles& files = pipeline.parts.files;
    DraftBackend plan;
    if (Status s = open_draft_model(files.draft, target, plan); !s) return s;
    take_packed_copy(*plan.own, options, environment, output);
    files.draft_copy = plan.own->copy_path();
    return {};
}

std::uint64_t kv_row_bytes(const DraftBackend& draft, const ModelFile& target) {
    if (draft.options.eagle) return 0;  // keys without the features of their slots
    const KvLayers layers{draft.options.first_layer, draft.options.last_layer,
                          draft.options.skipped};
    return kv_bytes_per_slot(draft.file(target).config(), draft.options.kv) *
           static_cast<std::uint64_t>(layers.count());
}

}  // namespace paceline
