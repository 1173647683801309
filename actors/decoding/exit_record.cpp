#include "actors/decoding/exit_record.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace paceline {
namespace {

/// Nothing while its position is not committed; else whether it is right.
std::optional<bool> came_true(const ExitCandidates::Place& candidate,
                              std::span<const TokenId> text) {
    const auto at = static_cast<std::size_t>(candidate.at);
    const std::size_t begin = at - candidate.path.size();
    for (std::size_t i = 0; i < candidate.path.size(); ++i) {
        if (begin + i >= text.size()) return std::nullopt;
        if (text[begin + i] != candidate.path[i]) return false;
    }
    if (at >= text.size()) return std::nullopt;
    return std::find(candidate.tokens.begin(), candidate.tokens.end(), text[at]) !=
           candidate.tokens.end();
}

/// Nothing while one of its positions is not committed.
std::optional<std::size_t> right_of(const ExitCandidates& said, std::span<const TokenId> text) {
    std::size_t right = 0;
    for (const ExitCandidates::Place& candidate : said.places) {
        const std::optional<bool> known = came_true(candidate, text);
        if (!known) return std::nullopt;
        if (*known) ++right;
        if (!*known && said.chained) break;
    }
    return right;
}

}  // namespace

void ExitRecord::add(ExitCandidates said) {
    if (evaluations_.size() == kEvaluationsMax) evaluations_.pop_front();
    evaluations_.push_back(std::move(said));
}

std::vector<std::size_t> ExitRecord::resolve(RequestId request,
                                             Attempt attempt,
                                             std::span<const TokenId> text) {
    std::vector<std::size_t> known;
    std::erase_if(evaluations_, [&](const ExitCandidates& said) {
        if (said.request != request) return false;
        if (said.attempt != attempt) return said.attempt < attempt;
        const std::optional<std::size_t> right = right_of(said, text);
        if (right) known.push_back(*right);
        return right.has_value();
    });
    return known;
}

}  // namespace paceline
