// SimulatedPipeline: a placed pipeline in the simulated world (runtime/simulation/sim_world.hpp):
// the same actors on the real model's weights, so that text, acceptance and exit hits are real (or, for
// a model that does not fit here, on an oracle with given ones), and a virtual clock fed by a cost table, so that devices that are not there can be compared.
//
// One process of the configuration is one device. Jobs are computed on this machine's cores, one
// after the other; the time that this takes does not influence the result. There are no faults in this
// world.
// Owns weights, actors and world. One thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/session/pipeline_figures.hpp"
#include "launch/tools/check_overlap.hpp"
#include "launch/tools/oracle_backend.hpp"
#include "launch/tools/simulate_timing.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct SimulateTask {
    std::vector<std::vector<TokenId>> prompts;
    Request request;  // of every answer but for its text; its context is the pipeline's
    int at_once = 1;  // answers that are decoded at the same time
    bool trace = false;
    /// The model is a shape: its text is an oracle's, whose drafts and exits are right so often.
    std::optional<OracleAccuracy> oracle = {};
};

struct SimulatedAnswer {
    std::vector<TokenId> ids;
    AnswerFigures figures;
};

struct SimulatedRun {
    std::vector<SimulatedAnswer> answers;  // in the order of the prompts
    double seconds = 0.0;                  // simulated, from the first Begin to the last token
    /// Tokens after the first of each answer, over the time for them; with several at once all
    /// tokens over `seconds`.
    double rate = 0.0;
    PipelineFigures figures;
    Overlap overlap;    // of draft and target, in simulated time
    std::string trace;  // a trace file; empty unless asked for
};

/// Builds the world of `config` for `model`, answers all prompts, takes it down again.
/// Errors: those of place() and make_stage_actors(); BadArgument for a prompt that does not fit or
/// costs that the table lacks; Protocol if an actor broke a rule of the world.
[[nodiscard]] Result<SimulatedRun> simulate(const ModelFile& file,
                                            const ModelOptions& model,
                                            const PipelineConfig& config,
                                            const CostTable& costs,
                                            const std::string& costs_file,
                                            StageTimingOptions timing,
                                            const SimulateTask& task);

}  // namespace paceline
