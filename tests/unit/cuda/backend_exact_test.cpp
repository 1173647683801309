// `exact = off`: large batches by cuBLAS agree with ours within rounding, small ones bit for bit,
// and the equality class says which of the two it was.
#include "model/kernels/cuda/blas.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr std::size_t kTokens = 150;  // two large batches and a small one, of 70 rows
constexpr double kTolerance = 0.03;   // of a row's largest logit: rows are rounded to bf16

CudaOptions options_with(bool exact, Dtype dtype = Dtype::BF16, int rows_max = 70) {
    CudaOptions options;
    options.dtype = dtype;
    options.rows_max = rows_max;
    options.exact = exact;
    return options;
}

std::vector<float> logits_of(const ModelFile& file, const CudaOptions& options) {
    std::mt19937 rng{71};
    const auto backend = make_cuda(file, options);
    return sequence_logits(*backend, random_tokens(rng, file.config().vocab_size, kTokens),
                           static_cast<int>(kTokens));
}

/// Says so, and how it came, where there is no cuBLAS.
bool missing() {
    const std::string problem = cuda::blas_problem();
    if (problem.empty()) return false;
    MESSAGE("left out: no cuBLAS: ", problem);
    return true;
}

TEST_CASE("with exact off the logits of large batches are those of exact ones within rounding") {
    if (missing()) return;
    for (const char* name : {"llama-f32", "qwen2-f16"}) {
        CAPTURE(name);
        const ModelFile file = open_fixture(name);
        const std::vector<float> exact = logits_of(file, options_with(true));
        const std::vector<float> off = logits_of(file, options_with(false));
        CHECK(deviation(off, exact, file.config().vocab_size).relative < kTolerance);
        CHECK_FALSE(same_bits(off, exact));  // it was cuBLAS that multiplied
    }
}

TEST_CASE(
    "with exact off batches of up to 64 rows, and weights that are not bf16, keep their bits") {
    if (missing()) return;
    const ModelFile file = open_fixture("llama-q4_1");
    for (const auto& [dtype, rows_max] :
         {std::pair{Dtype::BF16, 64}, std::pair{Dtype::Auto, 70}, std::pair{Dtype::F32, 70}}) {
        CAPTURE(name(dtype));
        CHECK(same_bits(logits_of(file, options_with(false, dtype, rows_max)),
                        logits_of(file, options_with(true, dtype, rows_max))));
    }
}

TEST_CASE("exact off is another equality class, and its workspace is accounted") {
    if (missing()) return;
    const ModelFile file = open_fixture("llama-q4_1");
    const auto exact = make_cuda(file, options_with(true));
    const auto off = make_cuda(file, options_with(false));
    CHECK(exact->equality_class().find("exact") == std::string::npos);
    CHECK(off->equality_class().find(" exact=off") != std::string::npos);
    CHECK(off->memory_use().workspace_bytes >=
          exact->memory_use().workspace_bytes + cuda::kBlasWorkspaceBytes);
}

}  // namespace
}  // namespace paceline
