// load_served_model(): opens the model, chooses the method and starts the pipeline.
//
// With --method auto the choice is that of `paceline run` (launch/plan), by earlier runs here; a
// method that cannot be started is followed by the next one. `plain` is the pipeline
// `autoregressive`: one stage, nothing speculated.
// Slow: blocks until the stages have loaded. One thread. `log` outlives the model.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "ipc/base/result.hpp"
#include "launch/api/served_model.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/serve/serve_options.hpp"
#include "launch/serve/served_record.hpp"

namespace paceline::serve {

struct LoadedModel {
    std::unique_ptr<ServedModel> model;
    std::chrono::milliseconds drain_limit{0};
    std::optional<ServedRecord> record = {};  // nothing: the method has no name, or is on --gpus
};

/// Errors: those of the model, the configuration and PipelineSession::open().
[[nodiscard]] Result<LoadedModel> load_served_model(const ServeOptions& options,
                                                    const Environment& environment,
                                                    RunLog& log);

}  // namespace paceline::serve
