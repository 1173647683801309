#include "launch/session/answer_compare.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <set>

namespace paceline {

std::optional<std::size_t> first_difference(std::span<const TokenId> one,
                                            std::span<const TokenId> other) {
    const auto [a, b] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
    if (a == one.end() && b == other.end()) return {};
    return static_cast<std::size_t>(a - one.begin());
}

std::string difference_text(std::span<const TokenId> got, std::span<const TokenId> expected) {
    const std::optional<std::size_t> place = first_difference(got, expected);
    if (!place) return "equal";
    if (*place == got.size() || *place == expected.size()) {
        return fmt::format("ends after {} tokens instead of {}", got.size(), expected.size());
    }
    return fmt::format("token {}: {} instead of {}", *place, got[*place], expected[*place]);
}

std::optional<std::size_t> first_loop(std::span<const TokenId> text, std::size_t length) {
    std::set<std::vector<TokenId>> seen;
    for (std::size_t begin = 0; begin + length <= text.size(); ++begin) {
        const auto run = text.subspan(begin, length);
        if (!seen.insert({run.begin(), run.end()}).second) return begin;
    }
    return {};
}

Result<std::vector<Answer>> decode_plainly(const ModelFile& file,
                                           const ModelOptions& model,
                                           const Environment& environment,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           Request request) {
    Result<std::unique_ptr<TokenGenerator>> generator =
        make_plain_generator(file, model, bars_on(environment));
    if (!generator) return generator.error();
    std::vector<Answer> answers;
    const CancelToken never;
    for (const std::vector<TokenId>& prompt : prompts) {
        Answer answer;
        const auto keep = [&answer](TokenId token) {
            answer.ids.push_back(token);
            return Go::On;
        };
        generator.value()->reset();
        request.text = prompt;
        generator.value()->on_scores([&](Position position, const TokenScores& scores) {
            answer.add_scores(position < static_cast<Position>(prompt.size()), scores);
        });
        Result<AnswerStats> stats = generator.value()->run(request, keep, never);
        if (!stats) return stats.error();
        answer.stats = stats.value();
        answers.push_back(std::move(answer));
    }
    return answers;
}

}  // namespace paceline
