#include "launch/config/pipeline_config.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <variant>

#include "launch/config/field.hpp"
#include "launch/config/pipeline_checks.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

namespace {

constexpr std::array<std::string_view, 10> kTopKeys{
    "extends", "pipeline", "stage",      "draft",       "self_draft",
    "exit",    "schedule", "acceptance", "supervision", "serve"};
/// Rounds are waited for: a draft that is only slow must not turn lockstep into something else.
constexpr std::chrono::microseconds kLockstepWait{200'000};

/// The table `key`, if the file has it, into `out`; `finish` checks it.
template <class Value, class Finish>
Status read_table(const TomlTable& root, std::string_view key, Value& out, Finish finish) {
    if (!root.has(key)) return {};
    const Result<TomlTable> table = root.table(key);
    if (!table) return table.error();
    const Status s = read_fields(table.value(), fields_of(out));
    return s.ok() ? finish(table.value(), out) : s;
}

/// Of a table whose keys do not depend on each other.
constexpr auto kAlone = [](const auto& /*table*/, const auto& /*value*/) { return Status{}; };

Status read_stages(const TomlTable& root, std::vector<StageConfig>& stages) {
    const Result<std::vector<TomlTable>> tables = root.tables("stage");
    if (!tables) return tables.error();
    for (const TomlTable& table : tables.value()) {
        StageConfig stage;
        if (Status s = read_fields(table, fields_of(stage)); !s.ok()) return s;
        Result<std::vector<StageConfig>> expanded = expand_stage(table, std::move(stage));
        if (!expanded) return expanded.error();
        for (StageConfig& one : expanded.value()) stages.push_back(std::move(one));
    }
    return {};
}

/// Medusa's rule is refused by name, not as a word that is unknown.
Status refuse_typical(const TomlTable& root) {
    constexpr const char* kWhy =
        "is not offered: typical acceptance changes the text, which here is that of plain "
        "decoding; "
        "use the rule \"coupled\" (the same bytes) or \"rejection\" (the same distribution)";
    const auto is_typical = [](const TomlTable& table, const char* key) {
        const TomlValue value = table.value(key);
        const auto* word = std::get_if<std::string>(&value);
        return word != nullptr && *word == "typical";
    };
    if (is_typical(root, "acceptance")) return root.error("acceptance", kWhy);
    if (!root.has("acceptance")) return {};
    const Result<TomlTable> table = root.table("acceptance");
    if (table && is_typical(table.value(), "rule")) return table.value().error("rule", kWhy);
    return {};
}

StartRule default_mode(const PipelineConfig& config) {
    if (!config.draft || config.draft->growth.pace == DraftPace::Ahead) return StartRule::AtOnce;
    return config.draft->growth.pace == DraftPace::Sequential ? StartRule::Sequential
                                                              : StartRule::Lockstep;
}

}  // namespace

std::vector<Field> fields_of(PipelineConfig& config) {
    return {name_field("name", config.name, "of the pipeline, for messages; at most 64 bytes"),
            {"transport", word(config.transport, {"auto", "host", "exported", "nccl"}),
             "of hidden states, keys and values between GPUs of two processes: host memory, device "
             "memory that the other process maps, or NCCL; `auto`: the first of exported, nccl and "
             "host that can be; `host` is for GPUs of one process too"}};
}

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

Result<PipelineConfig> parse_pipeline_config(std::string_view text, const std::string& file) {
    return parse_pipeline_config(ConfigSource{std::string{text}, file});
}

Result<PipelineConfig> parse_pipeline_config(const ConfigSource& source) {
    const Result<TomlTable> tables = read_tables(source);
    if (!tables) return tables.error();
    const TomlTable& root = tables.value();
    PipelineConfig config;
    config.file = source.file;
    if (root.has("draft")) config.draft.emplace();
    if (root.has("exit")) config.exit.emplace();
    if (root.has("self_draft")) config.self_draft.emplace();
    Status s = root.allow_only(kTopKeys);
    if (s.ok()) s = read_table(root, "pipeline", config, kAlone);
    if (s.ok()) s = read_stages(root, config.stages);
    if (s.ok() && config.draft) s = read_table(root, "draft", *config.draft, finish_draft);
    if (s.ok() && config.self_draft)
        s = read_table(root, "self_draft", *config.self_draft, check_self_draft);
    if (s.ok() && config.exit) s = read_table(root, "exit", *config.exit, finish_exit);
    if (s.ok()) s = read_table(root, "schedule", config.schedule, finish_schedule);
    if (s.ok()) s = refuse_typical(root);
    if (s.ok()) s = read_table(root, "acceptance", config.acceptance, kAlone);
    if (s.ok()) s = read_table(root, "supervision", config.supervision, kAlone);
    if (!s.ok()) return s.error();
    complete_pipeline(config);
    if (s = check_pipeline(config); !s.ok()) return s.error();
    return config;
}

DispatchOptions dispatch_options(const PipelineConfig& config) {
    const ScheduleConfig& schedule = config.schedule;
    DispatchOptions options = schedule.options;
    if (!schedule.mode_given) options.start = default_mode(config);
    if (!schedule.wait_given && options.start == StartRule::Lockstep)
        options.proposal_wait = kLockstepWait;
    const bool as_configured = options.start == StartRule::Lockstep || config.self_draft ||
                               config.acceptance == AcceptanceRule::Unverified;
    if (as_configured) options.controller = Controller::Off;
    if (schedule.batches_given) return options;
    int batches = options.start == StartRule::AtOnce ? config.segments() : 1;
    // Every early token is a batch of its own; the row that the exit was not sure of is one more.
    if (config.exit && config.exit->options.proposes)
        batches = std::max(batches, static_cast<int>(config.exit->options.early_max) + 1);
    options.batches_in_flight_max = std::min(static_cast<std::uint32_t>(batches), kSegmentsMax);
    return options;
}

std::int32_t gamma_max(const PipelineConfig& config) {
    std::int32_t most = 0;
    if (config.draft) {
        const GrowthRule& growth = config.draft->growth;
        most = growth.adaptive ? static_cast<std::int32_t>(kGammaMax) : growth.gamma;
    }
    if (config.self_draft) most = std::max(most, config.self_draft->options.gamma);
    if (config.exit) {
        const ExitOptions& exit = config.exit->options;
        if (exit.proposes) most = std::max(most, static_cast<std::int32_t>(exit.early_max));
        most = std::max(most, config.exit->ahead);
    }
    return std::min(most, static_cast<std::int32_t>(config.schedule.options.rows_max) - 1);
}

}  // namespace paceline
