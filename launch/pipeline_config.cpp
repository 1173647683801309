#include "launch/pipeline_config.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "launch/toml_reader.hpp"

namespace paceline {

namespace {

/// Long enough for people, short enough for log prefixes and control messages.
constexpr std::size_t kNameBytesMax = 64;

/// A name that fits into one line of a log and one cell of a table.
Status read_name(const TomlTable& table, std::string_view key, std::string& name) {
    if (Status s = table.read_text(key, name); !s.ok()) return s;
    if (name.size() > kNameBytesMax) {
        return table.error(key, "has more than " + std::to_string(kNameBytesMax) + " bytes");
    }
    const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
    if (std::any_of(name.begin(), name.end(), is_control))
        return table.error(key, "holds a control character");
    return {};
}

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

Status read_device(const TomlTable& table, Device& device) {
    std::string word = "cpu";
    if (Status s = table.read_text("device", word); !s.ok()) return s;
    if (word == "cpu") return {};
    constexpr std::string_view kGpu = "cuda:";
    int number = -1;
    const char* end = word.data() + word.size();
    if (word.rfind(kGpu, 0) == 0) {
        const auto [stop, wrong] = std::from_chars(word.data() + kGpu.size(), end, number);
        if (stop != end || wrong != std::errc{}) number = -1;
    }
    if (number < 0) return table.error("device", "must be \"cpu\" or \"cuda:N\"");
    device.gpu = number;
    return {};
}

Status read_on_death(const TomlTable& table, StageConfig& stage) {
    // A draft holds nothing that cannot be guessed again; a segment holds the KV cache.
    const bool segment = stage.role == StageRole::Segment;
    stage.on_death = segment ? OnDeath::RebuildChain : OnDeath::RestartAlone;
    std::string word = name_of(stage.on_death);
    if (Status s =
            table.read_choice("on_death", {"stop-run", "restart-alone", "rebuild-chain"}, word);
        !s.ok())
        return s;
    const Result<OnDeath> policy = parse_on_death(word);
    if (!policy) return table.error("on_death", policy.error().what);
    stage.on_death = policy.value();
    if (segment && stage.on_death == OnDeath::RestartAlone) {
        return table.error("on_death",
                           "is for stages that hold nothing of the text; a segment holds its KV "
                           "cache (allowed: \"stop-run\", \"rebuild-chain\")");
    }
    return {};
}

Result<StageConfig> read_stage(const TomlTable& table) {
    if (Status s = table.allow_only(
            {"name", "role", "layers", "cores", "threads", "device", "process", "on_death"});
        !s.ok())
        return s.error();
    StageConfig stage;
    if (Status s = read_name(table, "name", stage.name); !s.ok()) return s.error();
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
    if (Status s = read_device(table, stage.device); !s.ok()) return s.error();
    if (Status s = read_name(table, "process", stage.process); !s.ok()) return s.error();
    if (table.has("process") && stage.process.empty())
        return table.error("process", "is empty; leave it out for a process of its own");
    if (Status s = read_on_death(table, stage); !s.ok()) return s.error();
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

/// Logs and tables know a process by one name: its stages' `process`, or its only stage's own.
Status check_processes(const PipelineConfig& config) {
    for (const StageConfig& stage : config.stages) {
        for (const StageConfig& other : config.stages) {
            if (!stage.process.empty() || stage.name != other.process) continue;
            return config_error(config, "[[stage]] \"" + other.name + "\": process = \"" +
                                            other.process +
                                            "\" is the name of a stage outside of it");
        }
    }
    return {};
}

/// A GPU's memory belongs to one process: stages on the same GPU must share theirs.
Status check_gpus(const PipelineConfig& config) {
    std::map<int, const StageConfig*> first_on;
    for (const StageConfig& stage : config.stages) {
        if (!stage.device.gpu) continue;
        const auto [at, is_first] = first_on.emplace(*stage.device.gpu, &stage);
        const StageConfig& other = *at->second;
        if (is_first || (!stage.process.empty() && stage.process == other.process)) continue;
        return config_error(config, "[[stage]] \"" + stage.name + "\": device = \"" +
                                        to_text(stage.device) + "\" is that of \"" + other.name +
                                        "\" too; stages that share a GPU must be in one process "
                                        "(process = \"...\", the same in both)");
    }
    return {};
}

/// The table `key` of the document read by `read` into `out`; absent: nothing happens.
template <class Out, class Read>
Status read_table(const TomlTable& root, std::string_view key, Read read, Out& out) {
    const Result<std::optional<TomlTable>> table = root.table(key);
    if (!table) return table.error();
    if (!table.value()) return {};
    auto value = read(*table.value());
    if (!value) return value.error();
    out = std::move(value).value();
    return {};
}

Result<std::string> read_pipeline(const TomlTable& table) {
    std::string name;
    if (Status s = table.allow_only({"name"}); !s.ok()) return s.error();
    if (Status s = table.read_text("name", name); !s.ok()) return s.error();
    return name;
}

Result<PipelineConfig> from_document(const TomlDocument& document, const std::string& file) {
    const TomlTable root = document.root();
    Status s = root.allow_only({"pipeline", "stage", "draft", "schedule", "supervision"});
    PipelineConfig config;
    config.file = file;
    if (s.ok()) s = read_table(root, "pipeline", read_pipeline, config.name);
    if (!s.ok()) return s.error();

    const Result<std::vector<TomlTable>> stages = root.tables("stage");
    if (!stages) return stages.error();
    for (const TomlTable& table : stages.value()) {
        Result<StageConfig> stage = read_stage(table);
        if (!stage) return stage.error();
        config.stages.push_back(std::move(stage).value());
    }

    if (s.ok()) s = read_table(root, "draft", read_draft, config.draft);
    if (s.ok()) s = read_table(root, "schedule", read_schedule, config.schedule);
    if (s.ok()) s = read_table(root, "supervision", read_supervision, config.supervision);
    if (s.ok()) s = check_stages(config);
    if (s.ok()) s = check_processes(config);
    if (s.ok()) s = check_gpus(config);
    if (!s.ok()) return s.error();
    return config;
}

}  // namespace

std::string to_text(const Device& device) {
    return device.gpu ? "cuda:" + std::to_string(*device.gpu) : "cpu";
}

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

PipelineConfig built_in_pipeline(std::optional<DraftMethod> method) {
    PipelineConfig config;
    config.file = "built-in pipeline";
    config.name = method ? "one segment behind prompt lookup" : "one segment";
    config.stages.push_back({.name = "target"});
    if (method) {
        config.stages.push_back(
            {.name = "draft", .role = StageRole::Draft, .on_death = OnDeath::RestartAlone});
        config.draft = DraftConfig{.method = *method};
    }
    return config;
}

}  // namespace paceline
