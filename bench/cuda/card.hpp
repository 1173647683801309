// What a card's data sheet promises, chosen by the name that the driver gives the card.
//
// A card that is not listed has no data sheet here: shares of a data sheet are then not told, since
// those of another card would be wrong. Figures of merit are judged by the bandwidth that the bench
// measures (copy_section()), not by this. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace paceline::bench {

struct DataSheet {
    std::string_view name;          // cudaDeviceProp::name, which nvidia-smi prints too
    double bytes_per_second = 0.0;  // of the card's memory
    double bf16_flops = 0.0;        // of its tensor cores: dense, float sums
};

/// nullptr if the card is not listed. Names are compared as a whole: an H20 is not an H200, and a
/// part of a card (MIG) is not the card.
[[nodiscard]] const DataSheet* data_sheet_of(std::string_view device);

/// "4.80 TB/s, 989 TFLOP/s of dense bf16", or that the card is not listed.
[[nodiscard]] std::string described(const DataSheet* sheet);

}  // namespace paceline::bench
