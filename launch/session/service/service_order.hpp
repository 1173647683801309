// ServiceOrder: what a client orders of a service. Plain values.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>

#include "actors/decoding/request.hpp"
#include "launch/session/answer_text.hpp"

namespace paceline {

/// Of an order, never used twice.
struct AnswerId {
    std::uint64_t value = 0;
    friend auto operator<=>(const AnswerId&, const AnswerId&) = default;
};

/// Milliseconds of time in which the pipeline was whole (answer_clock.hpp); nothing: no limit.
struct AnswerDeadlines {
    using Limit = std::optional<std::chrono::milliseconds>;
    Limit queue = {};        // from submit() to the beginning
    Limit first_token = {};  // from the beginning
    Limit gap = {};          // between two tokens
    Limit answer = {};       // from submit() to the last token
};

struct ServiceOrder {
    Request request = {};
    std::optional<AnswerText> text = {};  // nothing: the stream has tokens alone
    int priority = 0;                     // lower goes first
    AnswerDeadlines deadlines = {};
    /// The prompt alone is wanted, for its scores or its cache: max_tokens is 1, and the token that
    /// says that the prompt was processed is not given to the stream.
    bool prompt_only = false;
    bool counted = true;  // among the answers and tokens of the snapshot
};

}  // namespace paceline
