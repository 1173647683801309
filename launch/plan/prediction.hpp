// predict_method(): tokens per second of a method on this machine without decoding: its pipeline in
// the simulated world (launch/simulate), with an oracle's text and costs measured here.
//
//     processes that take turns        each costs what it takes with all cores
//     each on cores of its own         what it takes with those, beside a busy neighbour
//     more processes that compute at   not predicted: how they slow each other is not in a table of
//     the same time than cores         costs; a trial shows it
//
// An oracle's text repeats nothing, so a lookup finds nothing in it: such methods are predicted
// without what the lookup brings. One thread; computes for milliseconds.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/simulate/oracle_backend.hpp"
#include "model/weights/model_file.hpp"
#include "runtime/simulation/cost_table.hpp"

namespace paceline {

struct PredictionInputs {
    const ModelFile& file;
    const ModelOptions& model;
    const CostTable& costs;
    std::vector<int> cores;  // that this program may use
    OracleAccuracy accuracy;
    int prompt_tokens = 64;
    int answer_tokens = 256;
};

struct Prediction {
    double tokens_per_second = 0.0;  // 0: not predicted
    std::string note = {};           // why not, or what is left out
};

/// Errors: those of place() and simulate().
[[nodiscard]] Result<Prediction> predict_method(const PredictionInputs& inputs,
                                                const ResolvedConfig& pipeline);

}  // namespace paceline
