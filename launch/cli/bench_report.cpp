#include "launch/cli/bench_report.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <nlohmann/json.hpp>

#include "launch/base/build_info.hpp"
#include "launch/load/model_summary.hpp"

namespace paceline {

namespace {

std::vector<double> as_doubles(const std::vector<std::uint64_t>& values) {
    return {values.begin(), values.end()};
}

std::string csv_field(const nlohmann::ordered_json& value) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string{"\"\""} : std::string{c};
    return out + "\"";
}

}  // namespace

std::vector<double> BenchRow::samples_ts() const {
    std::vector<double> rates;
    for (const std::uint64_t ns : samples_ns) {
        rates.push_back(ns == 0 ? 0.0 : 1e9 * bench.count / static_cast<double>(ns));
    }
    return rates;
}

Spread spread_of(const std::vector<double>& samples) {
    if (samples.empty()) return {};
    const auto count = static_cast<double>(samples.size());
    const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
    if (samples.size() == 1) return {mean, 0.0};
    double squares = 0.0;
    for (const double sample : samples) squares += (sample - mean) * (sample - mean);
    return {mean, std::sqrt(squares / (count - 1.0))};
}

std::string markdown_header() {
    return "| model | size | params | backend | threads | dtype | test | t/s |\n"
           "| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |";
}

std::string to_markdown(const BenchRow& row) {
    const Spread rate = spread_of(row.samples_ts());
    std::array<char, 512> line{};
    std::snprintf(line.data(), line.size(), "| %s | %s | %s | %s %s | %d | %s | %s | %.2f ± %.2f |",
                  row.model_name.c_str(), human_bytes(row.model_bytes).c_str(),
                  human_count(row.model_parameters).c_str(), row.backend.c_str(),
                  (row.gpu.empty() ? row.isa : row.gpu).c_str(), row.threads, row.dtype.c_str(),
                  name(row.bench).c_str(), rate.mean, rate.deviation);
    return line.data();
}

nlohmann::ordered_json to_json(const BenchRow& row) {
    const auto count_if = [&row](BenchKind kind) {
        return row.bench.kind == kind ? row.bench.count : 0;
    };
    const Spread ns = spread_of(as_doubles(row.samples_ns));
    const Spread ts = spread_of(row.samples_ts());
    return {
        {"build_commit", build_info().commit},
        {"build_version", build_info().version},
        {"backends", row.backend},
        {"isa", row.isa},
        {"gpu_info", row.gpu},
        {"model_filename", row.model_file},
        {"model_type", row.model_name},
        {"model_size", row.model_bytes},
        {"model_n_params", row.model_parameters},
        {"load_ns", row.load_ns},
        {"dtype", row.dtype},
        {"kv_dtype", row.kv_dtype},
        {"n_threads", row.threads},
        {"test", name(row.bench)},
        {"n_prompt", count_if(BenchKind::Prompt)},
        {"n_gen", count_if(BenchKind::Generate)},
        {"n_depth", row.bench.depth},
        {"n_batch_rows", count_if(BenchKind::Batch)},
        {"n_gemm", count_if(BenchKind::Gemm)},
        {"avg_ns", static_cast<std::uint64_t>(ns.mean)},
        {"stddev_ns", static_cast<std::uint64_t>(ns.deviation)},
        {"avg_ts", ts.mean},
        {"stddev_ts", ts.deviation},
        {"samples_ns", row.samples_ns},
        {"samples_ts", row.samples_ts()},
    };
}

std::string csv_header() {
    std::string line;
    const nlohmann::ordered_json fields = to_json(BenchRow{});
    for (const auto& [key, value] : fields.items()) {
        if (value.is_array()) continue;
        line += (line.empty() ? "" : ",") + key;
    }
    return line;
}

std::string to_csv(const BenchRow& row) {
    std::string line;
    const nlohmann::ordered_json fields = to_json(row);
    for (const auto& [key, value] : fields.items()) {
        if (value.is_array()) continue;
        if (!line.empty()) line += ',';
        line += csv_field(value);
    }
    return line;
}

}  // namespace paceline
