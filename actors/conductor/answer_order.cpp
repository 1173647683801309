#include "actors/conductor/answer_order.hpp"

#include <utility>

namespace paceline {

AnswerOrder order_into(Answer& answer, Request request, std::function<void()> on_over) {
    AnswerOrder order;
    order.request = std::move(request);
    order.on_token = [&answer](TokenId token) {
        answer.ids.push_back(token);
        return Go::On;
    };
    const auto prompt = static_cast<Position>(order.request.text.size());
    if (order.request.scores.any()) {
        order.on_scores = [&answer, prompt](Position position, const TokenScores& scores) {
            answer.add_scores(position < prompt, scores);
        };
    }
    order.on_end = [&answer, on_over = std::move(on_over)](const AnswerStats& stats,
                                                           const Status& status) {
        answer.stats = stats;
        answer.status = status;
        if (on_over) on_over();
    };
    return order;
}

}  // namespace paceline
