#include "model/weights/packed_type.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "ipc/base/check.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {
namespace {

struct Kept {
    PackedType packed;
    StoredType stored;
    std::string_view name;
};
constexpr std::array kKept = std::to_array<Kept>({
    {PackedType::F32, StoredType::F32, "f32"},
    {PackedType::BF16, StoredType::BF16, "bf16"},
    {PackedType::F16, StoredType::F16, "f16"},
    {PackedType::Int8, StoredType::Q8_0, "int8"},
    {PackedType::Q4, StoredType::Q4_1, "q4"},
    {PackedType::Q4Sym, StoredType::Q4_0, "q4"},
    {PackedType::Q5_0, StoredType::Q5_0, "q5_0"},
    {PackedType::Q5_1, StoredType::Q5_1, "q5_1"},
    {PackedType::Q2K, StoredType::Q2_K, "q2_k"},
    {PackedType::Q3K, StoredType::Q3_K, "q3_k"},
    {PackedType::Q4K, StoredType::Q4_K, "q4_k"},
    {PackedType::Q5K, StoredType::Q5_K, "q5_k"},
    {PackedType::Q6K, StoredType::Q6_K, "q6_k"},
    {PackedType::IQ4NL, StoredType::IQ4_NL, "iq4_nl"},
    {PackedType::IQ4XS, StoredType::IQ4_XS, "iq4_xs"},
    {PackedType::MXFP4, StoredType::MXFP4, "mxfp4"},
});

constexpr bool in_order() {
    for (std::size_t i = 0; i < kKept.size(); ++i) {
        if (kKept[i].packed != static_cast<PackedType>(i)) return false;
    }
    return kKept.back().packed == PackedType::MXFP4;
}
static_assert(in_order(), "a row for each type, in the order of PackedType");

const Kept& kept(PackedType type) {
    return kKept[static_cast<std::size_t>(type)];
}

}  // namespace

std::string_view name(PackedType type) {
    return kept(type).name;
}

StoredType stored_type(PackedType type) {
    return kept(type).stored;
}

PackedType natural_type(StoredType stored) {
    const auto* found = std::find_if(kKept.begin(), kKept.end(),
                                     [&](const Kept& kept) { return kept.stored == stored; });
    PACE_CHECK(found != kKept.end(), "a stored type that no packed type keeps");
    return found->packed;
}

}  // namespace paceline
