// Which data sheet the GPU bench takes for which card.
#include "bench/cuda/card.hpp"

#include <doctest/doctest.h>

#include "bench/cuda/report.hpp"

namespace paceline::bench {
namespace {

TEST_CASE("a card is rated by its own data sheet, whatever other card's name begins like its own") {
    struct Wanted {
        const char* name;
        double terabytes_per_second;
        double teraflops;
    };
    const Wanted all[] = {
        {"NVIDIA H200", 4.8, 989},
        {"NVIDIA H200 NVL", 4.8, 835},
        {"NVIDIA H100 80GB HBM3", 3.35, 989},
        {"NVIDIA H100 PCIe", 2.0, 756},
        {"NVIDIA H100 NVL", 3.9, 835},
        {"NVIDIA GH200 480GB", 4.0, 989},
        {"NVIDIA GH200 144G HBM3e", 4.9, 989},
        {"NVIDIA H20", 4.0, 148},
        {"NVIDIA A100-SXM4-40GB", 1.555, 312},
        {"NVIDIA A100-SXM4-80GB", 2.039, 312},
        {"NVIDIA A100-PCIE-40GB", 1.555, 312},
        {"NVIDIA A100 80GB PCIe", 1.935, 312},
        {"NVIDIA L40S", 0.864, 362},
        {"NVIDIA L4", 0.3, 121},
        {"NVIDIA A10", 0.6, 125},
        {"NVIDIA GeForce RTX 4090", 1.008, 165.2},
        {"NVIDIA GeForce RTX 5090", 1.792, 209.5},
        {"NVIDIA B200", 8.0, 2250},
    };
    for (const Wanted& wanted : all) {
        CAPTURE(wanted.name);
        const DataSheet* sheet = data_sheet_of(wanted.name);
        REQUIRE(sheet != nullptr);
        CHECK(sheet->name == wanted.name);
        CHECK(sheet->bytes_per_second == doctest::Approx(wanted.terabytes_per_second * 1e12));
        CHECK(sheet->bf16_flops == doctest::Approx(wanted.teraflops * 1e12));
    }
}

TEST_CASE(
    "a card that is not listed, a part of a card and the emulated device have no data sheet") {
    for (const char* name : {"emulated device", "", "NVIDIA", "NVIDIA H2", "NVIDIA H20-3e",
                             "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200X", "H200",
                             "NVIDIA GeForce RTX 4090 D", "NVIDIA L40"}) {
        CAPTURE(name);
        CHECK(data_sheet_of(name) == nullptr);
    }
}

TEST_CASE(
    "a data sheet is told in numbers, a missing one as missing, and there is no share of it") {
    CHECK(described(data_sheet_of("NVIDIA H100 80GB HBM3")) ==
          "3.35 TB/s, 989 TFLOP/s of dense bf16");
    CHECK(described(nullptr).find("none known") == 0);
    CHECK(share_of(3.0, 4.0) == "75.0 %");
    CHECK(share_of(3.0, 0.0) == "-");
}

}  // namespace
}  // namespace paceline::bench
