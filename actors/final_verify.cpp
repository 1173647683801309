#include "actors/final_verify.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "model/sampling/sampler_scratch.hpp"

namespace paceline {

FinalVerify::FinalVerify(Backend& backend, VerifyOptions options)
    : backend_{backend}, options_{options}, scratch_{std::make_unique<SamplerScratch>()} {
    PACE_CHECK(options.head_rows >= 1 && options.head_rows <= kWaveRowsMax,
               "head_rows must be 1 .. kWaveRowsMax");
    const auto rows = static_cast<std::size_t>(options.head_rows);
    batch_hidden_.resize(rows * static_cast<std::size_t>(backend.config().dim));
    logits_.resize(rows * static_cast<std::size_t>(backend.config().vocab_size));
}

FinalVerify::~FinalVerify() = default;

Judged FinalVerify::judge(const RequestState& state,
                          std::span<const TokenId> committed,
                          std::span<const msg::WaveRow> rows,
                          std::span<const float> hidden) {
    batch_.clear();
    const CoupledInput input{.rows = rows,
                             .root = 0,
                             .committed = committed,
                             .sampling = state.spec().sampling,
                             .finish = state.finish_rule()};
    const auto logits = [&](std::size_t row) { return logits_of(row, rows, hidden); };
    return judge_coupled(input, logits, *scratch_);
}

std::span<float> FinalVerify::logits_of(std::size_t row,
                                        std::span<const msg::WaveRow> rows,
                                        std::span<const float> hidden) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto vocab = static_cast<std::size_t>(backend_.config().vocab_size);
    auto place = std::find(batch_.begin(), batch_.end(), row);
    if (place == batch_.end()) {
        // The walk only goes down, so of the batch before nothing is needed any more. The first
        // child of each row is the likeliest to be asked for next.
        batch_.assign(1, row);
        for (std::size_t i = row + 1; i < rows.size() && batch_.size() < options_.head_rows; ++i) {
            if (rows[i].parent == rows[batch_.back()].node.value) batch_.push_back(i);
        }
        for (std::size_t i = 0; i < batch_.size(); ++i) {
            const std::span<const float> state = hidden.subspan(batch_[i] * dim, dim);
            std::copy(state.begin(), state.end(),
                      batch_hidden_.begin() + static_cast<std::ptrdiff_t>(i * dim));
        }
        const std::size_t count = batch_.size();
        backend_.head(HeadId::Final, std::span{batch_hidden_}.first(count * dim),
                      static_cast<int>(count), std::span{logits_}.first(count * vocab));
        head_rows_computed_ += count;
        place = batch_.begin();
    }
    return std::span{logits_}.subspan(static_cast<std::size_t>(place - batch_.begin()) * vocab,
                                      vocab);
}

msg::Verdict make_verdict(
    const msg::Route& route, WaveId wave, Position base, std::uint32_t rows, const Judged& judged) {
    msg::Verdict verdict{};
    verdict.route = route;
    verdict.wave = wave;
    verdict.base = base;
    verdict.count = static_cast<std::uint32_t>(judged.tokens.size());
    verdict.wave_rows = rows;
    verdict.finish = judged.finish;
    PACE_CHECK(judged.tokens.size() <= verdict.tokens.size(), "a verdict of too many tokens");
    PACE_CHECK(judged.nodes.size() + 1 == judged.tokens.size() || judged.tokens.empty(),
               "a verdict commits its accepted nodes and one token more");
    std::copy(judged.tokens.begin(), judged.tokens.end(), verdict.tokens.begin());
    std::copy(judged.nodes.begin(), judged.nodes.end(), verdict.nodes.begin());
    return verdict;
}

}  // namespace paceline
