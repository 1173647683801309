// CostTable: measured costs for simulating pipelines: seconds of a job by stage, model, layers,
// rows, context, threads and busy neighbours, and seconds of a transfer by edge.
//
// A file of lines; fields are separated by tabs. '#' starts a comment line. The first other line
// names the columns:
//
//     stage  fingerprint  layers  rows  context  threads  neighbours  seconds
//     verify llama-8b     32      1     512      8        0           0.0413
//     draft>segment-1  -  0       1     0        0        0           0.000004     (a transfer)
//
// A cost is looked up in the records of its stage and fingerprint that are nearest in threads, then
// neighbours, then layers. Between them it is interpolated in rows and context; beyond them the
// nearest record is used, except that for more rows than were measured, and than a batch may
// verify, time grows in proportion to the rows. Time is scaled in proportion to the layers; records
// with 0 layers apply to any number. Values; no side effects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

struct CostRecord {
    std::string stage;        // what is computed, or "FROM>TO"
    std::string fingerprint;  // of the model; "-" if none
    std::uint32_t layers = 0;
    std::uint32_t rows = 1;
    std::uint32_t context = 0;
    std::uint32_t threads = 0;
    std::uint32_t neighbours = 0;  // processes that compute on the same device or memory meanwhile
    double seconds = 0.0;
};

class CostTable {
public:
    /// Errors: BadFile with `name` and line, the field and its value.
    [[nodiscard]] static Result<CostTable> parse(std::string_view text, const std::string& name);
    [[nodiscard]] static CostTable of(std::vector<CostRecord> records);

    /// The expected seconds of what `wanted` describes (its own seconds are not read).
    /// Errors: BadArgument if there is no record of its stage and fingerprint.
    [[nodiscard]] Result<double> seconds(const CostRecord& wanted) const;
    [[nodiscard]] bool knows(std::string_view stage, std::string_view fingerprint) const;
    [[nodiscard]] const std::vector<CostRecord>& records() const { return records_; }

private:
    std::vector<CostRecord> records_;
};

}  // namespace paceline
