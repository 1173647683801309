#include "actors/conductor/score_log.hpp"

#include <fmt/core.h>
#include <utility>

#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

TokenScores scores_at(const msg::Scores& scores, std::uint32_t token) {
    const msg::ScoreEntry* entry = scores.entries.data() + std::size_t{token} * (1 + scores.top);
    TokenScores read{.log_prob = entry->log_prob, .rank = entry->value};
    for (std::uint32_t i = 1; i <= scores.top; ++i)
        read.top.push_back({entry[i].value, entry[i].log_prob});
    return read;
}

}  // namespace

Status ScoreLog::take(const msg::Scores& scores,
                      Position text_end,
                      const PlainDecoder::OnScores& deliver) {
    const bool of_prompt = scores.first < prompt_tokens_;
    const auto count = static_cast<Position>(scores.tokens);
    const Position next =
        of_prompt ? next_in_prompt_ : text_end + static_cast<Position>(answer_.size());
    const Position most = of_prompt ? prompt_tokens_ : next + static_cast<Position>(kGammaMax) + 1;
    const bool asked = of_prompt ? wanted_.prompt : wanted_.answer;
    const bool in_order = of_prompt ? scores.first <= next : scores.first == next;
    if (!asked || !in_order || scores.first + count > most ||
        (!of_prompt && answer_.size() + scores.tokens > kGammaMax + 1)) {
        return Error{
            Errc::Protocol,
            fmt::format("scores of {} tokens from position {} on, {}; expected from {} on", count,
                        scores.first, asked ? "not in order" : "which were not asked for", next)};
    }
    for (Position i = 0; i < count; ++i) {
        TokenScores read = scores_at(scores, static_cast<std::uint32_t>(i));
        if (!of_prompt) {
            answer_.push_back(std::move(read));
        } else if (scores.first + i >= next_in_prompt_) {
            ++next_in_prompt_;
            if (deliver) deliver(scores.first + i, read);
        }
    }
    return {};
}

Status ScoreLog::check(std::uint32_t tokens) const {
    if (!prompt_done()) {
        return Error{Errc::Protocol, fmt::format("a verdict before the scores of the prompt's "
                                                 "token {}",
                                                 next_in_prompt_)};
    }
    if (!wanted_.answer || answer_.size() == tokens) return {};
    return Error{Errc::Protocol,
                 fmt::format("a verdict on {} tokens after scores of {}", tokens, answer_.size())};
}

std::vector<TokenScores> ScoreLog::take_answer() {
    return std::exchange(answer_, {});
}

ScoreOptions ScoreLog::wanted() const {
    ScoreOptions left = wanted_;
    left.prompt = !prompt_done();
    return left;
}

}  // namespace paceline
