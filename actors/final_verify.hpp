// FinalVerify: the judge. Turns the hidden states of a wave into a verdict.
//
// Head and sampling run inside the segment's job, after its layers. Logits are computed for as
// few rows as needed: the head reads its weights once per call, so a call takes the row that is
// asked for and the next rows on its trunk, up to head_rows; a rejected rest is never computed.
// Any head_rows gives the same bits, since the head is row-invariant.
// Owns the logits' memory and the sampler's scratch. Threads: one job at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/messages.hpp"
#include "model/backend.hpp"

namespace paceline {

struct VerifyOptions {
    std::uint32_t head_rows = 8;  // rows of one call of the head, 1 .. kWaveRowsMax
};

class FinalVerify {
public:
    FinalVerify(Backend& backend, VerifyOptions options);
    ~FinalVerify();
    FinalVerify(const FinalVerify&) = delete;
    FinalVerify& operator=(const FinalVerify&) = delete;

    /// Judges `rows` (the first is the root) with their hidden states [rows, dim] after the last
    /// layer. `committed` is the text up to and including the root.
    [[nodiscard]] Judged judge(const RequestState& state,
                               std::span<const TokenId> committed,
                               std::span<const msg::WaveRow> rows,
                               std::span<const float> hidden);

    /// Rows for which the head has been computed so far.
    [[nodiscard]] std::uint64_t head_rows_computed() const { return head_rows_computed_; }

private:
    std::span<float> logits_of(std::size_t row,
                               std::span<const msg::WaveRow> rows,
                               std::span<const float> hidden);

    Backend& backend_;
    VerifyOptions options_;
    std::unique_ptr<SamplerScratch> scratch_;
    std::vector<std::size_t> batch_;   // which rows logits_ holds
    std::vector<float> batch_hidden_;  // [head_rows, dim]
    std::vector<float> logits_;        // [head_rows, vocab]
    std::uint64_t head_rows_computed_ = 0;
};

/// The message that says it. `rows` were judged.
[[nodiscard]] msg::Verdict make_verdict(
    const msg::Route& route, WaveId wave, Position base, std::uint32_t rows, const Judged& judged);

}  // namespace paceline
