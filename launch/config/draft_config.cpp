#include "launch/config/draft_config.hpp"

#include <algorithm>
#include <cmath>

#include "ipc/base/limits.hpp"

namespace paceline {

namespace {

constexpr int kAlternativesMax = 8;
constexpr int kVocabularyMax = 1 << 24;
constexpr const char* kLookup = "prompt-lookup";

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

Status read_source(const TomlTable& table, DraftConfig& draft) {
    if (table.has("source") && table.has("method")) {
        return table.error("method", "is the older name of source; give one of them");
    }
    const char* key = table.has("method") ? "method" : "source";
    std::string source = kLookup;
    if (Status s =
            table.read_choice(key,
                              {kLookup, "trained", "model", "first-layers", "prompt-lookup+trained",
                               "prompt-lookup+model", "prompt-lookup+first-layers"},
                              source);
        !s.ok())
        return s;
    draft.lookup = source.rfind(kLookup, 0) == 0;
    if (ends_with(source, "trained")) draft.model = DraftModelKind::Trained;
    if (ends_with(source, "model")) draft.model = DraftModelKind::File;
    if (ends_with(source, "first-layers")) draft.model = DraftModelKind::FirstLayers;
    return {};
}

/// `size` and `stand_in` may stay where another source is put in the place of "trained".
Status read_trained(const TomlTable& table, DraftConfig& draft) {
    std::string size = "small";
    std::string stand_in = kLookup;
    std::string part;
    Status s = table.read_choice("size", {"small", "deep"}, size);
    if (s.ok()) {
        s = table.read_choice("stand_in", {kLookup, "first-layers", "prompt-lookup+first-layers"},
                              stand_in);
    }
    if (s.ok()) s = table.read_text("part", part);
    if (!s.ok()) return s;
    if (size == "deep") draft.size = DraftSize::Deep;
    draft.stand_in.lookup = stand_in.rfind(kLookup, 0) == 0;
    if (ends_with(stand_in, "first-layers")) draft.stand_in.model = DraftModelKind::FirstLayers;
    if (draft.model == DraftModelKind::Trained) draft.model_file = part;
    if (table.has("part") && draft.model != DraftModelKind::Trained) {
        return table.error("part",
                           "is for source = \"trained\" or \"prompt-lookup+trained\", this "
                           "is \"" +
                               source_text(draft) + "\"");
    }
    return {};
}

Status read_model(const TomlTable& table, DraftConfig& draft) {
    std::string file;
    Status s = table.read_text("model", file);
    if (s.ok()) s = table.read_int("short_list", 0, kVocabularyMax, draft.short_list);
    if (s.ok()) s = table.read_number("layers", 0.0, 1e6, draft.layers);
    if (!s.ok()) return s;
    const std::string& source = source_text(draft);
    if (draft.model == DraftModelKind::File && file.empty()) {
        return table.error("model", "is missing: source = \"" + source + "\" needs a GGUF file");
    }
    if (draft.model != DraftModelKind::File && table.has("model")) {
        return table.error(
            "model",
            "is for source = \"model\" or \"prompt-lookup+model\", this is \"" + source + "\"");
    }
    if (draft.model == DraftModelKind::File) draft.model_file = file;
    const bool may_stand_in = draft.model == DraftModelKind::Trained &&
                              draft.stand_in.model == DraftModelKind::FirstLayers;
    if (draft.model != DraftModelKind::FirstLayers && !may_stand_in && table.has("layers")) {
        return table.error("layers",
                           "is for source = \"first-layers\", this is \"" + source + "\"");
    }
    if (!draft.computes() && draft.short_list != 0) {
        return table.error("short_list", "is for sources with a model, this is \"" + source + "\"");
    }
    if (draft.layers <= 0.0 || (draft.layers > 1.0 && draft.layers != std::floor(draft.layers))) {
        return table.error("layers", "must be a number of layers, or a part of the depth below 1");
    }
    return {};
}

Status read_ngrams(const TomlTable& table, DraftConfig& draft) {
    constexpr int kLongest = 64;
    if (table.has("ngrams")) {
        for (const char* key : {"min_ngram", "max_ngram"}) {
            if (table.has(key)) return table.error(key, "says what ngrams says too; give one");
        }
        const Result<NumberList> list = table.number_list("ngrams");
        if (!list) return list.error();
        const std::vector<double>& range = list.value().values;
        if (range.size() != 2 || !list.value().all_whole || range[0] < 1 || range[1] > kLongest ||
            range[0] > range[1]) {
            return table.error("ngrams",
                               "must be [shortest, longest] with 1 <= shortest <= "
                               "longest <= 64");
        }
        draft.min_ngram = static_cast<int>(range[0]);
        draft.max_ngram = static_cast<int>(range[1]);
        return {};
    }
    Status s = table.read_int("min_ngram", 1, kLongest, draft.min_ngram);
    if (s.ok()) s = table.read_int("max_ngram", 1, kLongest, draft.max_ngram);
    if (!s.ok()) return s;
    if (draft.min_ngram > draft.max_ngram) {
        return table.error("min_ngram",
                           "is greater than max_ngram " + std::to_string(draft.max_ngram));
    }
    return {};
}

Status read_pace(const TomlTable& table, DraftPace& pace) {
    std::string word = "sequential";
    if (Status s = table.read_choice("pace", {"sequential", "ahead", "lockstep"}, word); !s.ok())
        return s;
    if (word == "ahead") pace = DraftPace::Ahead;
    if (word == "lockstep") pace = DraftPace::Lockstep;
    return {};
}

Status read_growth(const TomlTable& table, GrowthRule& growth) {
    Status s = read_pace(table, growth.pace);
    if (s.ok()) s = table.read_int("gamma", 1, kGammaMax, growth.gamma);
    if (s.ok()) s = table.read_int("gamma_early", 0, kGammaMax, growth.gamma_early);
    if (s.ok()) s = table.read_bool("adaptive", growth.adaptive);
    double confidence = 0.0;
    if (s.ok()) s = table.read_number("confidence_min", 0.0, 1.0, confidence);
    if (s.ok()) s = table.read_bool("while_worth", growth.while_worth);
    if (s.ok()) s = table.read_int("width", 1, kWaveRowsMax, growth.width);
    if (s.ok())
        s = table.read_int("own_alternatives", 0, kAlternativesMax, growth.own_alternatives);
    if (s.ok())
        s = table.read_int("exit_alternatives", 0, kAlternativesMax, growth.exit_alternatives);
    if (s.ok()) s = table.read_int("branch_budget", 0, kProposalNodesMax, growth.branch_budget);
    double reach = 1e-3;
    if (s.ok()) s = table.read_number("reach_min", 0.0, 1.0, reach);
    if (!s.ok()) return s;
    growth.confidence_min = static_cast<float>(confidence);
    growth.draft_reach_min = static_cast<float>(reach);
    if (growth.gamma_early != 0 && growth.pace != DraftPace::Lockstep) {
        return table.error("gamma_early", "is for pace = \"lockstep\"");
    }
    if (growth.gamma_early >= growth.gamma && growth.gamma_early != 0) {
        return table.error("gamma_early",
                           "must be less than gamma " + std::to_string(growth.gamma));
    }
    if (growth.adaptive && growth.pace != DraftPace::Sequential) {
        return table.error("adaptive", "is for pace = \"sequential\"");
    }
    if (growth.while_worth && growth.pace != DraftPace::Sequential) {
        return table.error("while_worth",
                           "is for pace = \"sequential\": elsewhere passes are hidden");
    }
    return {};
}

}  // namespace

int DraftConfig::layers_of(int of) const {
    const double wanted = layers < 1.0 ? layers * of : layers;
    return std::clamp(static_cast<int>(std::lround(wanted)), 1, of);
}

void DraftConfig::use_stand_in() {
    lookup = stand_in.lookup;
    model = stand_in.model;
    model_file.clear();
    if (!computes()) growth.own_alternatives = 0;  // runners-up need a model
}

std::string source_text(const DraftConfig& draft) {
    const char* model = "";
    switch (draft.model) {
        case DraftModelKind::None:
            return kLookup;
        case DraftModelKind::File:
            model = "model";
            break;
        case DraftModelKind::FirstLayers:
            model = "first-layers";
            break;
        case DraftModelKind::Trained:
            model = "trained";
            break;
    }
    return draft.lookup ? std::string{kLookup} + "+" + model : model;
}

Result<DraftConfig> read_draft(const TomlTable& table) {
    DraftConfig draft;
    Status s = table.allow_only({"source",
                                 "method",
                                 "size",
                                 "part",
                                 "stand_in",
                                 "model",
                                 "layers",
                                 "short_list",
                                 "ngrams",
                                 "min_ngram",
                                 "max_ngram",
                                 "pace",
                                 "gamma",
                                 "gamma_early",
                                 "adaptive",
                                 "confidence_min",
                                 "while_worth",
                                 "width",
                                 "own_alternatives",
                                 "exit_alternatives",
                                 "branch_budget",
                                 "reach_min"});
    if (s.ok()) s = read_source(table, draft);
    if (s.ok()) s = read_trained(table, draft);
    if (s.ok()) s = read_model(table, draft);
    if (s.ok()) s = read_ngrams(table, draft);
    if (s.ok()) s = read_growth(table, draft.growth);
    if (!s.ok()) return s.error();
    if (!draft.computes() && draft.growth.own_alternatives > 0) {
        return table.error("own_alternatives", "needs a model to name runners-up, source is \"" +
                                                   source_text(draft) + "\"");
    }
    return draft;
}

}  // namespace paceline
