// Rows that compute a text once more in scratch slots, and what they predict of it.
#include "actors/self_draft/window_match.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr int kWindow = 20;
constexpr std::size_t kTextMax = 160;

/// A request's text with its answer, whose keys are in a backend's cache.
struct Decoded {
    explicit Decoded(const Request& asked)
        : request{asked},
          text{whole_text(asked, plain_answer(asked))},
          slots(kTextMax),
          scratch(std::size_t{2} * kWindow) {
        std::iota(slots.begin(), slots.end(), 0);
        std::iota(scratch.begin(), scratch.end(), static_cast<KvSlot>(kTextMax));
        std::vector<Row> rows;
        for (std::size_t i = 0; i + 1 < text.size(); ++i) rows.push_back(row(i));
        std::vector<float> hidden(rows.size() * kFakeDim);
        REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    }
    [[nodiscard]] Row row(std::size_t position) const {
        return {.token = text[position],
                .position = static_cast<Position>(position),
                .slot = slots[position],
                .prefix_slots = slots.data(),
                .prefix_count = static_cast<std::int32_t>(position) + 1,
                .last = 2 * kFakeLayers};
    }
    [[nodiscard]] std::vector<std::byte> keys() const {
        const std::size_t each = backend.kv_bytes();
        std::vector<std::byte> all(text.size() * each);
        for (std::size_t i = 0; i < text.size(); ++i)
            backend.read_kv(slots[i], std::span{all}.subspan(i * each, each));
        return all;
    }

    Request request;
    std::vector<TokenId> text;
    std::vector<KvSlot> slots;
    std::vector<KvSlot> scratch;
    FakeBackend backend{0, kFakeLayers, 256};
};

}  // namespace

TEST_CASE("a window predicts all of the text's own tokens, and fewer without a sub-layer") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        if (seed % 2 == 0) make_sampled(request, seed);
        Decoded decoded{request};
        const std::vector<std::byte> before = decoded.keys();
        SublayerMask without;
        without.skip(8);
        const std::array masks{SublayerMask{}, without};
        WindowMatch match{decoded.backend, HeadId::Final};
        const auto begin = static_cast<Position>(decoded.request.text.size()) - 1;
        for (int again = 0; again < 2; ++again) {
            const TextWindow window{.text = {decoded.text, decoded.slots},
                                    .begin = begin + again,
                                    .count = kWindow - again,
                                    .sampling = &decoded.request.sampling};
            const std::vector<int> right = match.right(window, masks, decoded.scratch);
            REQUIRE(right.size() == 2);
            CHECK(right[0] == window.count);
            CHECK(right[1] < window.count);
            CHECK(match.right(window, {&without, 1}, decoded.scratch).front() == right[1]);
        }
        CHECK(decoded.keys() == before);
    }
}

TEST_CASE("one layer alone makes of a residual what the whole pass makes, whatever is beside it") {
    Decoded decoded{small_request(3)};
    const std::size_t position = decoded.text.size() - 2;
    std::vector<float> after(std::size_t{2} * kFakeLayers * kFakeDim);  // each sub-layer
    Row whole = decoded.row(position);
    whole.stack = after.data();
    std::vector<float> hidden(kFakeDim);
    REQUIRE(decoded.backend.run_layers({&whole, 1}, hidden, nullptr) == RunOutcome::Done);
    const auto after_layer = [&](int layer) {
        const auto sublayer = 2 * static_cast<std::size_t>(layer) + 1;
        return std::span<const float>{after}.subspan(sublayer * kFakeDim, kFakeDim);
    };
    for (int layer = 1; layer < kFakeLayers; ++layer) {
        CAPTURE(layer);
        std::vector<float> states(std::size_t{3} * kFakeDim, 7.0F);
        const auto middle = std::span{states}.subspan(kFakeDim, kFakeDim);
        const auto given = after_layer(layer - 1);
        std::copy(given.begin(), given.end(), middle.begin());
        REQUIRE(run_one_layer(decoded.backend, layer, decoded.slots,
                              static_cast<Position>(position), decoded.scratch,
                              states) == RunOutcome::Done);
        const auto wanted = after_layer(layer);
        CHECK(std::equal(middle.begin(), middle.end(), wanted.begin()));
    }
}
