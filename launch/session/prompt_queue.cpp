#include "launch/session/prompt_queue.hpp"

#include <utility>

namespace paceline {

PromptQueue::PromptQueue(const Prompts& prompts, Request request, Submit submit, OnToken on_token)
    : answers(prompts.size()),
      prompts_{prompts},
      request_{std::move(request)},
      submit_{std::move(submit)},
      on_token_{std::move(on_token)} {}

void PromptQueue::begin(int at_once) {
    for (int i = 0; i < at_once; ++i) next();
}

void PromptQueue::next() {
    while (asked_ < prompts_.size()) {
        const std::size_t index = asked_++;
        const Result<RequestId> taken = submit_(order_of(index));
        if (taken) return;
        answers[index].status = taken.error();
        end(answers[index].status);
    }
}

AnswerOrder PromptQueue::order_of(std::size_t index) {
    Answer& answer = answers[index];
    Request request = request_;
    request.text = prompts_[index];
    AnswerOrder order = order_into(answer, std::move(request), [this, &answer] {
        end(answer.status);
        next();
    });
    if (!on_token_) return order;
    order.on_token = [this, &answer, index, collect = std::move(order.on_token)](TokenId token) {
        const Go go = collect(token);
        on_token_(index, answer.ids.size());
        return go;
    };
    return order;
}

void PromptQueue::end(const Status& status) {
    ++ended_;
    if (!status.ok() && !error_) error_ = status.error();
}

}  // namespace paceline
