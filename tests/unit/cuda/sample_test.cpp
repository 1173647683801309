// Tokens drawn on the device against sample() and candidates() of the CPU: the same, bit for bit,
// for rows of every unpleasant kind, alone and among others, whatever order the threads run in.
#include "model/kernels/cuda/sampling/sample.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "model/kernels/cuda/sampling/sample_rows.hpp"
#include "tests/unit/cuda/draw_batch.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/sampling/synthetic_rows.hpp"

namespace paceline::cuda {

using paceline::testing::kInfinity;
using paceline::testing::kNan;
using namespace test;

TEST_CASE("a token drawn on the device is that of sample(), whatever the row") {
    std::mt19937 random{1};
    for (const int vocab : {1, 2, 15, 16, 17, 255, 256, 257, 1000, 2047, 2048, 2049, 5000}) {
        const int rounds = vocab < 1000 ? 12 : 6;
        for (int round = 0; round < rounds; ++round) check_tokens(random_batch(vocab, random));
    }
}

TEST_CASE("candidates of the device are those of the CPU, tokens and log_probs") {
    std::mt19937 random{2};
    for (const int vocab : {1, 2, 15, 16, 17, 255, 256, 257, 1000, 2047, 2048, 2049, 5000}) {
        const int rounds = vocab < 1000 ? 6 : 3;
        for (int round = 0; round < rounds; ++round) {
            const int counts[] = {1, 2, 4, 7, 16};
            check_candidates(random_batch(vocab, random), counts[random() % 5]);
        }
    }
}

TEST_CASE("a vocabulary of 49,152 tokens is drawn from with every filter") {
    std::mt19937 random{3};
    for (const RowKind kind : {RowKind::Peaked, RowKind::Flat, RowKind::Coarse}) {
        Batch batch{49152, {}, {}, {}};
        const std::vector<float> row = make_row(kind, 49152, random);
        for (const SamplingParams& params : all_filters()) batch.add(row, params, 17);
        check_tokens(batch);
    }
    Batch broken{49155, {}, {}, {}};
    for (const RowKind kind : {RowKind::Broken, RowKind::Infinite, RowKind::Huge})
        broken.add(kind, random);
    check_tokens(broken);
}

TEST_CASE("a vocabulary of 49,152 tokens gives the CPU's candidates") {
    std::mt19937 random{4};
    Batch batch{49152, {}, {}, {}};
    std::vector<float> row = make_row(RowKind::Peaked, 49152, random);
    const std::vector<SamplingParams> filters = all_filters();
    for (const std::size_t i : {0, 1, 2, 3}) batch.add(row, filters[i], 5);
    row[30000] = 60.0f;  // far ahead: nothing else is within the margin
    for (const std::size_t i : {0, 1}) batch.add(row, filters[i], 6);
    for (const std::size_t i : {0, 1})
        batch.add(RowKind::Flat, random), batch.params.back() = filters[i];
    check_candidates(batch, 16);
}

TEST_CASE("the noise of a row depends on seed and position alone") {
    // A flat row's token is that of the largest noise.
    Batch batch{1000, {}, {}, {}};
    SamplingParams params = params_of(1.0f, 0, 1.0f, 0.0f);
    std::set<std::int32_t> tokens;
    for (const std::uint64_t seed :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
        for (const Position position : {0, 1, 2, 65536, 0x7FFFFFFF}) {
            params.seed = seed;
            batch.add(std::vector<float>(1000, 0.5f), params, position);
        }
    }
    check_tokens(batch);
    for (const std::int32_t token : OnTheDevice{batch}.draw()) tokens.insert(token);
    CHECK(tokens.size() > 10);
}

TEST_CASE("a row gives the same alone and among others") {
    std::mt19937 random{5};
    const Batch batch = random_batch(3000, random);
    const OnTheDevice together{batch};
    const std::vector<std::int32_t> tokens = together.draw();
    const std::vector<CandidateList> lists = together.candidates(5);
    for (std::size_t i = 0; i < batch.logits.size(); ++i) {
        INFO(batch.describe(i));
        const OnTheDevice alone{batch.only(i)};
        CHECK(alone.draw()[0] == tokens[i]);
        const CandidateList list = alone.candidates(5)[0];
        CHECK(std::memcmp(&list, &lists[i], sizeof list) == 0);
    }
}

TEST_CASE("kernels that no row needs change nothing when they are launched all the same") {
    std::mt19937 random{6};
    Batch batch{700, {}, {}, {}};
    batch.add(make_row(RowKind::Coarse, 700, random), params_of(0.0f, 0, 1.0f, 0.0f), 3);
    batch.add(make_row(RowKind::Coarse, 700, random), params_of(0.0f, 9, 0.5f, 0.1f), 3);
    const OnTheDevice greedy{batch};
    CHECK_FALSE(greedy.needs().noise);
    CHECK_FALSE(greedy.needs().cuts);
    CHECK(greedy.draw() == greedy.draw({true, true}));
    CHECK(greedy.draw() == expected_tokens(batch));
    batch.add(make_row(RowKind::Coarse, 700, random), params_of(1.0f, 0, 1.0f, 0.1f), 3);
    const OnTheDevice mixed{batch};
    CHECK(mixed.needs().noise);
    CHECK_FALSE(mixed.needs().cuts);
    CHECK(mixed.draw() == mixed.draw({true, true}));
    CHECK(mixed.draw() == expected_tokens(batch));
}

TEST_CASE("every order of the device's threads gives the same") {
    std::mt19937 random{7};
    const Batch batch = random_batch(2600, random);
    const OnTheDevice device{batch};
    const std::vector<std::int32_t> tokens = device.draw();
    const std::vector<CandidateList> lists = device.candidates(6);
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope{order};
        CHECK(device.draw() == tokens);
        const std::vector<CandidateList> again = device.candidates(6);
        CHECK(std::memcmp(again.data(), lists.data(), sizeof(CandidateList) * lists.size()) == 0);
    }
}

TEST_CASE("a head of few tokens gives the CPU's candidates of its list") {
    std::mt19937 random{8};
    for (const int vocab : {40, 3000, 9000}) {
        Batch batch{vocab, {}, {}, {}};
        for (TokenId token = 0; token < vocab; ++token) {
            if (random() % 3 == 0 || token == 5) batch.list.push_back(token);
        }
        for (const RowKind kind : kRowKinds) batch.add(kind, random);
        batch.add(RowKind::Peaked, random);
        batch.params.back() = params_of(0.0f, 0, 1.0f, 0.0f);
        check_candidates(batch, 4);
        const std::vector<CandidateList> best = OnTheDevice{batch}.candidates(1);
        const std::vector<std::int32_t> tokens = OnTheDevice{batch}.draw();
        for (std::size_t i = 0; i < tokens.size(); ++i)
            CHECK(tokens[i] == (best[i].count == 0 ? -1 : best[i].tokens[0]));
    }
}

TEST_CASE("the k-th of equal logits is the k-th id") {
    Batch batch{5000, {}, {}, {}};
    for (const int k : {1, 2, 16, 17, 256, 4097, 4999, 5000}) {
        for (const Position position : {0, 1, 2, 3})
            batch.add(std::vector<float>(5000, -2.0f), params_of(1.0f, k, 1.0f, 0.0f), position);
    }
    check_tokens(batch);
    const std::vector<std::int32_t> tokens = OnTheDevice{batch}.draw();
    for (std::size_t i = 0; i < tokens.size(); ++i) CHECK(tokens[i] < batch.params[i].top_k);
}

TEST_CASE("zeros of both signs are equal, and infinity is more than the largest number") {
    const float most = std::numeric_limits<float>::max();
    Batch batch{20, {}, {}, {}};
    for (const SamplingParams& params : all_filters()) {
        for (const float first : {-0.0f, 0.0f}) {
            std::vector<float> zeros(20, -1.0f);
            for (std::size_t i = 3; i < 20; i += 4) zeros[i] = i % 8 == 3 ? first : -first;
            batch.add(zeros, params, 1);
            SamplingParams two = params;
            two.top_k = 2;
            batch.add(zeros, two, 2);
        }
        std::vector<float> infinite(20, most);
        infinite[0] = kNan;
        infinite[7] = infinite[9] = kInfinity;
        batch.add(infinite, params, 3);
    }
    check_tokens(batch);
    check_candidates(batch, 3);
    CHECK(OnTheDevice{batch}.draw()[0] == 3);
    CHECK(OnTheDevice{batch}.draw()[4] == 7);
}

TEST_CASE("a mass that is a fraction of a unit short of top-p takes one token more") {
    // p * n is a little more than 1, so that the first of n equal tokens does not reach it.
    Batch batch{2000, {}, {}, {}};
    for (int n = 3; n < 2000 && batch.rows() < 40; ++n) {
        const float p = 1.0f / static_cast<float>(n);
        const double units = static_cast<double>(p) * n * 0x1p30;
        if (!(units > 0x1p30 && units < 0x1p30 + 1.0)) continue;
        std::vector<float> row(2000, -kInfinity);
        std::fill(row.begin(), row.begin() + n, 3.0f);
        for (const Position position : {0, 1, 2, 3})
            batch.add(row, params_of(1.0f, 0, p, 0.0f), position);
    }
    REQUIRE(batch.rows() >= 8);
    check_tokens(batch);
    const std::vector<std::int32_t> tokens = OnTheDevice{batch}.draw();
    CHECK(std::set<std::int32_t>(tokens.begin(), tokens.end()) == std::set<std::int32_t>{0, 1});
}

TEST_CASE("the largest vocabulary can be drawn from") {
    std::mt19937 random{10};
    Batch batch{kVocabMax, {}, {}, {}};
    const std::vector<float> row = make_row(RowKind::Flat, kVocabMax, random);
    for (const SamplingParams& params : {all_filters()[1], all_filters()[2], all_filters()[5]})
        batch.add(row, params, 8);
    batch.add(RowKind::Peaked, random);
    check_tokens(batch);
    check_candidates(batch, 2);
}

TEST_CASE("a recorded draw reads its rows when it is launched") {
    std::mt19937 random{9};
    Batch batch{900, {}, {}, {}};
    for (const SamplingParams& params : all_filters())
        batch.add(make_row(RowKind::Peaked, 900, random), params, 1);
    const OnTheDevice device{batch};
    const OnDevice<std::byte> scratch{
        std::vector<std::byte>(draw_scratch_bytes(batch.rows(), batch.vocab))};
    const OnDevice<std::int32_t> tokens{std::vector<std::int32_t>(batch.logits.size(), -7)};
    Stream stream;
    const Graph graph = stream.record([&] {
        launch_draw(stream, device.input(), device.needs(), scratch.data(), tokens.data());
    });
    CHECK(tokens.take()[0] == -7);
    for (Position position = 2; position < 4; ++position) {
        std::vector<DrawRow> rows;
        for (std::size_t i = 0; i < batch.logits.size(); ++i) {
            batch.positions[i] = position;
            rows.push_back(
                draw_row(batch.params[i], position, batch.rows() - 1 - static_cast<int>(i)));
        }
        stream.to_device(const_cast<DrawRow*>(device.input().rows), rows.data(),
                         sizeof(DrawRow) * rows.size());
        graph.launch(stream);
        stream.finish();
        CHECK(tokens.take() == expected_tokens(batch));
    }
}

TEST_CASE("rows with penalties or logit bias are left to the host") {
    SamplingParams params = params_of(0.8f, 40, 0.95f, 0.1f);
    CHECK(supported(params));
    params.logit_bias = {{3, 1.0f}};
    CHECK_FALSE(supported(params));
    params.logit_bias.clear();
    params.frequency_penalty = 0.1f;
    CHECK_FALSE(supported(params));
}

TEST_CASE("a draw that the kernels were not made for is refused") {
    Stream stream;
    DrawInput input;
    input.vocab = kVocabMax + 1;
    CHECK_THROWS_AS(launch_draw(stream, input, {}, nullptr, nullptr), DeviceError);
    input.vocab = 100;
    CHECK_NOTHROW(launch_draw(stream, input, {}, nullptr, nullptr));  // of no rows
    CHECK_THROWS_AS(launch_candidates(stream, input, {}, 0, nullptr, nullptr), DeviceError);
    CHECK_THROWS_AS(launch_candidates(stream, input, {}, kCandidatesMax + 1, nullptr, nullptr),
                    DeviceError);
}

}  // namespace paceline::cuda
