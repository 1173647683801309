// ServedPipelines: the pipelines of methods, as the options of a server ask for them.
//
// Borrows options, environment, log and the other machines; a copy does as well. Opening blocks
// until the stages have loaded. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/serve/serve_options.hpp"
#include "launch/session/pipeline_session.hpp"

namespace paceline::serve {

struct ServedPipeline {
    std::unique_ptr<PipelineSession> session;
    PipelineConfig config;
    double load_seconds = 0.0;
};

class ServedPipelines {
public:
    ServedPipelines(const ServeOptions& options, const Environment& environment, RunLog& log)
        : options_{&options}, environment_{&environment}, log_{&log} {}

    /// From now on pipelines have stages on these machines too, which outlive their sessions.
    void use(Cluster& cluster) { cluster_ = &cluster; }
    /// [supervision] of the pipeline that open() starts. Errors: those of the configuration.
    [[nodiscard]] Result<SupervisionConfig> supervision(const std::string& method,
                                                        const std::string& draft_model) const;
    /// The pipeline of --config, or of `method`, with `draft_model` if it is not empty. `file` must
    /// outlive its session. Errors: those of the configuration and of PipelineSession::open().
    [[nodiscard]] Result<ServedPipeline> open(const ModelFile& file,
                                              const std::string& method,
                                              const std::string& draft_model) const;
    /// With the draft model of the options if the method can use it.
    [[nodiscard]] Result<ServedPipeline> open_any(const ModelFile& file,
                                                  const std::string& method) const;
    /// Whether the memory that is free now is enough for a whole pipeline of `method`. False where
    /// this is not known: a stage is on a GPU, or the kernel does not say.
    [[nodiscard]] bool fits_beside(const ModelFile& file, const std::string& method) const;

private:
    [[nodiscard]] Result<PipelineConfig> config_of(const std::string& method,
                                                   const std::string& draft_model) const;
    [[nodiscard]] Result<PipelineConfig> config_of_any(const std::string& method) const;
    [[nodiscard]] Result<ServedPipeline> start(const ModelFile& file, PipelineConfig written) const;

    const ServeOptions* options_;
    const Environment* environment_;
    RunLog* log_;
    Cluster* cluster_ = nullptr;
};

}  // namespace paceline::serve
