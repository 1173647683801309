// The reference backend's heads beside the final one, by what must hold of them.
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "model/reference/reference_backend.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline {
namespace {

std::vector<float> scaled_identity(int dim, float factor) {
    const auto n = static_cast<std::size_t>(dim);
    std::vector<float> matrix(n * n, 0.0f);
    for (std::size_t i = 0; i < n; ++i) matrix[i * n + i] = factor;
    return matrix;
}

TEST_CASE("heads of the reference: the identity, a factor before and after the norm, a list") {
    Result<ModelFile> opened =
        ModelFile::open(testing::fixtures() + "/models/llama-untied-f16.gguf");
    REQUIRE(opened.ok());
    const ModelFile file = std::move(opened).value();
    const int dim = file.config().dim;
    const int vocab = file.config().vocab_size;
    // The second row of T is the first one's multiple: T is not symmetric, so a transposed T
    // would show.
    std::vector<float> copy = scaled_identity(dim, 1.0f);
    copy[static_cast<std::size_t>(dim)] = 1.0f;      // row 1: x0 ...
    copy[static_cast<std::size_t>(dim) + 1] = 0.0f;  // ... and not x1
    const ReferenceOptions options{
        .last_layer = 1,
        .kv_slots = 32,
        .final_head = true,
        .heads = {{},
                  {.transform = scaled_identity(dim, 2.0f)},
                  {.transform = scaled_identity(dim, 2.0f), .norm_first = false},
                  {.tokens = {1, 7}},
                  {.transform = copy, .norm_first = false}}};
    ReferenceBackend backend{file, options};
    std::vector<float> hidden(static_cast<std::size_t>(dim));
    for (std::size_t i = 0; i < hidden.size(); ++i)
        hidden[i] = std::sin(1.0f + 3.0f * static_cast<float>(i));
    const auto logits = [&](int head, std::span<const float> h) {
        std::vector<float> out(static_cast<std::size_t>(vocab));
        backend.head(static_cast<HeadId>(head), h, 1, out);
        return out;
    };
    const std::vector<float> want = logits(0, hidden);
    CHECK(logits(1, hidden) == want);
    const std::vector<float> doubled = logits(2, hidden);
    const std::vector<float> inside = logits(3, hidden);
    const std::vector<float> listed = logits(4, hidden);
    for (std::size_t t = 0; t < want.size(); ++t) {
        CHECK(doubled[t] == 2.0f * want[t]);
        CHECK(std::fabs(inside[t] - want[t]) < 1e-3f);
        CHECK(listed[t] == (t == 1 || t == 7 ? want[t] : -std::numeric_limits<float>::infinity()));
    }
    std::vector<float> copied = hidden;
    copied[1] = copied[0];
    CHECK(logits(5, hidden) == logits(0, copied));
}

}  // namespace
}  // namespace paceline
