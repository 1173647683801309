// Weights that are not finite: found while they are packed, whatever they are stored and packed as.
#include <string>

#include "tests/unit/backend/spoilt_file.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline::testing {
namespace {

void check_refused(const std::string& fixture, CpuOptions options) {
    CAPTURE(fixture);
    const SpoiltFile copy{fixture};
    const Result<ModelFile> file = ModelFile::open(copy.path());
    REQUIRE(file.ok());
    const std::string name = copy.spoil_a_matrix(file.value());
    options.kv_slots = 32;
    const Result<std::unique_ptr<CpuBackend>> made = make_cpu_backend(file.value(), options);
    REQUIRE(!made.ok());
    CHECK(made.error().code == Errc::BadFile);
    const std::string& what = made.error().what;
    CAPTURE(what);
    CHECK(what.find(copy.path()) != std::string::npos);
    CHECK(what.find('"' + name + "\" holds a number that is not finite, in row 3") !=
          std::string::npos);
}

}  // namespace

TEST_CASE("a scale of a block or a weight that is not finite is BadFile, by tensor and row") {
    for (const char* fixture :
         {"llama-f32", "qwen2-f16", "llama3-bf16", "mistral-q8_0", "llama-q4_0", "llama-q4_1",
          "llama-small-blocks", "llama-q4_k_m", "qwen3-k-mix"}) {
        for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4}) {
            CpuOptions options;
            options.dtype = dtype;
            check_refused(fixture, options);
        }
    }
}

TEST_CASE("a weight that is not finite is found whichever thread packs it") {
    for (const int threads : {1, 2, 3}) {
        CpuOptions options;
        options.threads = threads;
        check_refused("llama-q4_1", options);
    }
}

}  // namespace paceline::testing
