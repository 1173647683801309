// Which types of a file are named as rounded, on a CPU and on a GPU.
#include "launch/load/stored_types.hpp"

#include <string>

#include <doctest/doctest.h>

#include "tests/support/fixture_model.hpp"

namespace paceline {
namespace {

using testing::open_fixture;

const Device kCpu{};
const Device kGpu{.gpu = 0};

bool names(const std::string& line, const std::string& what) {
    return line.find(what) != std::string::npos;
}

TEST_CASE("float16 is named where it becomes bfloat16: with --dtype bf16 and on a GPU") {
    const ModelFile file = open_fixture("llama-untied-f16");
    const std::string line = "F16 is computed as bf16 (to bfloat16)";
    CHECK(rounded_types_text(file, Dtype::Auto, kCpu).empty());
    CHECK(rounded_types_text(file, Dtype::F32, kCpu).empty());
    CHECK(rounded_types_text(file, Dtype::F32, kGpu).empty());
    CHECK(names(rounded_types_text(file, Dtype::BF16, kCpu), line));
    CHECK(names(rounded_types_text(file, Dtype::BF16, kGpu), line));
    CHECK(names(rounded_types_text(file, Dtype::Auto, kGpu), line));
}

TEST_CASE("a file of float32 or bfloat16 is not rounded without --dtype, on either device") {
    for (const char* name : {"llama-f32", "llama3-bf16", "mistral-q8_0"}) {
        CAPTURE(name);
        const ModelFile file = open_fixture(name);
        CHECK(rounded_types_text(file, Dtype::Auto, kCpu).empty());
        CHECK(rounded_types_text(file, Dtype::Auto, kGpu).empty());
    }
    CHECK(names(rounded_types_text(open_fixture("llama-f32"), Dtype::BF16, kCpu),
                "F32 is computed as bf16 (to bfloat16)"));
}

TEST_CASE("float16 is exact on a CPU, in the memory of the file") {
    const ModelFile file = open_fixture("llama-untied-f16");
    for (const StoredUse& use : stored_uses(file, Dtype::Auto, kCpu)) {
        CHECK(use.packed == PackedType::F16);
        CHECK(rounding_text(use.stored, use.packed) == "exact");
    }
}

}  // namespace
}  // namespace paceline
