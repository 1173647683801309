// What the tests of attention share: a cache that knows what it holds, one call on the device, and
// how far its result is from the reference implementation in double.
//
// Every unwritten slot is full of NaN: a kernel that passes looks at none.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/attention_plan.hpp"
#include "model/kv_layout.hpp"
#include "model/reference/attention.hpp"
#include "tests/unit/cuda/device_arrays.hpp"

namespace paceline::cuda::test {

inline std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

struct Shape {
    int heads = 4;
    int kv_heads = 2;
    int head_dim = 64;
    CacheType type = CacheType::BF16;
    [[nodiscard]] int kv_numbers() const { return kv_heads * head_dim; }
    [[nodiscard]] int q_numbers() const { return heads * head_dim; }
};

inline float stored(CacheType type, float value) {
    if (type == CacheType::F32) return value;
    if (type == CacheType::F16) return paceline::half_to_float(paceline::float_to_half(value));
    return bfloat_to_float(float_to_bfloat(value));
}

inline void put_number(std::vector<std::byte>& cache, CacheType type, std::size_t at, float value) {
    std::uint16_t bits = 0;
    if (type == CacheType::F32) {
        std::memcpy(cache.data() + at * sizeof value, &value, sizeof value);
        return;
    }
    bits = type == CacheType::F16 ? paceline::float_to_half(value) : float_to_bfloat(value);
    std::memcpy(cache.data() + at * sizeof bits, &bits, sizeof bits);
}

inline constexpr int kLayers = 2;
inline constexpr int kLayer = 1;

/// Keys and values of one layer, by what they are: text `id` has the same numbers in any slot.
class Cache {
public:
    Cache(Shape shape, int pages)
        : shape_{shape},
          bytes_(size_of(pages) * kLayers * size_of(shape.kv_heads) * 2 * kAttentionBlock *
                     size_of(shape.head_dim) * cache_element_bytes(shape.type),
                 std::byte{0xFF}) {}

    void put(KvSlot slot, unsigned id) {
        for (int half = 0; half < 2; ++half) {
            const std::vector<float> numbers = numbers_of(id, half);
            for (int i = 0; i < shape_.kv_numbers(); ++i) {
                const int head = i / shape_.head_dim;
                const std::size_t page =
                    (size_of(page_of(slot)) * kLayers + kLayer) * size_of(shape_.kv_heads) +
                    size_of(head);
                const std::size_t row =
                    (page * 2 + size_of(half)) * kAttentionBlock + size_of(offset_of(slot));
                put_number(bytes_, shape_.type,
                           row * size_of(shape_.head_dim) + size_of(i % shape_.head_dim),
                           numbers[size_of(i)]);
            }
        }
        ids_[slot] = id;
    }
    /// Keys (half 0) or values (half 1), [kv_heads][head_dim], as they are stored.
    [[nodiscard]] std::vector<float> numbers_of(unsigned id, int half) const {
        std::vector<float> numbers =
            random_floats(size_of(shape_.kv_numbers()), 2 * id + static_cast<unsigned>(half));
        for (float& number : numbers) number = stored(shape_.type, number);
        return numbers;
    }
    [[nodiscard]] unsigned id_at(KvSlot slot) const { return ids_.at(slot); }
    [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
    [[nodiscard]] const Shape& shape() const { return shape_; }

private:
    Shape shape_;
    std::vector<std::byte> bytes_;
    std::map<KvSlot, unsigned> ids_;
};

/// A row: the slots of all its keys, of which the last few are its path; its query by a number.
struct TestRow {
    std::vector<KvSlot> slots;
    int path = 0;
    unsigned query = 0;
};

inline std::vector<float> query_of(const Shape& shape, unsigned query) {
    return random_floats(size_of(shape.q_numbers()), 1'000'000 + query, 1.5f);
}

inline std::vector<Row> rows_of(const std::vector<TestRow>& tests) {
    std::vector<Row> rows;
    for (const TestRow& test : tests) {
        Row row;
        row.position = static_cast<Position>(test.slots.size()) - 1;
        row.slot = test.slots.back();
        row.prefix_slots = test.slots.data();
        row.prefix_count = row.position + 1 - test.path;
        row.path_slots = test.slots.data() + row.prefix_count;
        row.path_count = test.path;
        rows.push_back(row);
    }
    return rows;
}

struct How {
    AttentionKernel kernel = AttentionKernel::Mma;
    int blocks = 7;
    int unit_rows = 0;  // 0: as the batch asks for
    bool wide = true;
    bool stopped = false;  // the batch has no rows any more when the kernels begin
    int others = 0;        // places that get the results too; the last one's are returned
};

/// One call on the device: [rows][heads][head_dim].
inline std::vector<float> attend(const Cache& cache,
                                 const std::vector<TestRow>& tests,
                                 const How& how) {
    const Shape& shape = cache.shape();
    const int rows = static_cast<int>(tests.size());
    const int q_stride = shape.q_numbers() + 2 * shape.kv_numbers();  // as a fused product gives it
    const int out_stride = shape.q_numbers() + 8;
    std::vector<float> q(size_of(rows * q_stride), std::nanf(""));
    for (int r = 0; r < rows; ++r) {
        const std::vector<float> query = query_of(shape, tests[size_of(r)].query);
        std::copy(query.begin(), query.end(), q.begin() + r * q_stride);
    }
    AttentionPlan plan;
    const int unit_rows =
        how.unit_rows > 0 ? how.unit_rows : attention_unit_rows(rows, shape.heads / shape.kv_heads);
    plan.build(rows_of(tests), unit_rows);
    const OnDevice<std::int32_t> words{{plan.words().begin(), plan.words().end()}};
    const OnDevice<float> queries{q};
    const OnDevice<std::byte> pages{cache.bytes()};
    const OnDevice<float> partials{std::vector<float>(
        size_of(plan.header().partials * shape.heads * attention_partial_floats(shape.head_dim)),
        std::nanf(""))};
    const OnDevice<float> out{std::vector<float>(size_of(rows * out_stride))};
    const OnDevice<std::int32_t> count{std::vector<std::int32_t>{how.stopped ? 0 : rows}};
    AttentionArgs args;
    args.plan = words.data();
    args.rows = count.data();
    args.q = queries.data();
    args.q_stride = q_stride;
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.cache = pages.data();
    args.type = shape.type;
    args.layers = kLayers;
    args.layer = kLayer;
    args.partials = partials.data();
    args.out = out.data();
    args.out_stride = out_stride;
    args.wide = how.wide;
    args.others = how.others;
    std::vector<std::unique_ptr<OnDevice<float>>> others;
    for (int i = 0; i < how.others; ++i) {
        others.push_back(
            std::make_unique<OnDevice<float>>(std::vector<float>(size_of(rows * out_stride))));
        args.other_out[i] = others.back()->data();
    }
    Stream stream;
    launch_attention(stream, args,
                     {how.kernel, unit_rows, how.blocks, plan.header().partials == 0});
    stream.finish();
    const std::vector<float> taken = how.others == 0 ? out.take() : others.back()->take();
    std::vector<float> result;
    for (int r = 0; r < rows; ++r) {
        for (int i = 0; i < shape.q_numbers(); ++i) {
            const std::size_t at = size_of(r * out_stride + i);
            if (how.wide) {
                result.push_back(taken[at]);
            } else {
                std::uint16_t bits = 0;
                std::memcpy(&bits, reinterpret_cast<const std::byte*>(taken.data()) + 2 * at, 2);
                result.push_back(bfloat_to_float(bits));
            }
        }
    }
    return result;
}

inline std::vector<float> of_row(const Shape& shape, const std::vector<float>& all, int row) {
    const auto begin = all.begin() + row * shape.q_numbers();
    return {begin, begin + shape.q_numbers()};
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The greatest difference to the reference, as a part of the row's greatest number; of all rows.
inline double error_of_rows(const Cache& cache,
                            const std::vector<TestRow>& tests,
                            const std::vector<float>& got) {
    const Shape& shape = cache.shape();
    double worst = 0.0;
    for (std::size_t r = 0; r < tests.size(); ++r) {
        std::vector<std::vector<float>> numbers[2];
        std::vector<const float*> pointers[2];
        for (int half = 0; half < 2; ++half) {
            for (const KvSlot slot : tests[r].slots)
                numbers[half].push_back(cache.numbers_of(cache.id_at(slot), half));
            for (const auto& row : numbers[half]) pointers[half].push_back(row.data());
        }
        std::vector<float> want(size_of(shape.q_numbers()));
        reference::attention({shape.heads, shape.kv_heads, shape.head_dim},
                             query_of(shape, tests[r].query), pointers[0], pointers[1], want);
        double greatest = 0.0;
        double difference = 0.0;
        for (std::size_t i = 0; i < want.size(); ++i) {
            const double at = static_cast<double>(got[r * want.size() + i]);
            const double gap = std::abs(at - static_cast<double>(want[i]));
            if (!(gap <= difference)) difference = gap;  // a NaN counts
            greatest = std::max(greatest, std::abs(static_cast<double>(want[i])));
        }
        const double part = difference / greatest;
        if (!(part <= worst)) worst = part;
    }
    return worst;
}

}  // namespace paceline::cuda::test
