// The reference backend's heads beside the final one, by what must hold of them.
#include <cmath>
#include <cstring>
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

TEST_CASE("a residual head of the reference is n + SiLU(T n), counted out in double") {
    Result<ModelFile> opened =
        ModelFile::open(testing::fixtures() + "/models/llama-untied-f16.gguf");
    REQUIRE(opened.ok());
    const ModelFile file = std::move(opened).value();
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
    std::vector<float> t(dim * dim);
    for (std::size_t i = 0; i < t.size(); ++i) t[i] = 0.1f * std::sin(static_cast<float>(7 * i));
    const auto logits = [&](std::span<const float> hidden, bool block) {
        ReferenceBackend backend{
            file,
            {.last_layer = 1,
             .kv_slots = 32,
             .final_head = true,
             .heads = {{.transform = t, .block = HeadBlock::Residual},
                       {.transform = scaled_identity(file.config().dim, 1.0f)}}}};
        std::vector<float> out(vocab);
        backend.head(block ? HeadId{1} : HeadId{2}, hidden, 1, out);
        return out;
    };
    std::vector<float> hidden(dim);
    for (std::size_t i = 0; i < dim; ++i) hidden[i] = std::sin(1.0f + 3.0f * static_cast<float>(i));
    // n by hand; a hidden state whose norm has n + SiLU(T n) as its direction gives those logits,
    // but for the length that the norm takes away.
    std::vector<float> norm(dim);
    const TensorView& weights = file.output_norm();
    REQUIRE(weights.type == StoredType::F32);
    std::memcpy(norm.data(), weights.data, dim * sizeof(float));
    const auto rms = [&](std::span<const double> x) {
        double sum = 0.0;
        for (const double v : x) sum += v * v;
        return std::sqrt(sum / static_cast<double>(dim) +
                         static_cast<double>(file.config().norm_epsilon));
    };
    const std::vector<double> h(hidden.begin(), hidden.end());
    std::vector<double> n(dim);
    for (std::size_t i = 0; i < dim; ++i) n[i] = h[i] / rms(h) * static_cast<double>(norm[i]);
    std::vector<double> direction(dim);  // (n + SiLU(T n)) / norm weights
    for (std::size_t i = 0; i < dim; ++i) {
        double y = 0.0;
        for (std::size_t k = 0; k < dim; ++k) y += static_cast<double>(t[i * dim + k]) * n[k];
        direction[i] = (n[i] + y / (1.0 + std::exp(-y))) / static_cast<double>(norm[i]);
    }
    const double length = rms(direction);
    const std::vector<float> wanted =
        logits(std::vector<float>(direction.begin(), direction.end()), false);
    const std::vector<float> got = logits(hidden, true);
    for (std::size_t i = 0; i < vocab; ++i) {
        const double want = static_cast<double>(wanted[i]) * length;
        CHECK(static_cast<double>(got[i]) == doctest::Approx(want).epsilon(1e-3).scale(1.0));
    }
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
