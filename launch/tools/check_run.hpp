// check_pipeline(): a configuration against plain decoding on a set of prompts, with processes
// killed, stopped and slowed down on request: the integration test of a pipeline.
//
// Plain decoding runs first, in this process, then the pipeline. Nothing in the pipeline may
// change a token; what it costs is reported.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/backend/used_parts.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/session/pipeline_figures.hpp"
#include "launch/tools/check_compare.hpp"
#include "launch/tools/check_faults.hpp"
#include "launch/tools/check_overlap.hpp"
#include "launch/tools/check_prompts.hpp"

namespace paceline {

struct CheckTask {
    std::vector<Prompt> prompts;
    Request request;  // of every answer but for its text
    int at_once = 1;  // answers decoded at the same time
    FaultPlan faults;
};

struct CheckedAnswer {
    std::vector<TokenId> ids;
    AnswerFigures figures;
    std::string error;  // why there is no answer; empty: there is one
    double rate = 0.0;  // tokens/s after the first one
};

struct CheckResult {
    std::vector<PlainAnswer> plain;      // in the order of the prompts,
    std::vector<CheckedAnswer> answers;  // and these too
    PipelineFigures figures;
    Overlap overlap;
    int kills = 0;
    int stalls = 0;
    double plain_rate = 0.0;     // of all prompts: tokens after the first over their time
    double pipeline_rate = 0.0;  // the same; with several at once, all tokens over all the time

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
