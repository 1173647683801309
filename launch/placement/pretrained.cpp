#include "launch/placement/pretrained.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

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
    {"heads.safetensors", PartKind::Heads, &FoundParts::heads},
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

Status resolve_draft(DraftConfig& draft, const FoundParts& found, const ModelFile& target) {
    if (draft.model != DraftModelKind::Trained) return {};
    if (draft.model_file.empty()) draft.model_file = draft_file(draft.size, found);
    if (draft.model_file.empty()) {
        draft.use_stand_in();
        draft.part_missing = true;
        return {};
    }
    const Result<DraftPart> part = open_draft_part(draft.model_file, target);
    if (!part) return part.error();
    draft.part_tokens = static_cast<int>(part.value().tokens.size());
    draft.part_layers = part.value().file.config().layers;
    return {};
}

Status name_exit_part(ExitConfig& exit, const std::string& file) {
    const Result<PartCard> card = open_card(exit.part);
    if (!card) return card.error();
    const bool adapter = exit.head == ExitHead::Adapter;
    const PartKind wanted = adapter ? PartKind::Adapter : PartKind::Heads;
    if (card.value().kind != wanted) {
        return Error{Errc::BadArgument, file + ": [exit] part = \"" + exit.part +
                                            "\" is a part \"" + name_of(card.value().kind) +
                                            "\", wanted is \"" + name_of(wanted) + "\""};
    }
    (adapter ? exit.adapter_file : exit.heads_file) = exit.part;
    return {};
}

Status resolve_exit(ExitConfig& exit,
                    const std::string& file,
                    const FoundParts& found,
                    const ModelFile& target) {
    exit.heads_file = found.heads;
    exit.adapter_file = found.adapter;
    if (!exit.part.empty()) {
        if (Status s = name_exit_part(exit, file); !s) return s;
    }
    const Result<ExitParts> parts = open_exit_parts(exit, target);
    if (!parts) return parts.error();
    if (parts.value().heads) {
        for (const auto& [layer, transform] : parts.value().heads->exits)
            exit.head_layers.push_back(layer);
        exit.ahead_trained = static_cast<int>(parts.value().heads->ahead.size());
        exit.part_tokens = static_cast<int>(parts.value().heads->tokens.size());
    }
    if (!parts.value().adapter) return {};
    for (const auto& [layer, spec] : parts.value().adapter->adapters) {
        exit.adapter_layers.push_back(layer);
        exit.part_tokens = static_cast<int>(spec.tokens.size());
    }
    return {};
}

bool exits_early(const PipelineConfig& config) {
    return config.self_draft && config.self_draft->source == SelfDraftSource::Exit;
}

void resolve_self_draft(SelfDraftConfig& self, const FoundParts& found) {
    if (self.head == SelfDraftHead::Trained) self.heads_file = found.heads;
    if (self.probe) self.probe_file = found.probe;
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

Status use_parts(PipelineConfig& config, const PartsSearch& search, const ModelFile& target) {
    if (config.draft && config.draft->model == DraftModelKind::File) {
        Result<std::string> path = find_model(config.draft->model_file, search.hub_cache);
        if (!path) return path.error();
        config.draft->model_file = std::move(path).value();
    }
    if (search.option == kNoParts) {
        if (config.draft && config.draft->model == DraftModelKind::Trained)
            config.draft->model_file.clear();
        if (config.exit) config.exit->part.clear();
    }
    const bool trained = config.draft && config.draft->model == DraftModelKind::Trained;
    if (!trained && !config.exit && !exits_early(config)) {
        if (!search.option.empty() && search.option != kNoParts) {
            config.parts_omitted.push_back("--parts " + search.option + ": " + config.file +
                                           " has neither a trained draft nor an exit");
        }
        return {};
    }
    Result<FoundParts> found = find_parts(search, target);
    if (!found) return found.error();
    config.parts_omitted = std::move(found.value().omitted);
    if (config.draft) {
        if (Status s = resolve_draft(*config.draft, found.value(), target); !s) return s;
    }
    if (exits_early(config)) resolve_self_draft(*config.self_draft, found.value());
    return config.exit ? resolve_exit(*config.exit, config.file, found.value(), target) : Status{};
}

}  // namespace paceline
