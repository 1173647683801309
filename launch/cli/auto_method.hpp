// AutoMethod: `--method auto` of a command: which method the command runs with, and what it adds to
// the record of this model and machine at its end (launch/plan).
// One thread.
#pragma once

#include <optional>

#include "launch/base/environment.hpp"
#include "launch/cli/run.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/plan/method_history.hpp"
#include "launch/session/pipeline_stats.hpp"
#include "launch/session/run_stats.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

class AutoMethod {
public:
    /// Borrows the file. `drawn`: the answers have a temperature.
    AutoMethod(const RunOptions& options,
               const ModelFile& file,
               bool drawn,
               const Environment& environment);

    /// Of options with --method auto. `exact` false, which plain decoding alone has: plain.
    [[nodiscard]] AutoChoice choose(const RunOptions& options) const;
    /// An answer was decoded by this method of `options`. Counted are answers of some length, by a
    /// method whose run shows plain decoding's speed as well.
    void learn(const RunOptions& options,
               const RunStats& run,
               const std::optional<PipelineStats>& pipeline,
               const std::optional<PipelineConfig>& written);

private:
    MethodHistory history_;
};

}  // namespace paceline
