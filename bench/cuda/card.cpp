#include "bench/cuda/card.hpp"

#include <algorithm>

#include "bench/cuda/report.hpp"

namespace paceline::bench {
namespace {

// From NVIDIA's data sheets and architecture white papers. Where a sheet gives the rate of bf16
// with sparsity alone, half of it stands here.
//
//     H200 data sheet: H200 SXM and H200 NVL       H100 data sheet: H100 SXM, PCIe and NVL
//     GH200 Grace Hopper Superchip data sheet      DGX B200 data sheet, an eighth of the system's
//     A100 data sheet: 40GB and 80GB, SXM, PCIe    L40S, L4 and A10 data sheets
//     Ada and RTX Blackwell GPU architecture white papers: bf16 with float sums
//     H20: as resellers list it; NVIDIA publishes no data sheet
constexpr DataSheet kSheets[] = {
    {"NVIDIA H200", 4.8e12, 989e12},
    {"NVIDIA H200 NVL", 4.8e12, 835e12},
    {"NVIDIA H100 80GB HBM3", 3.35e12, 989e12},
    {"NVIDIA H100 PCIe", 2.0e12, 756e12},
    {"NVIDIA H100 NVL", 3.9e12, 835e12},
    {"NVIDIA GH200 120GB", 4.0e12, 989e12},  // 96 GB of HBM3; 120 GB is the host's memory
    {"NVIDIA GH200 480GB", 4.0e12, 989e12},  // the same with 480 GB
    {"NVIDIA GH200 144G HBM3e", 4.9e12, 989e12},
    {"NVIDIA H20", 4.0e12, 148e12},
    {"NVIDIA B200", 8.0e12, 2250e12},
    {"NVIDIA A100-SXM4-40GB", 1.555e12, 312e12},
    {"NVIDIA A100-SXM4-80GB", 2.039e12, 312e12},
    {"NVIDIA A100-PCIE-40GB", 1.555e12, 312e12},
    {"NVIDIA A100 80GB PCIe", 1.935e12, 312e12},
    {"NVIDIA L40S", 0.864e12, 362e12},
    {"NVIDIA L4", 0.3e12, 121e12},
    {"NVIDIA A10", 0.6e12, 125e12},
    {"NVIDIA GeForce RTX 4090", 1.008e12, 165.2e12},
    {"NVIDIA GeForce RTX 5090", 1.792e12, 209.5e12},
};

}  // namespace

const DataSheet* data_sheet_of(std::string_view device) {
    const auto* const end = std::end(kSheets);
    const auto* const found = std::find_if(
        std::begin(kSheets), end, [&](const DataSheet& sheet) { return sheet.name == device; });
    return found == end ? nullptr : found;
}

std::string described(const DataSheet* sheet) {
    if (sheet == nullptr) return "none known for this card (bench/cuda/card.cpp)";
    return fixed(sheet->bytes_per_second / 1e12, 2) + " TB/s, " +
           fixed(sheet->bf16_flops / 1e12, 0) + " TFLOP/s of dense bf16";
}

}  // namespace paceline::bench
