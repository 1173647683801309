// Trained parts: what was trained around a frozen target, in files of their own
// (docs/trained-parts.md), opened for that target.
//
// Each function refuses a part of another target, naming both fingerprints. What is returned has
// been checked against the target's configuration. Values own what they hold, but for the
// model file of a DraftPart or EaglePart, which borrows embedding, head and tokenizer: its target
// must outlive it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/adapter_spec.hpp"
#include "model/ahead_heads.hpp"
#include "model/eagle_spec.hpp"
#include "model/sampling/probe.hpp"
#include "model/weights/model_file.hpp"
#include "model/weights/part_reader.hpp"

namespace paceline {

/// A part of which only the card has been read.
struct OpenedPart {
    SafetensorsFile file;
    PartCard card;
};

struct DraftPart {
    PartCard card;
    ModelFile file;                     // layers and final norm of its own; as wide as the target
    std::vector<TokenId> tokens;        // the short list of its head
    std::vector<float> transform = {};  // T [dim, dim], logits = E norm(T h); empty: the identity
};

struct EaglePart {
    PartCard card;
    ModelFile file;               // as DraftPart's, of one layer
    std::vector<TokenId> tokens;  // the short list of its head
    EagleSpec spec;
};

struct HeadsPart {
    PartCard card;
    std::map<int, std::vector<float>> exits;    // T [dim, dim] after so many layers
    std::vector<std::vector<float>> ahead;      // T of the last layer: 1, 2, ... tokens further on
    HeadBlock ahead_block = HeadBlock::Linear;  // of `ahead`
    std::vector<AheadNode> ahead_tree;          // no deeper than `ahead`; empty: the file has none
    std::vector<TokenId> tokens;
    bool norm_first = true;  // as HeadSpec's
};

struct AdapterPart {
    PartCard card;
    std::map<int, AdapterSpec> adapters;  // after so many layers
};

struct ProbePart {
    PartCard card;
    std::vector<Probe> probes;  // each of another exit, head or mode

    /// nullptr: there is none for that.
    [[nodiscard]] const Probe* find(int layer, ProbeHead head, ProbeMode mode) const;
};

/// What a file says of itself, without reading its tensors. Errors: those of
/// SafetensorsFile::open() and read_card().
[[nodiscard]] Result<PartCard> open_card(const std::string& path);

/// Errors: BadArgument with both fingerprints.
[[nodiscard]] Status check_target(const PartCard& card,
                                  const std::string& path,
                                  const ModelFile& target);

/// The first 16 digits of the SHA-256 of a file: how one part names another. Errors: those of
/// MappedFile::open().
[[nodiscard]] Result<std::string> file_digest(const std::string& path);

/// For the readers of one kind. Errors: those of open_card() and check_target(); BadArgument for a
/// part of another kind.
[[nodiscard]] Result<OpenedPart> open_part(const std::string& path,
                                           PartKind kind,
                                           const ModelFile& target);

/// Errors: those of open_part(); BadFile naming file, tensor or key, and value.
[[nodiscard]] Result<DraftPart> open_draft_part(const std::string& path, const ModelFile& target);
[[nodiscard]] Result<EaglePart> open_eagle_part(const std::string& path, const ModelFile& target);
[[nodiscard]] Result<HeadsPart> open_heads_part(const std::string& path, const ModelFile& target);
[[nodiscard]] Result<AdapterPart> open_adapter_part(const std::string& path,
                                                    const ModelFile& target);
/// A file may have probes for a target (its own heads) and for that target with a LoRA merged (the
/// logit lens): it then names the plain target, and the LoRA by file_digest(). `target` gets those
/// that are for it. Also errors: BadArgument with both digests if they are for another LoRA, or if
/// none is for `target`.
[[nodiscard]] Result<ProbePart> open_probe_part(const std::string& path, const ModelFile& target);

}  // namespace paceline
