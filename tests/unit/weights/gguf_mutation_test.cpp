// Every truncation of a file is an error; no mutation of it crashes. Meant for sanitizers too.
#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

/// Reads everything that a successful load offers; a bad view would be found here.
float touch_everything(const ModelParts& parts) {
    float sum = 0;
    for (const TensorView& tensor : parts.tensors) {
        std::vector<float> row(static_cast<std::size_t>(tensor.cols));
        for (std::int64_t r = 0; r < tensor.rows; ++r) {
            dequantize_row(tensor, r, row);
            sum += row.front() + row.back();
        }
    }
    return sum;
}

/// Whether the mutant was accepted; then all of it was read.
bool survives(std::span<const std::byte> bytes) {
    const ExactBytes exact(bytes);
    const Result<ModelParts> parts = read_gguf(exact.span());
    if (!parts) {
        REQUIRE_FALSE(parts.error().what.empty());
        return false;
    }
    (void)touch_everything(parts.value());
    return true;
}

TEST_CASE("a file cut off at any byte is an error") {
    const Bytes whole = tiny_model(smallest_model()).bytes();
    REQUIRE(survives(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const bool accepted = survives(std::span(whole).first(size));
        if (accepted) FAIL("accepted with " << size << " of " << whole.size() << " bytes");
    }
}

TEST_CASE("random bytes changed anywhere never crash the reader") {
    const Bytes whole = tiny_model(smallest_model()).bytes();
    detail::Random random(20);
    int accepted = 0;
    for (int i = 0; i < 20'000; ++i) {
        Bytes mutant = whole;
        const std::uint32_t changes = 1 + random.bits() % 4;
        for (std::uint32_t c = 0; c < changes; ++c) {
            mutant[random.bits() % mutant.size()] = static_cast<std::byte>(random.bits() & 0xFFU);
        }
        accepted += survives(mutant) ? 1 : 0;
    }
    CHECK(accepted > 0);       // weights and names change without harm
    CHECK(accepted < 20'000);  // and the checks do fire
}

TEST_CASE("64-bit fields set to extreme values anywhere never crash the reader") {
    const Bytes whole = tiny_model(smallest_model()).bytes();
    constexpr std::uint64_t kExtremes[] = {0,           1,           0x7FFFFFFFU, 0x80000000U,
                                           0xFFFFFFFFU, 1ULL << 32U, 1ULL << 62U, (1ULL << 63U) - 1,
                                           1ULL << 63U, ~0ULL - 31,  ~0ULL};
    for (const std::uint64_t extreme : kExtremes) {
        for (std::size_t at = 0; at + 8 <= whole.size(); ++at) {
            Bytes mutant = whole;
            std::memcpy(mutant.data() + at, &extreme, sizeof extreme);
            (void)survives(mutant);
        }
    }
}

TEST_CASE("parts cut out or repeated never crash the reader") {
    const Bytes whole = tiny_model(smallest_model()).bytes();
    detail::Random random(21);
    for (int i = 0; i < 2000; ++i) {
        Bytes mutant = whole;
        const std::size_t begin = random.bits() % mutant.size();
        const std::size_t count =
            std::min<std::size_t>(1 + random.bits() % 64, mutant.size() - begin);
        const auto first = mutant.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = first + static_cast<std::ptrdiff_t>(count);
        if (i % 2 == 0) {
            mutant.erase(first, last);
        } else {
            const Bytes part(first, last);
            mutant.insert(first, part.begin(), part.end());
        }
        (void)survives(mutant);
    }
}

}  // namespace
}  // namespace paceline
