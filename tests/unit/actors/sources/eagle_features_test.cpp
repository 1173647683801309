// The target's features on their way from the last segment to an EAGLE draft: their bits, whose
// states they are, and what is refused.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/exact_answers.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

/// The target's states at each position of a text, after `layers` (or after all), one after the
/// other: what features must be.
std::vector<std::vector<float>> states_of(const std::vector<TokenId>& text,
                                          const std::vector<int>& layers) {
    FakeBackend target{0, kFakeLayers, 1024};
    std::vector<KvSlot> slots;
    for (std::size_t p = 0; p < text.size(); ++p) slots.push_back(static_cast<KvSlot>(p));
    std::vector<std::vector<float>> states;
    for (std::size_t p = 0; p < text.size(); ++p) {
        std::vector<float> stack(std::size_t{2} * kFakeLayers * kFakeDim);
        Row row{.token = text[p],
                .position = static_cast<Position>(p),
                .slot = slots[p],
                .prefix_slots = slots.data(),
                .prefix_count = static_cast<std::int32_t>(p) + 1,
                .last = 2 * kFakeLayers};
        row.stack = stack.data();
        std::vector<float> hidden(kFakeDim);
        REQUIRE(target.run_layers({&row, 1}, hidden, nullptr) == RunOutcome::Done);
        if (layers.empty()) {
            states.push_back(hidden);
            continue;
        }
        states.emplace_back();
        for (const int layer : layers) {
            const auto begin = stack.begin() + (2 * layer - 1) * kFakeDim;
            states.back().insert(states.back().end(), begin, begin + kFakeDim);
        }
    }
    return states;
}

}  // namespace

TEST_CASE(
    "features that an EAGLE draft gets are the target's states of committed tokens, bit for bit") {
    std::size_t all = 0;
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        CAPTURE(seed);
        PipelineOptions options{
            .segments = 1 + static_cast<int>(seed % 3), .drafting = Drafting::Eagle, .seed = seed};
        if (seed % 2 == 0) options.dispatch.start = StartRule::AtOnce;
        options.draws_itself = seed % 4 < 2;
        options.on_devices = static_cast<unsigned>(seed % 3 == 0 ? 7 : 0);
        if (seed % 6 == 3) options.feature_layers = {2, 5};  // with one segment
        const Request request = small_request(seed);
        check_exact(options, request);
        const FakeFeatures& features = **options.features;
        CHECK_FALSE(features.all.empty());
        all += features.all.size();
        const auto wanted =
            states_of(whole_text(request, plain_answer(request)), options.feature_layers);
        for (const std::vector<float>& one : features.all)
            CHECK(std::find(wanted.begin(), wanted.end(), one) != wanted.end());
    }
    CHECK(all > 120);
}

TEST_CASE("several requests with features in few slots commit the tokens of plain decoding") {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        PipelineOptions options{.segments = 2, .drafting = Drafting::Eagle, .seed = seed};
        std::vector<Request> requests;
        for (std::uint64_t i = 0; i < 8; ++i) {
            requests.push_back(small_request(seed * 10 + i));
            requests.back().max_tokens = 20;
        }
        check_exact(options, requests);
    }
}
