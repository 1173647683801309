// PromptQueue: has a list of prompts answered, a fixed number at a time, and collects the answers.
// Used by check and simulate.
//
// Each prompt becomes one AnswerOrder. When an answer ends, the next prompt is submitted from its
// on_end. An order that is refused leaves an answer with the error, and the next prompt takes its
// place.
// Borrows the prompts. Threads: begin() and the callbacks of the orders, on the conductor's loop or
// before it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "actors/conductor/answer_order.hpp"

namespace paceline {

class PromptQueue {
public:
    using Prompts = std::vector<std::vector<TokenId>>;
    using Submit = std::function<Result<RequestId>(AnswerOrder)>;
    /// Called after each token with the index of its prompt and the length of its answer.
    using OnToken = std::function<void(std::size_t index, std::size_t tokens)>;

    /// `request`: of every answer but for its text. `on_token` may be empty.
    PromptQueue(const Prompts& prompts, Request request, Submit submit, OnToken on_token = {});

    void begin(int at_once);
    [[nodiscard]] bool over() const { return ended_ == answers.size(); }
    [[nodiscard]] const std::optional<Error>& first_error() const { return error_; }

    std::vector<Answer> answers;  // in the order of the prompts

private:
    void next();
    [[nodiscard]] AnswerOrder order_of(std::size_t index);
    void end(const Status& status);

    const Prompts& prompts_;
    Request request_;
    Submit submit_;
    OnToken on_token_;
    std::size_t asked_ = 0;
    std::size_t ended_ = 0;
    std::optional<Error> error_;
};

}  // namespace paceline
