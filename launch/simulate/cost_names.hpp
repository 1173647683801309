// How measured costs are called in a cost table (runtime/simulation/cost_table.hpp), for those who
// write one (`simulate --measure-costs`) and those who ask it (`simulate --costs`).
//
// A model's name in the table says what its jobs cost: the file, the dtype of its packed weights,
// and the length of the short list if its heads have one:  "SmolLM2-135M:auto",
// "SmolLM2-135M:auto:4096".
//
//     verify, prefill, draft   rows through the layers, without any head
//     head                     rows through one head
//     hop                      a message from process to process; rows: of a batch
//
// Pure.
#pragma once

#include <string>
#include <vector>

#include "model/weights/model_file.hpp"
#include "runtime/simulation/cost_table.hpp"

namespace paceline {

/// The model of jobs that end in no head.
inline constexpr const char* kNoModel = "-";

/// A target with a LoRA merged: "SmolLM2-135M+early-exit:auto", for its weights have other types.
[[nodiscard]] std::string cost_name(const ModelFile& file,
                                    const std::string& dtype,
                                    int short_list);
/// Of a file as it is.
[[nodiscard]] std::string cost_name(const std::string& model_path,
                                    const std::string& dtype,
                                    int short_list);

/// A file that CostTable::parse() reads, with `remarks` as comment lines in front.
[[nodiscard]] std::string cost_table_text(const std::vector<CostRecord>& records,
                                          const std::vector<std::string>& remarks);

/// The table with the seconds of all records of `stage` times `factor`.
[[nodiscard]] CostTable scaled(const CostTable& table, const std::string& stage, double factor);

}  // namespace paceline
