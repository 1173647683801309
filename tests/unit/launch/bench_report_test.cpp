// The rows of `paceline bench`.
#include "launch/cli/bench_report.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

BenchRow row_with(std::vector<std::uint64_t> samples) {
    BenchRow row;
    row.bench = {BenchKind::Prompt, 512, 2048};
    row.model_name = "SmolLM2 \"135M\"";
    row.model_bytes = 98'400'000;
    row.model_parameters = 134'515'008;
    row.threads = 2;
    row.dtype = "q4";
    row.isa = "avx512";
    row.samples_ns = std::move(samples);
    return row;
}

}  // namespace

TEST_CASE("rates are means of the samples' rates, with the sample standard deviation") {
    const Spread spread = spread_of({1.0, 2.0, 3.0, 4.0});
    CHECK(spread.mean == doctest::Approx(2.5));
    CHECK(spread.deviation == doctest::Approx(std::sqrt(5.0 / 3.0)));
    CHECK(spread_of({7.0}).deviation == 0.0);
    const std::vector<double> rates = row_with({1'000'000'000, 500'000'000}).samples_ts();
    CHECK(rates == std::vector<double>{512.0, 1024.0});
}

TEST_CASE("tests are named as llama-bench names them") {
    CHECK(name(BenchCase{BenchKind::Prompt, 512, 0}) == "pp512");
    CHECK(name(BenchCase{BenchKind::Generate, 128, 2048}) == "tg128 @ d2048");
    CHECK(name(BenchCase{BenchKind::Batch, 8, 0}) == "b8");
    CHECK(name(BenchCase{BenchKind::Gemm, 8, 0}) == "gemm8");
}

TEST_CASE("a markdown row has as many cells as its header") {
    const auto cells = [](const std::string& line) {
        return std::count(line.begin(), line.end(), '|');
    };
    const std::string header = markdown_header();
    const std::string row = to_markdown(row_with({1'000'000'000}));
    CHECK(cells(row) == cells(header.substr(0, header.find('\n'))));
    CHECK(row.find("98.4 MB") != std::string::npos);
    CHECK(row.find("pp512 @ d2048 | 512.00") != std::string::npos);
}

TEST_CASE("JSON and CSV carry llama-bench's field names, and CSV quotes its quotes") {
    const nlohmann::ordered_json json = to_json(row_with({1'000'000'000, 1'000'000'000}));
    CHECK(json["n_prompt"] == 512);
    CHECK(json["n_gen"] == 0);
    CHECK(json["n_depth"] == 2048);
    CHECK(json["n_threads"] == 2);
    CHECK(json["avg_ns"] == 1'000'000'000);
    CHECK(json["avg_ts"] == doctest::Approx(512.0));
    CHECK(json["stddev_ts"] == doctest::Approx(0.0));
    CHECK(json["samples_ns"].size() == 2);
    const std::string header = csv_header();
    const std::string line = to_csv(row_with({1'000'000'000}));
    CHECK(std::count(header.begin(), header.end(), ',') ==
          std::count(line.begin(), line.end(), ','));
    CHECK(line.find("\"SmolLM2 \"\"135M\"\"\"") != std::string::npos);
}
