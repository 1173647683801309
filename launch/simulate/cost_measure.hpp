// measure_costs(): what a model's jobs cost on this machine, as records of a cost table
// (cost_names.hpp says how they are called).
//
// A record for every combination of rows, context, depth in layers, threads and busy neighbours;
// heads by rows; hops by rows. Neighbours take cores that the measured threads leave free; where
// there are none the combination is left out.
// To be called while this process has no other threads: it forks (cost_neighbour.hpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "model/weights/model_file.hpp"
#include "runtime/parent/affinity.hpp"
#include "runtime/simulation/cost_table.hpp"

namespace paceline {

struct CostPlan {
    std::vector<int> rows{1, 2, 4, 8, 16, 32, 64};  // at most kBatchRowsMax
    std::vector<int> contexts{64, 512, 1536};       // those beyond the model's are left out
    std::vector<int> depths{};   // layers; empty: 1, 2, 4, 8, a quarter, half and all of them
    std::vector<int> threads{};  // empty: 1 and as many as there are cores
    std::vector<int> neighbours{0, 1};
    std::vector<int> short_lists{0};  // tokens of a head's short list; 0: all
    int samples = 5;
    double sample_seconds = 0.02;
};

/// The depths of `plan` for a model of `layers` layers: ascending, each once.
[[nodiscard]] std::vector<int> depths_of(const CostPlan& plan, int layers);

/// `told` gets a line now and then. Errors: BadArgument for a plan that makes no sense; those of
/// make_cpu_backend() and of neighbours.
[[nodiscard]] Result<std::vector<CostRecord>> measure_costs(
    const ModelFile& file,
    const ModelOptions& model,
    const CostPlan& plan,
    const Machine& machine,
    const std::function<void(const std::string&)>& told);

/// The hops of a model with `dim` numbers in a hidden state: from process to process.
[[nodiscard]] Result<std::vector<CostRecord>> measure_hops(int dim, const CostPlan& plan);

}  // namespace paceline
