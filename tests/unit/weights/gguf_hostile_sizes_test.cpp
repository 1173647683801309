// Tensor sizes whose products or paddings wrap around 2^64: five published holes of one kind.
#include <limits>

#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
constexpr const char* kVictim = "blk.0.ffn_up.weight";

void expect_bad_size(const std::vector<std::uint64_t>& dims, std::uint32_t type) {
    GgufBuilder builder = tiny_model();
    builder.tensor(kVictim).dims = dims;
    builder.tensor(kVictim).ggml_type = type;
    CAPTURE(dims.size());
    CAPTURE(type);
    expect_refused(builder.bytes(), Errc::BadFile, {kVictim});
}

TEST_CASE("elements whose count wraps to a small number are refused (CVE-2026-33298)") {
    for (const std::uint32_t type : {0U, 1U, 2U, 3U, 8U, 30U}) {
        expect_bad_size({1ULL << 32U, 1ULL << 32U}, type);         // 2^64: wraps to 0
        expect_bad_size({(1ULL << 32U) + 32, 1ULL << 32U}, type);  // wraps to 2^37
        expect_bad_size({1ULL << 16U, 1ULL << 16U, 1ULL << 16U, 1ULL << 16U}, type);
        expect_bad_size({32, kHuge, kHuge, kHuge}, type);
    }
}

TEST_CASE("a vector whose further dimensions wrap to nothing is refused") {
    GgufBuilder builder = tiny_model();
    for (const std::uint64_t last : {std::uint64_t{1} << 32U, kHuge}) {
        builder.tensor("blk.0.ffn_norm.weight").dims = {64, 1ULL << 32U, last};
        expect_refused(builder.bytes(), Errc::BadFile,
                       {"blk.0.ffn_norm.weight", "more rows than can be counted"});
    }
}

TEST_CASE("elements whose count is negative as a signed number are refused") {
    for (const std::uint32_t type : {0U, 3U}) {
        expect_bad_size({1ULL << 63U}, type);
        expect_bad_size({1ULL << 62U, 2}, type);
        expect_bad_size({kHuge - 31}, type);
    }
}

TEST_CASE("elements that can be counted but whose bytes wrap are refused") {
    expect_bad_size({1ULL << 62U}, 0);            // times 4 bytes: 2^64
    expect_bad_size({(1ULL << 62U) + 8}, 0);      // times 4 bytes: 32
    expect_bad_size({32, (1ULL << 58U) - 1}, 8);  // blocks of 34 bytes
    expect_bad_size({1ULL << 31U, (1ULL << 32U) - 1}, 0);
}

TEST_CASE("a size that wraps when it is padded is refused (the guard runs before the pad)") {
    // 2^62 - 1 floats are 2^64 - 4 bytes: rounding up to 32 would give 0.
    expect_bad_size({(1ULL << 62U) - 1}, 0);
    expect_bad_size({(1ULL << 61U) - 1}, 0);
}

TEST_CASE("sizes that only wrap when they are summed are refused (CVE-2025-53630)") {
    // Two halves of 2^64 bytes: each fits a uint64, their sum is 0.
    GgufBuilder builder = tiny_model();
    builder.tensor(kVictim).dims = {1ULL << 61U};
    builder.tensor("blk.0.ffn_gate.weight").dims = {1ULL << 61U};
    expect_refused(builder.bytes(), Errc::BadFile, {"does not fit the file"});
}

TEST_CASE("rows that are no whole number of blocks are refused") {
    for (const std::uint32_t type : {2U, 3U, 8U}) {
        GgufBuilder builder = tiny_model();
        builder.tensor(kVictim).dims = {65, 96};
        builder.tensor(kVictim).ggml_type = type;
        expect_refused(builder.bytes(), Errc::BadFile, {kVictim, "65", "multiple of 32"});
    }
}

TEST_CASE("every tensor's shape must be exactly what the configuration demands") {
    const GgufBuilder valid = tiny_model();
    for (std::size_t i = 0; i < valid.tensors.size(); ++i) {
        for (const bool first : {true, false}) {
            GgufBuilder builder = valid;
            std::vector<std::uint64_t>& dims = builder.tensors[i].dims;
            (first ? dims.front() : dims.back()) -= 1;  // still inside the file
            CAPTURE(builder.tensors[i].name);
            CHECK_FALSE(read_bytes(builder.bytes()).ok());
        }
    }
}

TEST_CASE("a matrix given the other way round is refused") {
    GgufBuilder builder = tiny_model();
    builder.tensor(kVictim).dims = {96, 64};
    expect_refused(builder.bytes(), Errc::BadFile, {kVictim, "[64, 96]", "[96, 64]"});
}

TEST_CASE("every missing tensor but the optional ones is named") {
    const GgufBuilder valid = tiny_model();
    for (const BuiltTensor& tensor : valid.tensors) {
        GgufBuilder builder = valid;
        builder.remove_tensor(tensor.name);
        expect_refused(builder.bytes(), Errc::BadFile, {tensor.name, "missing"});
    }
}

}  // namespace
}  // namespace paceline
