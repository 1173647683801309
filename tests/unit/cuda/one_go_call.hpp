// A call that draws after some of its rows: for the tests of layers, head and draws in one go.
#pragma once

#include <optional>
#include <vector>

#include "model/sampling/sampling.hpp"
#include "tests/support/run_then_draw.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline::testing {

inline std::vector<SamplingParams> some_params() {
    std::vector<SamplingParams> params(3);
    params[1].temperature = 0.8f;
    params[1].seed = 5;
    params[2].temperature = 1.2f;
    params[2].top_p = 0.9f;
    return params;
}

/// A text, and what is drawn after some of its rows.
struct Call {
    std::vector<SamplingParams> params = some_params();
    std::vector<KvSlot> slots;
    std::vector<Row> rows;
    std::vector<float> hidden;
    std::vector<DrawJob> jobs;
    std::vector<std::optional<TokenId>> tokens;
    std::vector<std::vector<Candidate>> best;

    /// Every `each`-th row is drawn from.
    Call(const Backend& backend, Position count, Position each)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        for (Position p = 0; p < count; ++p) {
            rows.push_back(sequence_row(backend, 1 + p % 100, p, slots));
            const auto at = static_cast<std::size_t>(p);
            jobs.push_back(
                {p % each == each - 1 ? &params[at % params.size()] : nullptr, p + 1, 1 + p % 4});
        }
        hidden.resize(rows.size() * static_cast<std::size_t>(backend.config().dim));
        tokens.resize(rows.size());
        best.resize(rows.size());
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// The calls one after the other.
    void one_by_one(CudaBackend& backend, HeadId head) {
        REQUIRE(run_then_draw({backend, backend}, rows, hidden, {jobs, true}, tokens, nullptr) ==
                RunOutcome::Done);
        REQUIRE(run_then_draw_candidates({backend, backend}, head, rows, hidden, {jobs, true}, best,
                                         nullptr) == RunOutcome::Done);
    }
    void check_same(const Call& want) const {
        CHECK(tokens == want.tokens);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            REQUIRE(best[r].size() == want.best[r].size());
            for (std::size_t i = 0; i < best[r].size(); ++i) {
                CHECK(best[r][i].token == want.best[r][i].token);
                CHECK(best[r][i].log_prob == want.best[r][i].log_prob);
            }
        }
    }
};

}  // namespace paceline::testing
