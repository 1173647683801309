// `paceline simulate --measure-costs`: a cost table of this machine, written to a file.
//
// One thread; the measured backends have threads of their own.
#pragma once

#include "ipc/base/result.hpp"
#include "launch/simulate/simulate.hpp"

namespace paceline {

/// --measure-costs, and what is measured.
void add_measure_options(Command& command, SimulateOptions& options);

/// Measures and writes the table. Errors: BadArgument for a file that cannot be written; those of
/// the models, and of measure_costs().
[[nodiscard]] Status measure_costs_file(const SimulateOptions& options,
                                        const Environment& environment);

}  // namespace paceline
