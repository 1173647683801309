#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("the packed type of every stored type is what the table in the header says") {
    CHECK(packed_type(StoredType::Q4_1, Dtype::Auto, MatrixUse::Layer) == PackedType::Q4);
    CHECK(packed_type(StoredType::Q4_0, Dtype::Auto, MatrixUse::Layer) == PackedType::Q4Sym);
    CHECK(packed_type(StoredType::Q8_0, Dtype::Auto, MatrixUse::Vocabulary) == PackedType::Int8);
    CHECK(packed_type(StoredType::F16, Dtype::Auto, MatrixUse::Layer) == PackedType::F16);
    CHECK(packed_type(StoredType::F16, Dtype::BF16, MatrixUse::Layer) == PackedType::BF16);
    CHECK(packed_type(StoredType::F16, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Int8);
    CHECK(packed_type(StoredType::Q4_K, Dtype::Auto, MatrixUse::Layer) == PackedType::Q4K);
    CHECK(packed_type(StoredType::Q6_K, Dtype::Auto, MatrixUse::Vocabulary) == PackedType::Q6K);
    CHECK(packed_type(StoredType::Q5_K, Dtype::Auto, MatrixUse::Layer) == PackedType::Q5K);
    CHECK(packed_type(StoredType::Q5_K, Dtype::Int8, MatrixUse::Layer) == PackedType::Int8);
    CHECK(packed_type(StoredType::Q5_K, Dtype::Q4, MatrixUse::Layer) == PackedType::Q4);
    CHECK(packed_type(StoredType::Q5_K, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Q5K);
    CHECK(packed_type(StoredType::IQ4_XS, Dtype::Q4, MatrixUse::Layer) == PackedType::IQ4XS);
    CHECK(packed_type(StoredType::Q2_K, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Q2K);
    CHECK(packed_type(StoredType::Q4_K, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Q4K);
    CHECK(packed_type(StoredType::Q6_K, Dtype::Q4, MatrixUse::Layer) == PackedType::Q4);
    CHECK(packed_type(StoredType::Q6_K, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Q6K);
    CHECK(packed_type(StoredType::F32, Dtype::Auto, MatrixUse::Layer) == PackedType::F32);
    CHECK(packed_type(StoredType::Q8_0, Dtype::Q4, MatrixUse::Layer) == PackedType::Q4);
    CHECK(packed_type(StoredType::Q8_0, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Int8);
    CHECK(packed_type(StoredType::Q4_1, Dtype::Q4, MatrixUse::Vocabulary) == PackedType::Q4);
    CHECK(packed_type(StoredType::Q4_1, Dtype::BF16, MatrixUse::Layer) == PackedType::BF16);
}

TEST_CASE("on a GPU float16 is bfloat16, and float32 in a file that also has other matrices") {
    const bool floats = all_floats(open_fixture("llama-f32"), Dtype::Auto);
    CHECK(floats);
    CHECK_FALSE(all_floats(open_fixture("llama-untied-f16"), Dtype::Auto));
    CHECK(all_floats(open_fixture("llama-untied-f16"), Dtype::F32));
    CHECK(gpu_type(PackedType::F16, floats) == PackedType::BF16);
    CHECK(gpu_type(PackedType::F32, floats) == PackedType::F32);
    CHECK(gpu_type(PackedType::F32, false) == PackedType::BF16);
    CHECK(gpu_type(PackedType::Q4K, false) == PackedType::Q4K);
}

TEST_CASE("names of dtypes parse back and others are refused") {
    for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4}) {
        CHECK(parse_dtype(name(dtype)) == dtype);
    }
    CHECK_FALSE(parse_dtype("fp8").has_value());
    CHECK_FALSE(parse_kv_type("int8").has_value());
}

TEST_CASE("options that make no sense are refused with the value in the text") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto refused = [&](CpuOptions options) {
        if (options.kv_slots == 0) options.kv_slots = 32;
        const Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file, options);
        REQUIRE_FALSE(backend.ok());
        CHECK(backend.error().code == Errc::BadArgument);
        return backend.error().what;
    };
    CHECK(refused({.first_layer = 5, .last_layer = 2}).find("[5, 2)") != std::string::npos);
    CHECK(refused({.last_layer = 99}).find("99") != std::string::npos);
    CHECK(refused({.threads = 0}).find("threads = 0") != std::string::npos);
    CHECK(refused({.threads = 2, .cores = {0}}).find("1 cores for 2 threads") != std::string::npos);
    CHECK(refused({.kv_slots = -4}).find("kv_slots = -4") != std::string::npos);
}

TEST_CASE("planned bytes are what a loaded backend uses") {
    for (const std::string& fixture : golden_names()) {
        const ModelFile file = open_fixture(fixture);
        for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4}) {
            const auto backend = make_backend(file, {.dtype = dtype});
            CHECK(backend->memory_use().weight_bytes ==
                  packed_bytes(file, dtype, 0, file.config().layers));
        }
    }
}

}  // namespace
}  // namespace paceline
