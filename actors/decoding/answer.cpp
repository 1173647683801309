#include "actors/decoding/answer.hpp"

#include <functional>

namespace paceline {
namespace {

template <std::size_t N>
void add_each(std::array<std::int64_t, N>& sum, const std::array<std::int64_t, N>& other) {
    std::transform(sum.begin(), sum.end(), other.begin(), sum.begin(), std::plus<>{});
}

}  // namespace

void VerdictTally::add(const msg::Verdict& verdict) {
    ++batches;
    emitted += verdict.count;
    ++by_rows[std::clamp<std::uint32_t>(verdict.batch_rows, 1, kVerifyRowsMax)];
    if (verdict.batch_rows <= 1) {
        ++alone;
        return;
    }
    ++drafts;
    candidates += verdict.batch_rows - 1;
    const std::uint32_t right = verdict.count > 0 ? verdict.count - 1 : 0;
    accepted += right;
    for (std::size_t i = 0; i < std::min<std::size_t>(right, accepted_at.size()); ++i)
        ++accepted_at[i];
}

void VerdictTally::add(const VerdictTally& other) {
    batches += other.batches;
    alone += other.alone;
    drafts += other.drafts;
    candidates += other.candidates;
    accepted += other.accepted;
    emitted += other.emitted;
    add_each(accepted_at, other.accepted_at);
    add_each(by_rows, other.by_rows);
}

double VerdictTally::mean_acceptance_length() const {
    return drafts > 0 ? 1.0 + static_cast<double>(accepted) / static_cast<double>(drafts) : 1.0;
}

std::vector<double> VerdictTally::rate_by_position() const {
    std::vector<double> rates;
    for (const std::int64_t count : accepted_at) {
        if (count == 0) break;  // later ones are not accepted without this one
        rates.push_back(static_cast<double>(count) / static_cast<double>(drafts));
    }
    return rates;
}

double AnswerStats::decode_rate() const {
    const double took = std::chrono::duration<double>(decode_time()).count();
    if (verdicts.batches == 1) return 0.0;  // they came at once: there is no time between them
    return generated_tokens > 1 && took > 0.0 ? (generated_tokens - 1) / took : 0.0;
}

}  // namespace paceline
