// `paceline bench`: how fast the model primitive is here, in the manner of llama-bench.
#pragma once

#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"

namespace paceline {

/// Lists are comma separated words, as typed; every combination is measured.
struct BenchOptions {
    ModelOptions model;   // model, kv_dtype, isa, device; the other members are swept
    std::string threads;  // empty: the default of `run`
    std::string dtypes = "auto";
    std::string prompts = "512";
    std::string generated = "128";
    std::string depths = "0";
    std::string batches;  // rows of a batch; empty: none
    bool gemm = false;    // also the matrix products of each batch alone
    int repetitions = 5;
    std::string format = "md";  // md, csv, json
};

Command add_bench(Command& app, BenchOptions& options);
int run_bench(const BenchOptions& options, const Environment& environment);

}  // namespace paceline
