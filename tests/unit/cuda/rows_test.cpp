// The kernels on rows against plain loops: embedding, rotation, what lands in the cache.
#include "model/kernels/cuda/rows.hpp"

#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "model/reference/rms_norm.hpp"
#include "model/reference/rope.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/gemm_fixture.hpp"

namespace paceline::cuda {
namespace {

using test::OnDevice;
using test::random_floats;
using test::size_of;

TEST_CASE("a row's embedding is its token's, for all types of weights; rows without one stay") {
    for (const WeightType type : test::kTypes) {
        for (const auto& [outputs, inputs] : {std::pair{37, 96}, std::pair{16, 512}}) {
            CAPTURE(name(type));
            CAPTURE(inputs);
            const test::Weights table = test::make_weights(type, outputs, inputs, false, 3);
            const std::vector<std::int32_t> tokens = {outputs - 1, -1, 0, 9, 15, 8};
            const int rows = static_cast<int>(tokens.size()) - 1;  // one more lies after them
            const OnDevice<std::int32_t> device_tokens{tokens};
            const OnDevice<std::int32_t> count{{rows}};
            const OnDevice<float> hidden{std::vector<float>(tokens.size() * size_of(inputs), 5.0f)};
            Stream stream;
            launch_embed(stream, {table.matrix, device_tokens.data(), count.data(), hidden.data()},
                         8);
            stream.finish();
            const std::vector<float> got = hidden.take();
            double worst = 0.0;
            for (std::size_t r = 0; r < tokens.size(); ++r) {
                const bool there = tokens[r] >= 0 && r < size_of(rows);
                for (int i = 0; i < inputs; ++i) {
                    const float want = there ? table.values[size_of(tokens[r] * inputs + i)] : 5.0f;
                    const float off = got[r * size_of(inputs) + size_of(i)] - want;
                    worst = std::max(worst, std::abs(static_cast<double>(off)));
                }
            }
            CHECK(worst == 0.0);
        }
    }
}

struct Shape {
    int heads, kv_heads, head_dim, pairs;
};
constexpr Shape kShapes[] = {{4, 2, 32, 16}, {6, 1, 80, 40}, {2, 2, 48, 12}, {3, 3, 64, 20}};
constexpr int kRows = 5;
constexpr int kLayers = 3;
constexpr int kLayer = 1;
constexpr std::int32_t kSlots[kRows] = {70, 0, 31, 32, 95};  // of 96
constexpr float kEpsilon = 1e-5f;

struct Kind {
    RopePairing pairing;
    CacheType type;
    bool bias;
    bool norms;
};

std::size_t width_of(const Shape& shape) {
    return size_of((shape.heads + 2 * shape.kv_heads) * shape.head_dim);
}

/// What a head of a row is to become, by the reference: h counts q, then k, then v.
std::vector<float> expected_head(const Shape& shape,
                                 const Kind& kind,
                                 int h,
                                 std::span<const float> x,
                                 std::span<const float> bias,
                                 std::span<const float> norm,
                                 std::span<const float> cosines,
                                 std::span<const float> sines) {
    std::vector<float> head(x.begin(), x.end());
    if (kind.bias) {
        for (std::size_t d = 0; d < head.size(); ++d) head[d] += bias[d];
    }
    if (h >= shape.heads + shape.kv_heads) return head;
    if (kind.norms) reference::rms_norm(head, norm, kEpsilon, head);
    reference::rope(head, kind.pairing, cosines, sines);
    return head;
}

float from_cache(const std::vector<std::byte>& cache, CacheType type, std::size_t index) {
    if (type == CacheType::F32) {
        float value = 0.0f;
        std::memcpy(&value, cache.data() + 4 * index, sizeof value);
        return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, cache.data() + 2 * index, sizeof bits);
    return type == CacheType::F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

/// Where a number of a key or a value lies in the cache (rows.hpp), in numbers.
std::size_t cache_index(const Shape& shape, std::int32_t slot, int kv_head, bool key, int d) {
    const int page = slot / kPageSlots;
    const int half = 2 * ((page * kLayers + kLayer) * shape.kv_heads + kv_head) + (key ? 0 : 1);
    return size_of((half * kPageSlots + slot % kPageSlots) * shape.head_dim + d);
}

void check_rotation(const Shape& shape, const Kind& kind) {
    const std::size_t width = width_of(shape);
    const std::size_t dim = size_of(shape.head_dim);
    const std::vector<float> x = random_floats(kRows * width, 21);
    const std::vector<float> bias = random_floats(width, 22);
    const std::vector<float> q_norm = random_floats(dim, 23);
    const std::vector<float> k_norm = random_floats(dim, 24);
    std::vector<float> cosines = random_floats(size_of(kRows * shape.pairs), 25);
    std::vector<float> sines = cosines;
    for (std::size_t i = 0; i < cosines.size(); ++i) {
        const float angle = 3.0f * cosines[i];
        cosines[i] = std::cos(angle);
        sines[i] = std::sin(angle);
    }
    const std::size_t numbers = 3 * kLayers * size_of(shape.kv_heads) * 2 * kPageSlots * dim;
    const std::byte untouched{0x11};
    const OnDevice<std::byte> cache{
        std::vector<std::byte>(numbers * cache_element_bytes(kind.type), untouched)};
    const OnDevice<float> qkv{x}, device_bias{bias}, device_q{q_norm}, device_k{k_norm};
    const OnDevice<float> device_cosines{cosines}, device_sines{sines};
    // The last row has the first position.
    std::vector<std::int32_t> position_of(kRows);
    for (int r = 0; r < kRows; ++r) position_of[size_of(r)] = kRows - 1 - r;
    const OnDevice<std::int32_t> positions{position_of};
    const OnDevice<std::int32_t> slots{{kSlots, kSlots + kRows}}, count{{kRows}};

    RotateArgs args;
    args.qkv = qkv.data();
    args.qkv_stride = static_cast<int>(width);
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.pairs = shape.pairs;
    args.pairing = kind.pairing == RopePairing::Adjacent ? Pairing::Adjacent : Pairing::Halves;
    if (kind.bias) args.bias = device_bias.data();
    if (kind.norms) {
        args.q_norm = device_q.data();
        args.k_norm = device_k.data();
    }
    args.epsilon = kEpsilon;
    args.cosines = device_cosines.data();
    args.sines = device_sines.data();
    args.positions = positions.data();
    args.slots = slots.data();
    args.rows = count.data();
    args.cache = cache.data();
    args.type = kind.type;
    args.layers = kLayers;
    args.layer = kLayer;
    Stream stream;
    launch_rotate(stream, args, 8);
    stream.finish();

    const std::vector<float> turned = qkv.take();
    std::vector<std::byte> cached = cache.take();
    const double rounding = kind.type == CacheType::F32   ? 0.0
                            : kind.type == CacheType::F16 ? 1.0 / 2048.0
                                                          : 1.0 / 256.0;
    double worst = 0.0;
    double worst_cached = 0.0;
    for (int row = 0; row < kRows; ++row) {
        const int position = position_of[size_of(row)];
        const std::span row_cosines =
            std::span(cosines).subspan(size_of(position * shape.pairs), size_of(shape.pairs));
        const std::span row_sines =
            std::span(sines).subspan(size_of(position * shape.pairs), size_of(shape.pairs));
        for (int h = 0; h < shape.heads + 2 * shape.kv_heads; ++h) {
            const std::size_t at = size_of(row) * width + size_of(h) * dim;
            const bool query = h < shape.heads;
            const bool key = !query && h < shape.heads + shape.kv_heads;
            const std::vector<float> want =
                expected_head(shape, kind, h, std::span(x).subspan(at, dim),
                              std::span(bias).subspan(size_of(h) * dim, dim),
                              query ? q_norm : k_norm, row_cosines, row_sines);
            for (int d = 0; d < shape.head_dim; ++d) {
                const auto expect = static_cast<double>(want[size_of(d)]);
                if (query) {
                    worst = std::max(
                        worst, std::abs(static_cast<double>(turned[at + size_of(d)]) - expect));
                    continue;
                }
                const int kv_head = (h - shape.heads) % shape.kv_heads;
                const std::size_t index = cache_index(shape, kSlots[row], kv_head, key, d);
                const double off =
                    std::abs(static_cast<double>(from_cache(cached, kind.type, index)) - expect);
                worst_cached = std::max(worst_cached, off - rounding * std::abs(expect));
                std::memset(cached.data() + index * cache_element_bytes(kind.type),
                            static_cast<int>(untouched), cache_element_bytes(kind.type));
            }
        }
    }
    CHECK(worst < 2e-5);
    CHECK(worst_cached < 2e-5);
    // Nothing else was written: not another layer, not another slot.
    CHECK(cached == std::vector<std::byte>(cached.size(), untouched));
}

TEST_CASE("queries, keys and values are biased, normed, turned and stored as the reference does") {
    for (const Shape& shape : kShapes) {
        for (const RopePairing pairing : {RopePairing::Adjacent, RopePairing::Halves}) {
            for (const CacheType type : {CacheType::F32, CacheType::F16, CacheType::BF16}) {
                for (const int extras : {0, 1, 2, 3}) {
                    CAPTURE(shape.head_dim);
                    CAPTURE(static_cast<int>(pairing));
                    CAPTURE(static_cast<int>(type));
                    CAPTURE(extras);
                    check_rotation(shape, {pairing, type, extras % 2 != 0, extras >= 2});
                }
            }
        }
    }
}

TEST_CASE("a rotation does not depend on the order of threads") {
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope{order};
        check_rotation(kShapes[2], {RopePairing::Halves, CacheType::BF16, true, true});
        check_rotation(kShapes[1], {RopePairing::Adjacent, CacheType::F16, false, true});
    }
}

}  // namespace
}  // namespace paceline::cuda
