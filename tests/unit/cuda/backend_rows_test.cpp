// A row's bits beside the borders that only kernels of a GPU have: sizes of kernels, splits that
// are merged, the order of threads. What holds of every backend is in backend_suite_test.cpp.
#include "tests/unit/backend/row_suite.hpp"
#include "tests/unit/cuda/cuda_traits.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

/// Past two borders of splits: a context of more than 256 positions.
constexpr Setting kLongSettings[] = {
    {"tiny-chat", Dtype::BF16, KvType::BF16},
    {"tiny-chat", Dtype::Q4, KvType::F16},
};

void check_text(const Setting& setting,
                std::mt19937& rng,
                std::size_t count,
                std::initializer_list<Way> ways) {
    CAPTURE(setting.fixture);
    const ModelFile file = open_fixture(setting.fixture);
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, count);
    check_ways<CudaTraits>(file, what_of(setting), tokens, ways);
}

TEST_CASE("past 256 positions, where a row has three splits to merge, bits are those row by row") {
    std::mt19937 rng{42};
    check_text(kLongSettings[0], rng, 262, {{37, true, 64}, {262, false, 64, 1, false}});
    for (const Setting& setting : kLongSettings) check_tree<CudaTraits>(setting, 250, rng);
}

TEST_CASE("row counts beside the borders of the sizes of kernels give equal bits") {
    std::mt19937 rng{43};
    for (const std::size_t i : {0, 2, 5}) {
        check_text(CudaTraits::kSettings[i], rng, 66,
                   {{2, false, 64},
                    {8, true, 5, 1, false},
                    {9, true, 64},
                    {16, false, 64},
                    {17, true, 64},
                    {32, false, 64, 1, false},
                    {33, true, 64},
                    {63, false, 64},
                    {65, true, 64},
                    {66, false, 33}});
    }
}

TEST_CASE("the order in which the device's threads run changes no bit") {
    std::mt19937 rng{44};
    for (const Setting& setting : CudaTraits::kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 12);
        const std::vector<float> want = row_by_row<CudaTraits>(file, what_of(setting), tokens);
        for (const cuda::emulated::Order order : cuda::all_orders()) {
            const cuda::OrderScope scope{order};
            const auto backend = CudaTraits::make(file, what_of(setting));
            CHECK(same_bits(sequence_logits(*backend, tokens, 12), want));
        }
    }
}

}  // namespace
}  // namespace paceline
