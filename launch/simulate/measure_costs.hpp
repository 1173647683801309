// `paceline simulate --measure-costs`: a cost table of this machine, written to a file; and its
// records for one target, for those who need no file.
//
// One thread; the measured backends have threads of their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/load/parts_search.hpp"
#include "launch/simulate/cost_measure.hpp"
#include "launch/simulate/simulate.hpp"

namespace paceline {

/// --measure-costs, and what is measured.
void add_measure_options(Command& command, SimulateOptions& options);

/// Measures and writes the table. Errors: BadArgument for a file that cannot be written; those of
/// the models, and of measure_costs().
[[nodiscard]] Status measure_costs_file(const SimulateOptions& options,
                                        const Environment& environment);

struct MeasuredCosts {
    std::vector<CostRecord> records;
    std::vector<std::string> remarks = {};  // which model a name in the records is
};

/// Draft models as commands name them: files, folders, OWNER/NAME. Errors: those of find_model()
/// and ModelFile::open().
[[nodiscard]] Result<std::vector<ModelFile>> open_drafts(const std::vector<std::string>& paths,
                                                         const ModelOptions& model,
                                                         const Environment& environment,
                                                         const char* command);

/// Hops, the target, its trained parts and `drafts`; drafts are measured at their own depths.
/// To be called while this process has no other threads. Errors: those of measure_costs() and of
/// reading the parts.
[[nodiscard]] Result<MeasuredCosts> measure_model(
    const ModelFile& target,
    const std::vector<ModelFile>& drafts,
    const PartsSearch& search,
    const ModelOptions& model,
    CostPlan plan,
    const Machine& machine,
    const std::function<void(const std::string&)>& told);

}  // namespace paceline
