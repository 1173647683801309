// PipelineConfig: which stages a pipeline has, what each one does and where it runs, read from a
// TOML file (configs/ holds commented examples, which are the methods of `paceline run --method`).
//
//     extends        the method or file whose settings it has otherwise: config_source.hpp
//     [pipeline]     its name, and how its tensors travel
//     [[stage]]      in pipeline order: stage_config.hpp
//     [draft]        models and sources of drafts, and how they grow their tree: draft_config.hpp
//     [self_draft]   how the target drafts for itself: self_draft_config.hpp
//     [exit]         what heads at the end of segments are used for: exit_config.hpp
//     [schedule]     when the target starts with what: schedule_config.hpp
//     [acceptance]   which candidates are accepted: schedule_config.hpp
//     [supervision]  what happens when stages die: supervision_config.hpp
//     [serve]        options of `paceline serve`: launch/serve/serve_settings.hpp; not read here
//
// A file describes a shape, not a machine or a model: layers may be fractions or "auto", cores
// and threads may be left out. placement.hpp makes it concrete for one model on one machine, and
// use_parts() (pretrained.hpp) finds the trained parts, which are a value of their own.
// The keys of each table are listed once, by its fields_of() (field.hpp). A returned value has been
// checked: errors name file, key and value, and unknown keys and combinations that cannot work
// (pipeline_checks.hpp) are refused. Plain values, no I/O except reading the file; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/segment/scheduling/dispatch_options.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/config_source.hpp"
#include "launch/config/draft_config.hpp"
#include "launch/config/exit_config.hpp"
#include "launch/config/schedule_config.hpp"
#include "launch/config/self_draft_config.hpp"
#include "launch/config/stage_config.hpp"
#include "launch/config/supervision_config.hpp"

namespace paceline {

/// How tensors travel between GPUs of two processes; Auto: edge_transports.hpp chooses.
enum class TransportChoice : std::uint8_t { Auto, Host, Exported, Nccl };

struct PipelineConfig {
    std::string file;  // where it was read from, for messages
    std::string name;
    TransportChoice transport = TransportChoice::Auto;
    std::vector<StageConfig> stages;   // segments in the order of their layers
    std::optional<DraftConfig> draft;  // present exactly when a stage has the role draft
    std::optional<ExitConfig> exit;    // present when a segment has one, or heads look ahead
    std::optional<SelfDraftConfig> self_draft;  // present: the first segment drafts for itself
    ScheduleConfig schedule;
    AcceptanceRule acceptance = AcceptanceRule::Coupled;
    SupervisionConfig supervision;

    [[nodiscard]] int segments() const;
    [[nodiscard]] const StageConfig* stage_of(StageRole role) const;  // nullptr: there is none
    /// Whether an exit sends candidates to a draft.
    [[nodiscard]] bool exit_sends_candidates() const {
        return exit && exit->options.sends_candidates;
    }
};

/// The keys of [pipeline].
[[nodiscard]] std::vector<Field> fields_of(PipelineConfig& config);

/// Reads and checks the text of a file or method. Errors: BadFile (not TOML, with the line),
/// BadArgument (unknown keys, values out of range, names used twice, what cannot work together).
[[nodiscard]] Result<PipelineConfig> parse_pipeline_config(const ConfigSource& source);
/// The same; `file` is the name used in messages, `extends` names methods only.
[[nodiscard]] Result<PipelineConfig> parse_pipeline_config(std::string_view text,
                                                           const std::string& file);

/// What [schedule] means to the first segment, defaults filled in. That of prefill_rows depends on
/// the devices: Placement has it.
[[nodiscard]] DispatchOptions dispatch_options(const PipelineConfig& config);

/// Candidates after each other that the pipeline has verified at most: the bound of a client's
/// SpeculationLimits::gamma. 0: nothing is proposed.
[[nodiscard]] std::int32_t gamma_max(const PipelineConfig& config);

}  // namespace paceline
