// check_pipeline(): a configuration against plain decoding on a set of prompts, with processes
// killed, stopped and slowed down on request: the integration test of a pipeline.
//
// Plain decoding runs first, in this process, then the pipeline. Nothing in the pipeline may
// change a token; what it costs is reported.
#pragma once

#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/check/faults.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/session/answer_compare.hpp"
#include "launch/session/pipeline_stats.hpp"
#include "launch/simulate/overlap.hpp"

namespace paceline {

struct CheckTask {
    std::vector<Prompt> prompts;
    Request request;              // of every answer but for its text
    int at_once = 1;              // answers decoded at the same time
    std::uint64_t kv_memory = 0;  // of the target's KV caches; 0: as many contexts as answers
    FaultPlan faults;
    bool remarks = true;  // what the stages use is said on standard error
};

struct CheckResult {
    std::vector<Answer> plain;    // in the order of the prompts,
    std::vector<Answer> answers;  // and these too
    /// Its rate and baseline_rate are of all prompts: tokens after the first over their time; with
    /// several at once `rate` is all tokens over all the time.
    PipelineStats stats;
    Overlap overlap;
    int kills = 0;
    int stalls = 0;

    /// The same tokens, and the same scores if they were asked for.
    [[nodiscard]] bool equal(std::size_t prompt) const;
    [[nodiscard]] bool all_equal() const;
};

/// Errors: those of PipelineSession and of plain decoding; BadArgument for acceptance by
/// rejection, whose text depends on the drafts, and for a slow stage that no process is.
[[nodiscard]] Result<CheckResult> check_pipeline(const OpenedModel& model,
                                                 const ModelOptions& options,
                                                 const ResolvedConfig& pipeline,
                                                 const CheckTask& task,
                                                 const Environment& environment,
                                                 RunLog& log);

}  // namespace paceline
