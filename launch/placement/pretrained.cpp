#include "launch/placement/pretrained.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "actors/decoding/guesses/datastore.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/load/lora_part.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

struct PartName {
    const char* file;
    PartKind kind;
    std::string FoundParts::*place;
};
constexpr PartName kNames[] = {
    {"draft-small.safetensors", PartKind::Draft, &FoundParts::draft_small},
    {"draft-deep.safetensors", PartKind::Draft, &FoundParts::draft_deep},
    {"eagle.safetensors", PartKind::Eagle, &FoundParts::eagle},
    {"heads.safetensors", PartKind::Heads, &FoundParts::heads},
    {"medusa.safetensors", PartKind::Heads, &FoundParts::medusa},
    {"adapter.safetensors", PartKind::Adapter, &FoundParts::adapter},
    {"probe.safetensors", PartKind::Probe, &FoundParts::probe},
};

std::string names_text() {
    std::string text;
    for (const PartName& name : kNames) text += (text.empty() ? "" : ", ") + std::string{name.file};
    return text;
}

Status check_kind(const PartCard& card, PartKind kind, const std::string& path) {
    if (card.kind == kind) return {};
    return Error{Errc::BadArgument, path + ": paceline.part is \"" + name_of(card.kind) +
                                        "\", under this name it must be \"" + name_of(kind) + "\""};
}

/// Whether the file is there.
bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

Result<FoundParts> named_parts(const std::string& folder, const ModelFile& target) {
    FoundParts found;
    bool any = target.lora() != nullptr && is_there(fs::path{folder} / kEarlyExitFile);
    for (const PartName& name : kNames) {
        const fs::path path = fs::path{folder} / name.file;
        if (!is_there(path)) continue;
        const Result<PartCard> card = open_card(path.string());
        if (!card) return card.error();
        if (Status s = check_kind(card.value(), name.kind, path.string()); !s) return s.error();
        const bool plain = card.value().target == target.plain_fingerprint();
        // Probes name the plain target and the LoRA that they are for: open_probe_part().
        if (target.lora() != nullptr && plain && name.kind != PartKind::Probe) {
            found.omitted.push_back(path.string() + " was made for the model without " +
                                    target.lora()->path);
            any = true;
            continue;
        }
        const bool of_lora = plain && name.kind == PartKind::Probe;
        if (Status s = check_target(card.value(), path.string(), target); !s && !of_lora)
            return s.error();
        found.*name.place = path.string();
        any = true;
    }
    if (any) return found;
    return Error{Errc::BadFile,
                 "--parts " + folder + ": there is none of " + names_text() + " in it"};
}

/// Takes from `folder` what is this target's and has not been found yet.
void add_found(const std::string& folder, const ModelFile& target, FoundParts& found) {
    for (const PartName& name : kNames) {
        const fs::path path = fs::path{folder} / name.file;
        if (!(found.*name.place).empty() || !is_there(path)) continue;
        const Result<PartCard> card = open_card(path.string());
        if (!card) {
            found.omitted.push_back(card.error().what);
            continue;
        }
        const bool of_lora =
            name.kind == PartKind::Probe && card.value().target == target.plain_fingerprint();
        if (card.value().target != target.fingerprint() && !of_lora) continue;
        if (Status s = check_kind(card.value(), name.kind, path.string()); !s) {
            found.omitted.push_back(s.error().what);
            continue;
        }
        found.*name.place = path.string();
    }
}

/// The file of a trained draft of the wanted size, else of the other one.
const std::string& draft_file(DraftSize size, const FoundParts& found) {
    const bool small = size == DraftSize::Small;
    const std::string& wanted = small ? found.draft_small : found.draft_deep;
    return !wanted.empty() ? wanted : small ? found.draft_deep : found.draft_small;
}

Status resolve_draft(ResolvedConfig& resolved,
                     const FoundParts& found,
                     bool use_named,
                     const ModelFile& target) {
    DraftConfig& draft = *resolved.config.draft;
    UsedParts& parts = resolved.parts;
    const bool named = use_named && !draft.model_file.empty();
    const bool eagle = draft.model == DraftModelKind::Eagle;
    parts.files.draft = named   ? draft.model_file
                        : eagle ? found.eagle
                                : draft_file(draft.size, found);
    if (parts.files.draft.empty()) {
        if (eagle && !draft.stand_in_given) {
            return Error{Errc::BadArgument,
                         resolved.config.file + ": [draft] source = \"" + source_text(draft) +
                             "\": there is no eagle.safetensors for " + target.path() +
                             "; name one with part, or what drafts instead with stand_in"};
        }
        draft.use_stand_in();
        parts.draft_missing = true;
        return {};
    }
    if (eagle) {
        const Result<EaglePart> part = open_eagle_part(parts.files.draft, target);
        if (!part) return part.error();
        const std::vector<int>& layers = part.value().spec.layers;
        if (!layers.empty() && resolved.config.segments() > 1) {
            return Error{Errc::BadArgument,
                         resolved.config.file + ": [draft] source = \"" + source_text(draft) +
                             "\": " + parts.files.draft + " reads states after layer " +
                             std::to_string(layers.front()) + "; give the target one segment"};
        }
        parts.draft_tokens = static_cast<int>(part.value().tokens.size());
        parts.draft_layers = 1;
        return {};
    }
    const Result<DraftPart> part = open_draft_part(parts.files.draft, target);
    if (!part) return part.error();
    parts.draft_tokens = static_cast<int>(part.value().tokens.size());
    parts.draft_layers = part.value().file.config().layers;
    return {};
}

/// `part` of [exit].
Status use_named_part(const ExitConfig& exit, const std::string& file, PartFiles& files) {
    const Result<PartCard> card = open_card(exit.part);
    if (!card) return card.error();
    const bool adapter = exit.head == ExitHead::Adapter;
    const PartKind wanted = adapter ? PartKind::Adapter : PartKind::Heads;
    if (card.value().kind != wanted) {
        return Error{Errc::BadArgument, file + ": [exit] part = \"" + exit.part +
                                            "\" is a part \"" + name_of(card.value().kind) +
                                            "\", wanted is \"" + name_of(wanted) + "\""};
    }
    const bool residual = exit.ahead_block == AheadBlock::Residual;
    (adapter ? files.adapter : residual ? files.ahead : files.heads) = exit.part;
    return {};
}

Status resolve_exit(ResolvedConfig& resolved,
                    const FoundParts& found,
                    bool use_named,
                    const ModelFile& target) {
    ExitConfig& exit = *resolved.config.exit;
    UsedParts& used = resolved.parts;
    used.files.heads = found.heads;
    used.files.adapter = found.adapter;
    if (exit.ahead_block == AheadBlock::Residual) used.files.ahead = found.medusa;
    if (use_named && !exit.part.empty()) {
        if (Status s = use_named_part(exit, resolved.config.file, used.files); !s) return s;
    }
    used.ahead_missing = exit.ahead_block == AheadBlock::Residual && used.files.ahead.empty();
    if (used.ahead_missing) exit.use_stand_in();
    if (exit.ahead_tree == AheadTree::Fixed && look_ahead_file(exit, used.files).empty())
        exit.ahead_tree = AheadTree::Product;  // of random heads
    const Result<ExitParts> parts = open_exit_parts(exit, used.files, target);
    if (!parts) return parts.error();
    if (parts.value().heads) {
        for (const auto& [layer, transform] : parts.value().heads->exits)
            used.head_layers.push_back(layer);
        used.exit_tokens = static_cast<int>(parts.value().heads->tokens.size());
    }
    if (const HeadsPart* ahead = parts.value().looking_ahead(exit)) {
        used.ahead_heads = static_cast<int>(ahead->ahead.size());
        used.exit_tokens = static_cast<int>(ahead->tokens.size());
        if (exit.ahead_tree == AheadTree::Fixed) {
            // Its tree has no node of a head that the part has not.
            exit.ahead = std::min(exit.ahead, used.ahead_heads);
            used.ahead_nodes = static_cast<int>(ahead_tree_of(exit, *ahead).size());
        }
    }
    if (!parts.value().adapter) return {};
    for (const auto& [layer, spec] : parts.value().adapter->adapters) {
        used.adapter_layers.push_back(layer);
        used.exit_tokens = static_cast<int>(spec.tokens.size());
    }
    return {};
}

bool exits_early(const PipelineConfig& config) {
    return config.self_draft && config.self_draft->source == SelfDraftSource::Exit;
}

void resolve_self_draft(const SelfDraftConfig& self, const FoundParts& found, PartFiles& files) {
    if (self.head == SelfDraftHead::Adapter) files.adapter = found.adapter;
    const bool trained = self.head == SelfDraftHead::Adapter && files.adapter.empty();
    if (self.head == SelfDraftHead::Trained || trained) files.heads = found.heads;
    if (self.probe) files.probe = found.probe;
}

/// A datastore that cannot be used is an error before anything is loaded.
Status resolve_datastore(ResolvedConfig& resolved, const ModelFile& target) {
    DraftConfig& draft = *resolved.config.draft;
    if (draft.datastore.empty()) {
        draft.leave_out_datastore();
        resolved.parts.store_missing = true;
        resolved.parts.omitted.push_back("[draft] datastore: " + resolved.config.file +
                                         " names no file; the source is \"" + source_text(draft) +
                                         "\"");
        return {};
    }
    const Result<Datastore> store = Datastore::open(draft.datastore, target.tokenizer());
    if (store) return {};
    return Error{store.error().code, resolved.config.file + ": [draft] datastore = \"" +
                                         draft.datastore + "\": " + store.error().what};
}

}  // namespace

std::vector<std::string> files_of(const FoundParts& found) {
    std::vector<std::string> files;
    for (const PartName& name : kNames) {
        if (!(found.*name.place).empty()) files.push_back(found.*name.place);
    }
    return files;
}

Result<FoundParts> find_parts(const PartsSearch& search, const ModelFile& target) {
    if (search.option == kNoParts) return FoundParts{};
    if (!search.option.empty()) return named_parts(search.option, target);
    FoundParts found;
    for (const std::string& folder : search.folders) add_found(folder, target, found);
    return found;
}

Result<ResolvedConfig> use_parts(PipelineConfig config,
                                 const PartsSearch& search,
                                 const ModelFile& target) {
    ResolvedConfig resolved{.config = std::move(config)};
    const PipelineConfig& written = resolved.config;
    UsedParts& parts = resolved.parts;
    if (written.draft && written.draft->model == DraftModelKind::File) {
        Result<std::string> path = find_model(written.draft->model_file, search.hub_cache);
        if (!path) return path.error();
        parts.files.draft = std::move(path).value();
    }
    if (written.draft && written.draft->guess == DraftGuess::Datastore) {
        if (Status s = resolve_datastore(resolved, target); !s.ok()) return s.error();
    }
    const bool use_named = search.option != kNoParts;
    const bool trained = written.draft && written.draft->is_part();
    if (!trained && !written.exit && !exits_early(written)) {
        if (!search.option.empty() && use_named) {
            parts.omitted.push_back("--parts " + search.option + ": " + written.file +
                                    " has neither a trained draft nor an exit");
        }
        return resolved;
    }
    Result<FoundParts> found = find_parts(search, target);
    if (!found) return found.error();
    const std::vector<std::string>& omitted = found.value().omitted;
    parts.omitted.insert(parts.omitted.end(), omitted.begin(), omitted.end());
    Status s;
    if (trained) s = resolve_draft(resolved, found.value(), use_named, target);
    if (s.ok() && exits_early(written))
        resolve_self_draft(*written.self_draft, found.value(), parts.files);
    if (s.ok() && written.exit) s = resolve_exit(resolved, found.value(), use_named, target);
    if (!s.ok()) return s.error();
    return resolved;
}

}  // namespace paceline
