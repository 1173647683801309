// SimulatedPipeline: a placed pipeline in the simulated world (runtime/simulation/sim_world.hpp):
// the same actors on the real model's weights, so that text, acceptance and exit hits are real (or,
// for a model that does not fit here, on an oracle with given ones), and a virtual clock fed by a
// cost table, so that devices that are not there can be compared.
//
// One process of the configuration is one device, unless the task has several share one. Jobs are
// computed on this machine's cores, one after the other; the time that this takes does not
// influence the result. There are no faults in this world.
// Owns weights, actors and world. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/session/pipeline_stats.hpp"
#include "launch/simulate/oracle_backend.hpp"
#include "launch/simulate/overlap.hpp"
#include "launch/simulate/timing.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct SimulateTask {
    std::vector<std::vector<TokenId>> prompts;
    Request request;  // of every answer but for its text; its context is the pipeline's
    int at_once = 1;  // answers that are decoded at the same time
    bool trace = false;
    /// Names of processes that share a device, for each such device (shared_device.hpp); a single
    /// "all" puts every process on one.
    std::vector<std::vector<std::string>> shared_devices = {};
    /// The model is a shape: its text is an oracle's, whose drafts and exits are right so often.
    std::optional<OracleAccuracy> oracle = {};
};

struct SimulatedRun {
    std::vector<Answer> answers;  // in the order of the prompts
    /// Its `seconds` are simulated, from the first Begin to the last token; its `rate` is that of
    /// the tokens after the first of each answer, over the time for them, or with several at once
    /// all tokens over `seconds`.
    PipelineStats stats;
    Overlap overlap;    // of draft and target, in simulated time
    std::string trace;  // a trace file; empty unless asked for
};

/// Builds the world of `pipeline` for `model`, answers all prompts, takes it down again.
/// Errors: those of place() and make_stage_actors(); BadArgument for a prompt that does not fit,
/// costs that the table lacks, or a shared device of no process or one of another device; Protocol
/// if an actor broke a rule of the world.
[[nodiscard]] Result<SimulatedRun> simulate(const ModelFile& file,
                                            const ModelOptions& model,
                                            const ResolvedConfig& pipeline,
                                            const CostTable& costs,
                                            const std::string& costs_file,
                                            StageTimingOptions timing,
                                            const SimulateTask& task);

}  // namespace paceline
