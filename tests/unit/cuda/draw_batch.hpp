// Batches of rows to draw from, on the device and on the CPU, and checks that both draw the same.
//
// Not thread-safe. For the tests of sample.hpp.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/kernels/cuda/sampling/sample_rows.hpp"
#include "model/sampling/candidates.hpp"
#include "tests/unit/cuda/device_arrays.hpp"
#include "tests/unit/sampling/synthetic_rows.hpp"

namespace paceline::cuda::test {

using paceline::testing::kRowKinds;
using paceline::testing::make_row;
using paceline::testing::random_params;
using paceline::testing::RowKind;

/// Rows of one batch and what each is drawn with.
struct Batch {
    int vocab;
    std::vector<std::vector<float>> logits;
    std::vector<SamplingParams> params;
    std::vector<Position> positions;
    std::vector<TokenId> list = {};  // the tokens that the logits are of, or empty: all

    void add(std::vector<float> row, const SamplingParams& with, Position position) {
        logits.push_back(std::move(row));
        params.push_back(with);
        positions.push_back(position);
    }
    void add(RowKind kind, std::mt19937& random) {
        SamplingParams with = random_params(random);
        with.repetition_penalty = 1.0f;
        with.frequency_penalty = 0.0f;
        with.presence_penalty = 0.0f;
        const std::size_t width = list.empty() ? static_cast<std::size_t>(vocab) : list.size();
        add(make_row(kind, width, random), with, static_cast<Position>(random() % 100000));
    }
    [[nodiscard]] int rows() const { return static_cast<int>(logits.size()); }
    [[nodiscard]] Batch only(std::size_t row) const {
        return {vocab, {logits[row]}, {params[row]}, {positions[row]}, list};
    }
    [[nodiscard]] std::string describe(std::size_t row) const {
        const SamplingParams& with = params[row];
        return "row " + std::to_string(row) + " of " + std::to_string(vocab) + ", temperature " +
               std::to_string(with.temperature) + ", top_k " + std::to_string(with.top_k) +
               ", top_p " + std::to_string(with.top_p) + ", min_p " + std::to_string(with.min_p) +
               ", seed " + std::to_string(with.seed) + ", position " +
               std::to_string(positions[row]);
    }
};

/// A batch on the device. The rows of logits stand in reverse, with something between them.
class OnTheDevice {
public:
    explicit OnTheDevice(const Batch& batch) : rows_{batch.rows()} {
        const std::size_t width = batch.logits[0].size();
        const std::size_t stride = width + 3;
        std::vector<float> logits(stride * batch.logits.size(), 1e30f);
        std::vector<DrawRow> rows;
        for (std::size_t i = 0; i < batch.logits.size(); ++i) {
            REQUIRE(supported(batch.params[i]));
            const std::size_t at = batch.logits.size() - 1 - i;
            std::memcpy(&logits[stride * at], batch.logits[i].data(), sizeof(float) * width);
            rows.push_back(draw_row(batch.params[i], batch.positions[i], static_cast<int>(at)));
        }
        needs_ = needs_of(rows.data(), batch.rows());
        logits_ = OnDevice<float>{logits};
        draw_rows_ = OnDevice<DrawRow>{rows};
        input_.logits = logits_.data();
        input_.stride = static_cast<std::int64_t>(stride);
        input_.vocab = batch.vocab;
        input_.rows = draw_rows_.data();
        input_.row_count = batch.rows();
        if (batch.list.empty()) return;
        std::vector<std::int32_t> places(static_cast<std::size_t>(batch.vocab), -1);
        for (std::size_t i = 0; i < batch.list.size(); ++i)
            places[static_cast<std::size_t>(batch.list[i])] = static_cast<std::int32_t>(i);
        list_ = OnDevice<std::int32_t>{batch.list};
        places_ = OnDevice<std::int32_t>{places};
        input_.list = {list_.data(), places_.data(), static_cast<int>(batch.list.size())};
    }

    [[nodiscard]] std::vector<std::int32_t> draw() const { return draw(needs_); }
    [[nodiscard]] std::vector<std::int32_t> draw(DrawNeeds needs) const {
        Stream stream;
        const OnDevice<std::byte> scratch{
            std::vector<std::byte>(draw_scratch_bytes(rows_, input_.vocab), std::byte{0xA5})};
        const OnDevice<std::int32_t> tokens{
            std::vector<std::int32_t>(static_cast<std::size_t>(rows_), -7)};
        launch_draw(stream, input_, needs, scratch.data(), tokens.data());
        stream.finish();
        return tokens.take();
    }
    [[nodiscard]] std::vector<CandidateList> candidates(int count) const {
        Stream stream;
        const OnDevice<std::byte> scratch{
            std::vector<std::byte>(candidate_scratch_bytes(rows_, input_.vocab), std::byte{0xA5})};
        const OnDevice<CandidateList> lists{
            std::vector<CandidateList>(static_cast<std::size_t>(rows_))};
        launch_candidates(stream, input_, needs_, count, scratch.data(), lists.data());
        stream.finish();
        return lists.take();
    }
    [[nodiscard]] DrawNeeds needs() const { return needs_; }
    [[nodiscard]] const DrawInput& input() const { return input_; }

private:
    int rows_;
    DrawNeeds needs_;
    OnDevice<float> logits_;
    OnDevice<DrawRow> draw_rows_;
    OnDevice<std::int32_t> list_;
    OnDevice<std::int32_t> places_;
    DrawInput input_;
};

inline std::vector<std::int32_t> expected_tokens(const Batch& batch) {
    SamplerScratch scratch;
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < batch.logits.size(); ++i) {
        std::vector<float> row = batch.logits[i];
        tokens.push_back(
            sample(row, batch.positions[i], {}, batch.params[i], scratch).value_or(-1));
    }
    return tokens;
}

inline std::vector<Candidate> expected_candidates(const Batch& batch, std::size_t i, int count) {
    SamplerScratch scratch;
    std::vector<float> logits = batch.logits[i];
    if (batch.list.empty())
        return candidates(logits, batch.positions[i], {}, batch.params[i], count, scratch);
    std::vector<float> row(static_cast<std::size_t>(batch.vocab));
    return listed_candidates(logits, batch.list, row, batch.positions[i], {}, batch.params[i],
                             count, scratch);
}

inline void check_tokens(const Batch& batch) {
    const std::vector<std::int32_t> want = expected_tokens(batch);
    const std::vector<std::int32_t> got = OnTheDevice{batch}.draw();
    for (std::size_t i = 0; i < want.size(); ++i) {
        INFO(batch.describe(i));
        CHECK(got[i] == want[i]);
    }
}

inline void check_candidates(const Batch& batch, int count) {
    const std::vector<CandidateList> got = OnTheDevice{batch}.candidates(count);
    for (std::size_t i = 0; i < batch.logits.size(); ++i) {
        INFO(batch.describe(i), ", candidates ", count);
        const std::vector<Candidate> want = expected_candidates(batch, i, count);
        REQUIRE(got[i].count == static_cast<int>(want.size()));
        for (std::size_t j = 0; j < want.size(); ++j) {
            CHECK(got[i].tokens[j] == want[j].token);
            CHECK(got[i].log_probs[j] == want[j].log_prob);  // the bits, but for the sign of 0
            if (j > 0) CHECK(got[i].scores[j] <= got[i].scores[j - 1]);
        }
        for (auto j = want.size(); j < kCandidatesMax; ++j) CHECK(got[i].tokens[j] == 0);
    }
}

/// A row of each kind with parameters at random.
inline Batch random_batch(int vocab, std::mt19937& random) {
    Batch batch{vocab, {}, {}, {}};
    for (const RowKind kind : kRowKinds) batch.add(kind, random);
    return batch;
}

inline SamplingParams params_of(float temperature, int top_k, float top_p, float min_p) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    params.seed = 0x123456789ABCDEFULL;
    return params;
}

/// Parameters that look at a row in every way.
inline std::vector<SamplingParams> all_filters() {
    return {params_of(0.0f, 0, 1.0f, 0.0f),   params_of(1.0f, 0, 1.0f, 0.0f),
            params_of(0.8f, 0, 0.95f, 0.0f),  params_of(0.8f, 40, 1.0f, 0.0f),
            params_of(0.7f, 0, 1.0f, 0.05f),  params_of(0.8f, 6000, 0.9f, 0.0f),
            params_of(1.5f, 0, 0.999f, 0.0f), params_of(0.8f, 50, 0.95f, 0.01f)};
}

}  // namespace paceline::cuda::test
