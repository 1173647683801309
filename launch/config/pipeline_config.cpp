#include "launch/config/pipeline_config.hpp"

#include <algorithm>

#include "launch/config/pipeline_checks.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

namespace {

constexpr std::chrono::microseconds kTurnWait{2'000};
/// Rounds are waited for: a draft that is only slow must not turn lockstep into something else.
constexpr std::chrono::microseconds kLockstepWait{200'000};

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
    if (Status s = read_name(table, "name", name); !s.ok()) return s.error();
    return name;
}

Status read_all_stages(const TomlTable& root, std::vector<StageConfig>& stages) {
    const Result<std::vector<TomlTable>> tables = root.tables("stage");
    if (!tables) return tables.error();
    for (const TomlTable& table : tables.value()) {
        Result<std::vector<StageConfig>> read = read_stages(table);
        if (!read) return read.error();
        for (StageConfig& stage : read.value()) stages.push_back(std::move(stage));
    }
    return {};
}

Result<PipelineConfig> from_document(const TomlDocument& document, const std::string& file) {
    const TomlTable root = document.root();
    PipelineConfig config;
    config.file = file;
    Status s = root.allow_only(
        {"pipeline", "stage", "draft", "exit", "schedule", "acceptance", "supervision"});
    if (s.ok()) s = read_table(root, "pipeline", read_pipeline, config.name);
    if (s.ok()) s = read_all_stages(root, config.stages);
    if (s.ok()) s = read_table(root, "draft", read_draft, config.draft);
    if (s.ok()) s = read_table(root, "exit", read_exit, config.exit);
    if (s.ok()) s = read_table(root, "schedule", read_schedule, config.schedule);
    if (s.ok()) s = read_table(root, "acceptance", read_acceptance, config.acceptance);
    if (s.ok()) s = read_table(root, "supervision", read_supervision, config.supervision);
    if (!s.ok()) return s.error();
    complete_pipeline(config);
    if (s = check_pipeline(config); !s.ok()) return s.error();
    return config;
}

StartRule default_mode(const PipelineConfig& config) {
    if (!config.draft) return StartRule::AtOnce;
    switch (config.draft->growth.pace) {
        case DraftPace::Sequential:
            return StartRule::Sequential;
        case DraftPace::Ahead:
            return StartRule::AtOnce;
        case DraftPace::Lockstep:
            break;
    }
    return StartRule::Lockstep;
}

}  // namespace

int PipelineConfig::segments() const {
    return static_cast<int>(std::count_if(stages.begin(), stages.end(), [](const StageConfig& s) {
        return s.role == StageRole::Segment;
    }));
}

const StageConfig* PipelineConfig::stage_of(StageRole role) const {
    const auto found = std::find_if(stages.begin(), stages.end(),
                                    [&](const StageConfig& stage) { return stage.role == role; });
    return found == stages.end() ? nullptr : &*found;
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

DispatchOptions dispatch_options(const PipelineConfig& config) {
    const ScheduleConfig& schedule = config.schedule;
    DispatchOptions options;
    options.start = schedule.mode.value_or(default_mode(config));
    options.shape = schedule.shape;
    options.proposal_wait = schedule.draft_wait.value_or(
        options.start == StartRule::Lockstep ? kLockstepWait : kTurnWait);
    options.rows_max = static_cast<std::uint32_t>(schedule.rows_max);
    options.requests_max = static_cast<std::uint32_t>(schedule.requests_max);
    options.verify_reach_min = static_cast<float>(schedule.reach_min);
    int waves = 1;
    if (options.start == StartRule::AtOnce) waves = config.segments();
    // Every early token is a wave of its own; the row that the exit was not sure of is one more.
    if (config.exit && config.exit->proposes) waves = std::max(waves, config.exit->early_max + 1);
    if (schedule.waves_in_flight != 0) waves = schedule.waves_in_flight;
    options.waves_in_flight_max =
        std::min(static_cast<std::uint32_t>(waves), static_cast<std::uint32_t>(kSegmentsMax));
    return options;
}

}  // namespace paceline
