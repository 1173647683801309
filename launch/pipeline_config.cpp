#include "launch/pipeline_config.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

#include "launch/toml_reader.hpp"

namespace paceline {

namespace {

Status read_layers(const TomlTable& table, LayerChoice& layers) {
    if (!table.has("layers")) return {};
    if (table.is_text("layers")) {
        std::string word;
        if (Status s = table.read_choice("layers", {"auto"}, word); !s.ok()) return s;
        layers = AutoLayers{};
        return {};
    }
    Result<NumberList> list = table.number_list("layers");
    if (!list) return list.error();
    const NumberList& bounds = list.value();
    if (bounds.values.size() != 2) {
        return table.error("layers", "has " + std::to_string(bounds.values.size()) +
                                         " numbers, expected [first, last] or \"auto\"");
    }
    const double first = bounds.values[0];
    const double last = bounds.values[1];
    if (bounds.all_whole) {
        if (first < 0 || last <= first || last > 1e6) {
            return table.error("layers", "must be [first, last] with 0 <= first < last");
        }
        layers = LayerRange{static_cast<int>(first), static_cast<int>(last)};
        return {};
    }
    if (!(first >= 0.0 && first < last && last <= 1.0)) {
        return table.error("layers",
                           "as fractions must be [first, last] with 0.0 <= first < last <= 1.0");
    }
    layers = LayerFractions{first, last};
    return {};
}

Status read_cores(const TomlTable& table, std::vector<int>& cores) {
    if (!table.has("cores")) return {};
    if (table.is_text("cores")) {
        std::string word;
        return table.read_choice("cores", {"auto"}, word);
    }
    Result<NumberList> list = table.number_list("cores");
    if (!list) return list.error();
    if (list.value().values.empty() || !list.value().all_whole) {
        return table.error("cores", "must be a list of core numbers such as [0, 1], or \"auto\"");
    }
    for (const double value : list.value().values) {
        if (value < 0 || value > 65535)
            return table.error("cores", "holds a number that is no core");
        cores.push_back(static_cast<int>(value));
    }
    std::sort(cores.begin(), cores.end());
    if (std::adjacent_find(cores.begin(), cores.end()) != cores.end()) {
        return table.error("cores", "names a core twice");
    }
    return {};
}

Result<StageConfig> read_stage(const TomlTable& table) {
    if (Status s = table.allow_only({"name", "role", "layers", "cores", "threads"}); !s.ok())
        return s.error();
    StageConfig stage;
    if (Status s = table.read_text("name", stage.name); !s.ok()) return s.error();
    if (stage.name.empty()) return table.error("name", "is missing or empty");
    std::string role;
    if (!table.has("role"))
        return table.error("role", "is missing (allowed: \"segment\", \"draft\")");
    if (Status s = table.read_choice("role", {"segment", "draft"}, role); !s.ok()) return s.error();
    stage.role = role == "draft" ? StageRole::Draft : StageRole::Segment;
    if (stage.role == StageRole::Draft && table.has("layers")) {
        return table.error("layers", "belongs to segments, this stage is a draft");
    }
    if (Status s = read_layers(table, stage.layers); !s.ok()) return s.error();
    if (Status s = read_cores(table, stage.cores); !s.ok()) return s.error();
    if (Status s = table.read_int("threads", 1, 1024, stage.threads); !s.ok()) return s.error();
    return stage;
}

Result<DraftConfig> read_draft(const TomlTable& table) {
    if (Status s = table.allow_only({"method", "gamma", "min_ngram", "max_ngram"}); !s.ok())
        return s.error();
    DraftConfig draft;
    std::string method = "prompt-lookup";
    if (Status s = table.read_choice("method", {"prompt-lookup"}, method); !s.ok())
        return s.error();
    if (Status s = table.read_int("gamma", 1, kGammaMax, draft.gamma); !s.ok()) return s.error();
    if (Status s = table.read_int("min_ngram", 1, 64, draft.min_ngram); !s.ok()) return s.error();
    if (Status s = table.read_int("max_ngram", 1, 64, draft.max_ngram); !s.ok()) return s.error();
    if (draft.min_ngram > draft.max_ngram) {
        return table.error("min_ngram",
                           "is greater than max_ngram " + std::to_string(draft.max_ngram));
    }
    return draft;
}

Result<ScheduleConfig> read_schedule(const TomlTable& table) {
    if (Status s = table.allow_only({"mode", "draft_wait_us"}); !s.ok()) return s.error();
    ScheduleConfig schedule;
    std::string mode = "turns";
    if (Status s = table.read_choice("mode", {"turns"}, mode); !s.ok()) return s.error();
    int wait_us = static_cast<int>(schedule.draft_wait.count());
    if (Status s = table.read_int("draft_wait_us", 0, 10'000'000, wait_us); !s.ok())
        return s.error();
    schedule.draft_wait = std::chrono::microseconds{wait_us};
    return schedule;
}

Error config_error(const PipelineConfig& config, const std::string& what) {
    return Error{Errc::BadArgument, config.file + ": " + what};
}

/// What concerns more than one stage.
Status check_stages(const PipelineConfig& config) {
    std::set<std::string> names;
    int segments = 0;
    int drafts = 0;
    for (const StageConfig& stage : config.stages) {
        if (!names.insert(stage.name).second) {
            return config_error(config, "[[stage]] name \"" + stage.name + "\" is used twice");
        }
        ++(stage.role == StageRole::Segment ? segments : drafts);
    }
    if (segments < 1 || segments > static_cast<int>(kSegmentsMax)) {
        return config_error(config, "has " + std::to_string(segments) +
                                        " stages with role = \"segment\", expected 1 to " +
                                        std::to_string(kSegmentsMax));
    }
    if (drafts > 1) {
        return config_error(config, "has " + std::to_string(drafts) +
                                        " stages with role = \"draft\", expected at most 1");
    }
    if (drafts == 1 && !config.draft) {
        return config_error(config, "has a stage with role = \"draft\" but no [draft] table");
    }
    if (drafts == 0 && config.draft) {
        return config_error(config, "has a [draft] table but no stage with role = \"draft\"");
    }
    return {};
}

/// The layers of each segment, in order, before they are checked against each other.
LayerRange concrete_layers(const LayerChoice& choice, int layers, int index, int segments) {
    if (const auto* range = std::get_if<LayerRange>(&choice)) return *range;
    if (const auto* parts = std::get_if<LayerFractions>(&choice)) {
        return {static_cast<int>(std::lround(parts->first * layers)),
                static_cast<int>(std::lround(parts->last * layers))};
    }
    return {layers * index / segments, layers * (index + 1) / segments};
}

std::string to_text(LayerRange range) {
    return "[" + std::to_string(range.first) + ", " + std::to_string(range.last) + "]";
}

Status check_cover(const PipelineConfig& config,
                   const std::vector<PlacedStage>& stages,
                   int layers) {
    int next = 0;
    std::string before;
    for (const PlacedStage& stage : stages) {
        if (stage.role != StageRole::Segment) continue;
        const std::string who =
            "[[stage]] \"" + stage.name + "\": layers " + to_text(stage.layers) + " ";
        if (stage.layers.last > layers) {
            return config_error(config,
                                who + "end past the model's " + std::to_string(layers) + " layers");
        }
        if (stage.layers.first >= stage.layers.last) {
            return config_error(
                config, who + "are empty for a model of " + std::to_string(layers) + " layers");
        }
        if (stage.layers.first != next) {
            const char* what = stage.layers.first > next ? "leave a gap after " : "overlap with ";
            return config_error(config,
                                who + (before.empty() ? "do not start at layer 0" : what + before));
        }
        next = stage.layers.last;
        before = "\"" + stage.name + "\", which ends at layer " + std::to_string(next);
    }
    if (next != layers) {
        return config_error(config, "the segments end at layer " + std::to_string(next) +
                                        ", the model has " + std::to_string(layers) + " layers");
    }
    return {};
}

Status place_on_cores(const PipelineConfig& config,
                      const StageConfig& stage,
                      const std::vector<int>& usable_cores,
                      PlacedStage& placed) {
    const std::string who = "[[stage]] \"" + stage.name + "\": ";
    placed.cores = stage.cores.empty() ? usable_cores : stage.cores;
    for (const int core : placed.cores) {
        if (std::find(usable_cores.begin(), usable_cores.end(), core) == usable_cores.end()) {
            std::string usable;
            for (const int c : usable_cores)
                usable += (usable.empty() ? "" : ", ") + std::to_string(c);
            return config_error(config, who + "cores names core " + std::to_string(core) +
                                            ", this process may use " + usable);
        }
    }
    const int cores = static_cast<int>(placed.cores.size());
    // A draft that looks up n-grams has work for one thread only.
    const int threads_default = stage.role == StageRole::Draft ? 1 : cores;
    placed.threads = stage.threads == 0 ? threads_default : stage.threads;
    if (placed.threads > cores) {
        return config_error(config, who + "threads " + std::to_string(placed.threads) +
                                        " is more than its " + std::to_string(cores) + " cores");
    }
    return {};
}

Result<PipelineConfig> from_document(const TomlDocument& document, const std::string& file) {
    const TomlTable root = document.root();
    if (Status s = root.allow_only({"pipeline", "stage", "draft", "schedule"}); !s.ok())
        return s.error();

    PipelineConfig config;
    config.file = file;
    Result<std::optional<TomlTable>> pipeline = root.table("pipeline");
    if (!pipeline) return pipeline.error();
    if (pipeline.value()) {
        if (Status s = pipeline.value()->allow_only({"name"}); !s.ok()) return s.error();
        if (Status s = pipeline.value()->read_text("name", config.name); !s.ok()) return s.error();
    }

    Result<std::vector<TomlTable>> stages = root.tables("stage");
    if (!stages) return stages.error();
    for (const TomlTable& table : stages.value()) {
        Result<StageConfig> stage = read_stage(table);
        if (!stage) return stage.error();
        config.stages.push_back(std::move(stage).value());
    }

    Result<std::optional<TomlTable>> draft_table = root.table("draft");
    if (!draft_table) return draft_table.error();
    if (draft_table.value()) {
        Result<DraftConfig> draft = read_draft(*draft_table.value());
        if (!draft) return draft.error();
        config.draft = draft.value();
    }

    Result<std::optional<TomlTable>> schedule_table = root.table("schedule");
    if (!schedule_table) return schedule_table.error();
    if (schedule_table.value()) {
        Result<ScheduleConfig> schedule = read_schedule(*schedule_table.value());
        if (!schedule) return schedule.error();
        config.schedule = schedule.value();
    }

    if (Status s = check_stages(config); !s.ok()) return s.error();
    return config;
}

}  // namespace

Result<PipelineConfig> read_pipeline_config(const std::string& path) {
    Result<TomlDocument> document = TomlDocument::read(path);
    if (!document) return document.error();
    return from_document(document.value(), path);
}

Result<PipelineConfig> parse_pipeline_config(std::string_view text, const std::string& file) {
    Result<TomlDocument> document = TomlDocument::parse(text, file);
    if (!document) return document.error();
    return from_document(document.value(), file);
}

Result<std::vector<PlacedStage>> resolve(const PipelineConfig& config,
                                         int layers,
                                         const std::vector<int>& usable_cores) {
    PACE_CHECK(layers > 0 && !usable_cores.empty(), "a model has layers, a process has a core");
    const auto is_segment = [](const StageConfig& s) { return s.role == StageRole::Segment; };
    const auto segments =
        static_cast<int>(std::count_if(config.stages.begin(), config.stages.end(), is_segment));
    const auto is_auto = [&](const StageConfig& s) {
        return is_segment(s) && std::holds_alternative<AutoLayers>(s.layers);
    };
    const auto automatic =
        static_cast<int>(std::count_if(config.stages.begin(), config.stages.end(), is_auto));
    if (automatic != 0 && automatic != segments) {
        return config_error(config, "layers is \"auto\" for " + std::to_string(automatic) + " of " +
                                        std::to_string(segments) +
                                        " segments; give it for all of them or for none");
    }

    std::vector<PlacedStage> placed;
    int index = 0;
    for (const StageConfig& stage : config.stages) {
        PlacedStage& p = placed.emplace_back();
        p.name = stage.name;
        p.role = stage.role;
        if (is_segment(stage)) p.layers = concrete_layers(stage.layers, layers, index++, segments);
        if (Status s = place_on_cores(config, stage, usable_cores, p); !s.ok()) return s.error();
    }
    if (Status s = check_cover(config, placed, layers); !s.ok()) return s.error();
    return placed;
}

PipelineConfig built_in_pipeline(std::optional<DraftMethod> method) {
    PipelineConfig config;
    config.file = "built-in pipeline";
    config.name = method ? "one segment behind prompt lookup" : "one segment";
    config.stages.push_back(
        {.name = "target", .role = StageRole::Segment, .layers = {}, .cores = {}});
    if (method) {
        config.stages.push_back(
            {.name = "draft", .role = StageRole::Draft, .layers = {}, .cores = {}});
        config.draft = DraftConfig{.method = *method};
    }
    return config;
}

}  // namespace paceline
