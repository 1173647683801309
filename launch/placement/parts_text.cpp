// parts_text(): the printed list of the parts and stand-ins of a resolved configuration.

#include <algorithm>
#include <fmt/core.h>

#include "launch/load/exit_heads.hpp"
#include "launch/placement/pretrained.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

std::string joined(const std::vector<int>& layers) {
    std::string text;
    for (const int layer : layers) text += (text.empty() ? "" : ", ") + std::to_string(layer);
    return text;
}

std::string draft_text(const DraftConfig& draft, const UsedParts& parts) {
    if (draft.model == DraftModelKind::Trained) {
        return fmt::format("trained draft: {} layers, a head of {} tokens, {}\n",
                           parts.draft_layers, parts.draft_tokens, parts.files.draft);
    }
    if (draft.model == DraftModelKind::Eagle) {
        return fmt::format(
            "EAGLE draft: one layer over the target's states, a head of {} tokens, "
            "{}\n",
            parts.draft_tokens, parts.files.draft);
    }
    const std::string missing = parts.draft_missing ? "no trained draft for this model: " : "";
    if (draft.skips()) {
        const bool first = draft.model == DraftModelKind::FirstLayers;
        const std::string own =
            std::string{"the target's own "} +
            (first ? "first layers with its head" : "layers without some of them");
        if (missing.empty()) return "the draft is " + own + "\n";
        return missing + own + "; slower than with one (--draft-model FILE)\n";
    }
    if (draft.computes()) return "";
    const std::string without =
        missing.empty() ? ", without a model\n" : "; slower than with one (--draft-model FILE)\n";
    const std::string begin = missing.empty() ? "the draft " : missing;
    if (draft.guess == DraftGuess::Datastore) {
        return begin + (missing.empty() ? "is " : "") + "a store of other texts, " +
               draft.datastore + without;
    }
    if (draft.observes()) return begin + "guesses from the target's own tokens" + without;
    if (!missing.empty()) return missing + "prompt lookup" + without;
    return "the draft is prompt lookup, without a model (--draft-model FILE gives it one)\n";
}

std::string exits_text(const ExitConfig& exit, const UsedParts& parts, const Placement& placement) {
    std::vector<int> adapters;
    std::vector<int> heads;
    std::vector<int> others;
    for (const StageId id : placement.exits()) {
        const int layer = placement.stage(id).layers.last;
        const ExitHead head = parts.head_behind(layer, exit.head);
        if (head == ExitHead::Adapter) {
            adapters.push_back(layer);
        } else if (head == ExitHead::Trained) {
            heads.push_back(layer);
        } else {
            others.push_back(layer);
        }
    }
    std::string text;
    if (!adapters.empty()) {
        text += "trained adapter: exit after layer " + joined(adapters) + ", " +
                parts.files.adapter + "\n";
    }
    if (!heads.empty())
        text += "trained exit head: after layer " + joined(heads) + ", " + parts.files.heads + "\n";
    if (others.empty()) return text;
    if (exit.head == ExitHead::Random)
        return text + "the exit is a random head, which is right by chance only\n";
    const std::string behind = " after layer " + joined(others);
    if (exit.head == ExitHead::LogitLens)
        return text + "the exit" + behind + " is the target's own head as a logit lens\n";
    return text + "no trained exit for this model" + behind +
           ": the target's own head as a logit lens; slower than with one\n";
}

std::string ahead_text(const ExitConfig& exit, const UsedParts& parts) {
    const int trained = std::min(exit.ahead, parts.ahead_heads);
    std::string text;
    if (parts.ahead_missing)
        text += "no trained residual look-ahead heads for this model: those of stand_in\n";
    if (trained > 0) {
        const std::string tree =
            parts.ahead_nodes > 0 ? fmt::format(" with a tree of {}", parts.ahead_nodes) : "";
        text += fmt::format("trained look-ahead heads: {}{}, {}\n", trained, tree,
                            look_ahead_file(exit, parts.files));
    }
    if (trained < exit.ahead) {
        text += "no trained look-ahead heads for this model" +
                (trained > 0 ? fmt::format(" beyond {}", trained) : std::string{}) +
                ": random ones, which are right by chance only\n";
    }
    return text;
}

/// Of a target that drafts for itself, where an adapter is wanted.
std::string self_draft_text(const SelfDraftConfig& self,
                            const UsedParts& parts,
                            const Placement& placement) {
    if (self.source != SelfDraftSource::Exit || self.head != SelfDraftHead::Adapter) return "";
    if (parts.files.adapter.empty()) {
        return "no trained adapter for this model: the exit's head without one drafts; slower than "
               "with one\n";
    }
    const int layers = placement.stage(placement.verifier()).layers.last;
    return fmt::format("trained adapter: drafts after layer {}, {}\n", self.exit_of(layers),
                       parts.files.adapter);
}

}  // namespace

std::string parts_text(const ResolvedConfig& pipeline, const Placement& placement) {
    const auto& [config, parts] = pipeline;
    std::string text;
    if (config.draft) text += draft_text(*config.draft, parts);
    if (config.self_draft) text += self_draft_text(*config.self_draft, parts, placement);
    if (config.exit)
        text += exits_text(*config.exit, parts, placement) + ahead_text(*config.exit, parts);
    if (config.acceptance == AcceptanceRule::Unverified)
        text += "candidates are not verified: the text is not the target's (acceptance.rule)\n";
    for (const std::string& why : parts.omitted)
        text += "left out: " + visible(why, kLineShownBytesMax) + "\n";
    return visible_lines(text);  // paths are in it
}

}  // namespace paceline
