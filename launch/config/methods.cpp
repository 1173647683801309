#include "launch/config/methods.hpp"

#include "launch/config/pipeline_checks.hpp"

namespace paceline {

Result<PipelineConfig> method_config(std::string_view name) {
    const Result<ConfigSource> source = method_source(name);
    return source ? parse_pipeline_config(source.value()) : source.error();
}

Status use_draft_model(PipelineConfig& config, const std::string& path) {
    if (!config.draft) {
        return Error{Errc::BadArgument,
                     "--draft-model: " + config.file + " has no stage with role = \"draft\""};
    }
    DraftConfig& draft = *config.draft;
    // Where lookup only stood in for a model. Beside guesses it is in front of none.
    draft.lookup = draft.lookup && draft.computes();
    if (draft.guess == DraftGuess::Jacobi) draft.guess = DraftGuess::None;  // alone or not at all
    draft.model = DraftModelKind::File;
    draft.model_file = path;
    return {};
}

Status use_device(PipelineConfig& config, const Device& device) {
    for (StageConfig& stage : config.stages) {
        stage.device = device;
        if (!is_segment(stage)) stage.device.others.clear();
        if (config.stages.size() == 1) continue;
        stage.process = "gpu";
        stage.threads = 0;
    }
    return check_pipeline(config);
}

Result<PipelineConfig> written_config(const ConfigSource& source,
                                      const Device& device,
                                      const std::string& draft_model) {
    Result<PipelineConfig> config = parse_pipeline_config(source);
    if (!config) return config;
    if (device.gpu) {
        if (Status s = use_device(config.value(), device); !s) return s.error();
    }
    if (!draft_model.empty()) {
        if (Status s = use_draft_model(config.value(), draft_model); !s) return s.error();
    }
    return config;
}

Device target_device(const PipelineConfig& config) {
    const StageConfig* segment = config.stage_of(StageRole::Segment);
    return segment == nullptr ? Device{} : segment->device;
}

}  // namespace paceline
