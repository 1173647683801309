// The copy kernel copies every byte that it is given and no other, whatever the size and the grid.
#include "bench/cuda/copy.hpp"

#include <algorithm>

#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

using test::OnDevice;

constexpr std::size_t kBorder = 64;  // bytes in front of the target and after it

#ifdef PACELINE_EMULATED_DEVICE
constexpr std::size_t kSizes[] = {16, 4096, 16 * 1024, 16 * 1024 + 16, 16 * 5000};
#else
constexpr std::size_t kSizes[] = {16, 4096, 16 * 1024 + 16, 16 * 5000,
                                  (std::size_t{64} << 20U) + 16};
#endif

/// Bytes without a short period: a copy shifted by any multiple of 16 differs.
std::vector<std::byte> pattern(std::size_t count) {
    std::vector<std::byte> bytes(count);
    std::uint64_t state = 1;
    for (std::byte& byte : bytes) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        byte = static_cast<std::byte>(state >> 56U);
    }
    return bytes;
}

TEST_CASE("a copy brings every byte, and writes nothing in front of its target or after it") {
    for (const std::size_t size : kSizes) {
        for (const int processors : {1, 3, 132}) {
            CAPTURE(size);
            CAPTURE(processors);
            const std::vector<std::byte> from = pattern(size);
            const OnDevice<std::byte> source{from};
            const OnDevice<std::byte> target{
                std::vector<std::byte>(size + 2 * kBorder, std::byte{0x5A})};
            Stream stream;
            launch_copy(stream, target.data() + kBorder, source.data(), size, processors);
            stream.finish();
            std::vector<std::byte> want(size + 2 * kBorder, std::byte{0x5A});
            std::copy(from.begin(), from.end(), want.begin() + kBorder);
            CHECK(target.take() == want);
        }
    }
}

TEST_CASE("a copy of no bytes is none, one that is not of whole 16 bytes is refused") {
    const OnDevice<std::byte> source{pattern(64)};
    const OnDevice<std::byte> target{std::vector<std::byte>(64, std::byte{0})};
    Stream stream;
    launch_copy(stream, target.data(), source.data(), 0, 4);
    stream.finish();
    CHECK(target.take() == std::vector<std::byte>(64, std::byte{0}));
    const auto refused = [&](std::size_t to, std::size_t from, std::size_t bytes) {
        return error_of(
            [&] { launch_copy(stream, target.data() + to, source.data() + from, bytes, 4); });
    };
    CHECK(contains(refused(0, 0, 40), "multiples of 16"));
    CHECK(contains(refused(8, 0, 16), "multiples of 16"));
    CHECK(contains(refused(0, 8, 16), "multiples of 16"));
}

}  // namespace
}  // namespace paceline::cuda
