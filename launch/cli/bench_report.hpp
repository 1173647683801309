// The rows of `paceline bench` and their three forms: markdown, CSV, JSON.
//
// Field names are those of llama-bench where it has them (n_prompt, n_gen, n_depth, n_threads,
// avg_ns, stddev_ns, avg_ts, stddev_ts, samples_ns, samples_ts), so that its readers can read
// this too. avg_ts is the mean of the samples' rates, stddev the sample standard deviation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/cli/bench_cases.hpp"

namespace paceline {

struct BenchRow {
    BenchCase bench;
    std::string model_file;
    std::string model_name;
    std::uint64_t model_bytes = 0;  // weights as packed
    std::uint64_t model_parameters = 0;
    std::uint64_t load_ns = 0;  // of an open file: its weights read and packed
    std::string backend = "CPU";
    std::string isa;  // of a CPU
    std::string gpu;  // its name; empty: a CPU
    std::string dtype;
    std::string kv_dtype;
    int threads = 0;
    std::vector<std::uint64_t> samples_ns;

    [[nodiscard]] std::vector<double> samples_ts() const;
};

struct Spread {
    double mean = 0.0;
    double deviation = 0.0;  // 0 for a single sample
};
[[nodiscard]] Spread spread_of(const std::vector<double>& samples);

[[nodiscard]] std::string markdown_header();
[[nodiscard]] std::string to_markdown(const BenchRow& row);
[[nodiscard]] std::string csv_header();
[[nodiscard]] std::string to_csv(const BenchRow& row);
[[nodiscard]] nlohmann::ordered_json to_json(const BenchRow& row);

}  // namespace paceline
