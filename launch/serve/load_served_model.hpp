// load_served_model(): opens the model, chooses the method and starts the pipeline.
//
// With --method auto the choice is that of `paceline run` (launch/plan), by earlier runs here; a
// method that cannot be started is followed by the next one. `plain` is the pipeline
// `autoregressive`: one stage, nothing speculated.
// On several machines they are met first; their pipelines are in no record.
// Slow: blocks until the stages have loaded. One thread. Options, environment and
// `log` outlive the model.
#pragma once

#include <chrono>
#include <memory>

#include "ipc/base/result.hpp"
#include "launch/api/served_model.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/serve/method/served_machines.hpp"
#include "launch/serve/method/served_method.hpp"
#include "launch/serve/serve_options.hpp"

namespace paceline::serve {

struct LoadedModel {
    std::unique_ptr<ServedMachines> machines;  // before the model; nullptr: this one alone
    std::unique_ptr<ServedModel> model;
    std::chrono::milliseconds drain_limit{0};
    /// nullptr: it has no name, is on --gpus, or on several machines.
    std::unique_ptr<ServedMethod> method = {};
    PipelineChange::Open open_again = {};  // the same pipeline; borrows the model
};

/// `waits_for` is told what is waited for besides the stages, for people; empty: nothing. Errors:
/// those of the model, the configuration, ServedMachines::open() and PipelineSession::open().
[[nodiscard]] Result<LoadedModel> load_served_model(const ServeOptions& options,
                                                    const Environment& environment,
                                                    RunLog& log,
                                                    const ConductorHub::OnMissing& waits_for);

}  // namespace paceline::serve
