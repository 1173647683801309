// AnswerOrder: what the conductor is asked for: a request, and the callbacks that receive its
// answer.
//
// Plain values. Threads: the callbacks are called by the conductor's loop.
#pragma once

#include <functional>
#include <span>

#include "actors/decoding/answer.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

struct AnswerOrder {
    using OnToken = PlainDecoder::OnToken;
    Request request;
    OnToken on_token;  // for each committed token, in order
    /// Before the tokens of a verdict: whose candidates the first ones of them were. May be empty;
    /// ends no answer.
    std::function<void(std::span<const msg::Origin> origins)> on_accepted = {};
    /// Of each token before it is given to on_token, and of the prompt's tokens, if the request
    /// wants them; position: in prompt and answer. May be empty; ends no answer.
    PlainDecoder::OnScores on_scores = {};
    std::function<bool()> cancelled;  // asked at each verdict and now and then; may be empty
    /// Called once, at the end, in every case. The status is an error if the answer could not be
    /// completed.
    /// Times are of the context's clock.
    std::function<void(const AnswerStats& stats, const Status& status)> on_end;
};

/// An order whose callbacks collect tokens, statistics and status in `answer`, which must outlive
/// them; then `on_over` is called, unless it is empty.
[[nodiscard]] AnswerOrder order_into(Answer& answer,
                                     Request request,
                                     std::function<void()> on_over = {});

}  // namespace paceline
