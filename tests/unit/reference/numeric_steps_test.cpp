// Every reference function against figures worked out by hand.
#include <array>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "model/reference/attention.hpp"
#include "model/reference/matmul.hpp"
#include "model/reference/rms_norm.hpp"
#include "model/reference/rope.hpp"
#include "model/reference/softmax.hpp"
#include "model/reference/swiglu.hpp"

namespace paceline::reference {
namespace {

using doctest::Approx;

TEST_CASE("rms_norm divides by the root of the mean square and multiplies by the weight") {
    const std::vector<float> x{3.0f, -4.0f, 12.0f, 0.0f};  // squares sum to 169, mean 42.25
    const std::vector<float> weight{1.0f, 2.0f, 0.5f, 7.0f};
    std::vector<float> out(4);
    rms_norm(x, weight, 0.0f, out);
    CHECK(out[0] == Approx(3.0 / 6.5));
    CHECK(out[1] == Approx(-8.0 / 6.5));
    CHECK(out[2] == Approx(6.0 / 6.5));
    CHECK(out[3] == 0.0f);
}

TEST_CASE("rms_norm adds epsilon to the mean square, not to its root") {
    const std::vector<float> x{1.0f, 1.0f};
    const std::vector<float> weight{1.0f, 1.0f};
    std::vector<float> out(2);
    rms_norm(x, weight, 3.0f, out);
    CHECK(out[0] == 0.5f);
    const std::vector<float> zeros{0.0f, 0.0f};
    rms_norm(zeros, weight, 1e-5f, out);
    CHECK(out == zeros);
}

TEST_CASE("rms_norm may write over its input") {
    std::vector<float> x{6.0f, 8.0f};  // mean 50
    const std::vector<float> weight{1.0f, 1.0f};
    rms_norm(x, weight, 14.0f, x);
    CHECK(x[0] == 0.75f);
    CHECK(x[1] == 1.0f);
}

TEST_CASE("softmax yields shares of one and survives large scores") {
    std::vector<double> scores{1000.0, 1000.0 + std::log(3.0), -1e300};
    softmax(scores);
    CHECK(scores[0] == Approx(0.25));
    CHECK(scores[1] == Approx(0.75));
    CHECK(scores[2] == 0.0);
}

TEST_CASE("rope turns neighbours or halves, and leaves what is beyond the rotated dimensions") {
    // A quarter turn of the first pair, half a turn of the second.
    const std::vector<float> cosines{0.0f, -1.0f};
    const std::vector<float> sines{1.0f, 0.0f};
    std::vector<float> head{1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
    rope(head, RopePairing::Adjacent, cosines, sines);
    CHECK(head == std::vector<float>{-2.0f, 1.0f, -3.0f, -4.0f, 5.0f});
    head = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
    rope(head, RopePairing::Halves, cosines, sines);
    CHECK(head == std::vector<float>{-3.0f, -2.0f, 1.0f, -4.0f, 5.0f});
}

TEST_CASE("attention of a row that sees its own key alone returns its value") {
    const std::vector<float> query{0.3f, -0.7f};
    const std::vector<float> key{5.0f, 1.0f};
    const std::vector<float> value{0.125f, -8.0f};
    const std::array<const float*, 1> keys{key.data()};
    const std::array<const float*, 1> values{value.data()};
    std::vector<float> out(2);
    attention({.heads = 1, .kv_heads = 1, .head_dim = 2}, query, keys, values, out);
    CHECK(out == value);
}

TEST_CASE("attention weighs values by the softmax of scaled scores, groups share a KV head") {
    // head_dim 4: scores are halved. Heads 0 and 1 read KV head 0, heads 2 and 3 KV head 1.
    const float ln3 = std::log(3.0f);
    const std::vector<float> query{
        2.0f * ln3, 0,           0, 0, 0, 0,          0, 0,   // heads 0, 1
        0,          -2.0f * ln3, 0, 0, 0, 2.0f * ln3, 0, 0};  // heads 2, 3
    const std::vector<float> first_key{1, 0, 0, 0, 0, 1, 0, 0};
    const std::vector<float> second_key(8, 0.0f);
    const std::vector<float> first_value{4, 0, 0, 0, 0, 8, 0, 0};
    const std::vector<float> second_value{0, 4, 0, 0, 0, 0, 8, 0};
    const std::array<const float*, 2> keys{first_key.data(), second_key.data()};
    const std::array<const float*, 2> values{first_value.data(), second_value.data()};
    std::vector<float> out(16);
    attention({.heads = 4, .kv_heads = 2, .head_dim = 4}, query, keys, values, out);
    const std::vector<double> expected{3, 1, 0, 0,   // scores ln 3 and 0: shares 3/4, 1/4
                                       2, 2, 0, 0,   // no score: halves
                                       0, 2, 6, 0,   // score -ln 3: shares 1/4, 3/4
                                       0, 6, 2, 0};  // score ln 3: shares 3/4, 1/4
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        CHECK(out[i] == Approx(expected[i]).epsilon(1e-6));
    }
}

TEST_CASE("swiglu gates with the logistic function and survives large gates") {
    const std::vector<float> gate{0.0f, std::log(3.0f), -std::log(3.0f), 200.0f, -200.0f};
    const std::vector<float> up{5.0f, 4.0f, 4.0f, 2.0f, 2.0f};
    std::vector<float> out(5);
    swiglu(gate, up, out);
    CHECK(out[0] == 0.0f);
    CHECK(out[1] == Approx(3.0 * 1.0986122886681098));   // 4 * ln 3 * 3/4
    CHECK(out[2] == Approx(-1.0 * 1.0986122886681098));  // 4 * -ln 3 * 1/4
    CHECK(out[3] == 400.0f);
    CHECK(out[4] == Approx(0.0));
}

TEST_CASE("matmul takes weights by output and adds a bias if there is one") {
    const std::vector<float> weights{1, 2, 3,  //
                                     4, 5, 6};
    const std::vector<float> x{1.0f, 0.5f, -1.0f};
    const std::vector<float> bias{10.0f, 20.0f};
    std::vector<float> out(2);
    matmul(weights, x, {}, out);
    CHECK(out == std::vector<float>{-1.0f, 0.5f});
    matmul(weights, x, bias, out);
    CHECK(out == std::vector<float>{9.0f, 20.5f});
}

TEST_CASE("matmul sums in more than float32") {
    const std::vector<float> weights{1e8f, 1.0f, -1e8f};
    const std::vector<float> x{1.0f, 1.0f, 1.0f};
    std::vector<float> out(1);
    matmul(weights, x, {}, out);
    CHECK(out[0] == 1.0f);
}

}  // namespace
}  // namespace paceline::reference
