// DraftBackend: the model of a draft: which one, how large it is, and whether it fits the target.
//
// It is a file of its own, the first layers of the target, or a part that was trained for the
// target: a draft, or an EAGLE draft. A file of its own must have the target's tokens
// (shared_vocabulary.hpp). A trained part borrows embedding and head from the target's file, which
// must outlive it.
// Plain values and pure functions; opening reads the file.
#pragma once

#include <optional>

#include "actors/self_draft/layer_skip_dp.hpp"
#include "actors/self_draft/search_trials.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/config/draft_config.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/used_parts.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/skip_set.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct DraftBackend {
    std::optional<ModelFile> own = {};  // nothing: the target's file
    CpuOptions options = {};            // layers, KV slots, heads; not threads or cores
    HeadId head = HeadId::Final;
    SkipSet skip = {};                                 // sub-layers that candidates leave out,
    bool whole_text = false;                           // and the committed text does not
    std::optional<LayerSkipDpOptions> programme = {};  // `skip` is chosen anew,
    std::optional<SearchTrialOptions> search = {};     // or searched
    int shared_tokens = 0;  // of a file of its own: ids that it may propose; 0: all of the target's

    [[nodiscard]] const ModelFile& file(const ModelFile& target) const {
        return own ? *own : target;
    }
};

/// KV slots of a draft beyond the target's: for branches that the target never sees.
inline constexpr std::int32_t kDraftSpareSlots = 256;

/// `target_options` are a segment's: dtypes, instruction set, and `kv_slots` of the target.
/// Of a target that is a shape (--random), the draft's model is one too: a name, or a file of one.
/// Preconditions: draft.computes(); use_parts() has found `files`.
/// Errors: those of ModelFile::open(), shared_vocabulary(), open_draft_part(),
/// open_eagle_part() and plan_search().
[[nodiscard]] Result<DraftBackend> plan_draft_backend(const DraftConfig& draft,
                                                      const PartFiles& files,
                                                      const ModelFile& target,
                                                      const CpuOptions& target_options);

/// Sets the draft's copy, where its model is a folder and `options`, the target's, ask for packed
/// copies: the copy is made here, before the stages start. A LoRA of the target is none of the
/// draft. Errors: those of ModelFile::open() and shared_vocabulary().
[[nodiscard]] Status keep_draft_copy(ResolvedConfig& pipeline,
                                     const ModelFile& target,
                                     const ModelOptions& options,
                                     const Environment& environment,
                                     OpenOutput output);

/// The first `count` token ids of a vocabulary, for HeadSpec::tokens; 0: empty, which means all.
[[nodiscard]] std::vector<TokenId> short_list(int count, int vocab_size);

/// The sub-layers of a target of `layers` layers that `draft` leaves out.
/// Errors: BadArgument naming the key, for a set that does not fit the model or leaves nothing.
[[nodiscard]] Result<SkipSet> skip_set_of(const DraftConfig& draft, int layers);

/// Bytes of one position's keys and values over all layers of a draft, as they travel; 0: they do
/// not.
[[nodiscard]] std::uint64_t kv_row_bytes(const DraftBackend& draft, const ModelFile& target);

}  // namespace paceline
