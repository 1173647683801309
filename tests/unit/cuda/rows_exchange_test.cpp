// Parts of rows taken out of host memory, against a plain loop.
#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

#include "model/kernels/cuda/exchange.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/gemm_fixture.hpp"

namespace paceline::cuda {
namespace {

using test::OnDevice;
using test::size_of;

constexpr int kPlaces = 5;  // of `to` and `from`
constexpr std::uint32_t kKept = 7;

struct Case {
    int words;      // of 4 bytes, of a row
    int own_begin;  // of these
    int own_end;
};

/// Rows `index[0]` to `index[count - 1]`; those with a negative token stay, and own words do.
void check_taken(const Case& of, const std::vector<std::int32_t>& index, bool with_tokens) {
    const std::size_t words = size_of(of.words);
    PinnedMemory host;
    REQUIRE(PinnedMemory::allocate(kPlaces * words * 4, host));
    std::iota(host.as<std::uint32_t>(), host.as<std::uint32_t>() + kPlaces * words, 100U);
    const OnDevice<std::uint32_t> to{std::vector<std::uint32_t>(kPlaces * words, kKept)};
    const int count = index.empty() ? 3 : static_cast<int>(index.size());
    const OnDevice<std::int32_t> rows{{count}};
    const OnDevice<std::int32_t> places{index.empty() ? std::vector<std::int32_t>{0} : index};
    const OnDevice<std::int32_t> tokens{{4, -1, 0, 9, 9}};
    TakeArgs args{to.data(), host.data(), rows.data()};
    if (!index.empty()) args.row_index = places.data();
    if (with_tokens) args.tokens = tokens.data();
    args.bytes = words * 4;
    args.own_begin = size_of(of.own_begin) * 4;
    args.own_end = size_of(of.own_end) * 4;
    Stream stream;
    launch_take(stream, args, kPlaces);
    stream.finish();
    std::vector<std::uint32_t> want(kPlaces * words, kKept);
    for (int r = 0; r < count; ++r) {
        if (with_tokens && r == 1) continue;
        const std::size_t place = size_of(index.empty() ? r : index[size_of(r)]);
        for (int w = 0; w < of.words; ++w) {
            const std::size_t at = place * words + size_of(w);
            if (w < of.own_begin || w >= of.own_end) want[at] = host.as<std::uint32_t>()[at];
        }
    }
    CHECK(to.take() == want);
}

TEST_CASE("a device takes from its rows what others made, and leaves the rest") {
    // Words of 8 bytes and of 4; a part in front, in the middle, at the end, none; several blocks.
    for (const Case& of : {Case{32, 0, 16}, Case{32, 8, 24}, Case{33, 16, 33}, Case{31, 3, 3},
                           Case{5000, 1000, 2000}, Case{5001, 0, 1}}) {
        CAPTURE(of.words);
        check_taken(of, {}, false);
        check_taken(of, {}, true);
        check_taken(of, {4, 1}, false);
    }
}

}  // namespace
}  // namespace paceline::cuda
