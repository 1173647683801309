#include "model/reference/kv_store.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

namespace paceline::reference {
namespace {

TEST_CASE("each KV type keeps the bits it has, to the nearest, ties to even") {
    const float third = 1.0f / 3.0f;
    CHECK(rounded_to(KvType::F32, third) == third);
    CHECK(rounded_to(KvType::F16, third) == 1365.0f / 4096.0f);  // 11 significant bits
    CHECK(rounded_to(KvType::BF16, third) == 171.0f / 512.0f);   // 8 significant bits
    CHECK(rounded_to(KvType::F16, 2049.0f) == 2048.0f);
    CHECK(rounded_to(KvType::F16, 2051.0f) == 2052.0f);
    CHECK(rounded_to(KvType::BF16, 257.0f) == 256.0f);
    CHECK(rounded_to(KvType::BF16, 259.0f) == 260.0f);
}

TEST_CASE("a written slot gives back what was written, rounded, and its neighbours stay") {
    KvStore store(KvType::BF16, 2, 3, 2);
    store.write(1, 2, std::vector<float>{257.0f, 1.0f}, std::vector<float>{-259.0f, 0.5f});
    CHECK(store.key(1, 2)[0] == 256.0f);
    CHECK(store.key(1, 2)[1] == 1.0f);
    CHECK(store.value(1, 2)[0] == -260.0f);
    CHECK(store.value(1, 2)[1] == 0.5f);
    CHECK(std::isnan(store.key(1, 1)[1]));
    CHECK(std::isnan(store.value(0, 2)[0]));
    CHECK(store.bytes() == 2U * 3U * 2U * 2U * 4U);
}

}  // namespace
}  // namespace paceline::reference
