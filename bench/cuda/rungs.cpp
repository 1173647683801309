#include "bench/cuda/rungs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>

namespace paceline::bench {
namespace {

const Rung& first_of(std::span<const Rung> rungs, const Rung& rung) {
    return *std::find_if(rungs.begin(), rungs.end(), [&](const Rung& other) {
        return other.product == rung.product && other.rows == rung.rows;
    });
}

std::string place_of(const Rung& rung) {
    return fmt::format("{}, {} rows, {}", rung.product, rung.rows, rung.choice);
}

}  // namespace

std::uint64_t mixed(std::uint64_t sum, std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
        sum ^= static_cast<std::uint64_t>(byte);
        sum *= 0x100000001B3U;
    }
    return sum;
}

std::size_t count_nan_floats(std::span<const std::byte> bytes) {
    std::size_t count = 0;
    for (std::size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
        float value = 0.0f;
        std::memcpy(&value, bytes.data() + at, sizeof value);
        if (std::isnan(value)) ++count;
    }
    return count;
}

std::size_t count_nan_bf16(std::span<const std::byte> bytes) {
    std::size_t count = 0;
    for (std::size_t at = 0; at + sizeof(std::uint16_t) <= bytes.size();
         at += sizeof(std::uint16_t)) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + at, sizeof bits);
        // All bits of the exponent and one of the mantissa.
        if ((bits & 0x7FFFU) > 0x7F80U) ++count;
    }
    return count;
}

bool equals_first(std::span<const Rung> rungs, std::size_t at) {
    return rungs[at].checksum == first_of(rungs, rungs[at]).checksum;
}

std::vector<std::string> faults_of(std::span<const Rung> rungs) {
    std::vector<std::string> faults;
    for (std::size_t i = 0; i < rungs.size(); ++i) {
        const Rung& rung = rungs[i];
        if (!equals_first(rungs, i))
            faults.push_back(place_of(rung) + ": other bits than " + first_of(rungs, rung).choice);
        if (rung.nans > 0)
            faults.push_back(fmt::format("{}: {} results are NaN", place_of(rung), rung.nans));
    }
    return faults;
}

}  // namespace paceline::bench
