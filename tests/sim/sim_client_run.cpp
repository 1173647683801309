#include "tests/sim/sim_client_run.hpp"

#include <utility>

namespace paceline::testing {

void SimClientRun::ask() {
    const SimTurn& turn = script_.turns[turn_];
    AnswerOrder order;
    Request whole = turn.request;
    if (request_) {
        const std::span<const TokenId> before = conductor_.text(*request_);
        whole.text.insert(whole.text.begin(), before.begin(), before.end());
        conductor_.close(*request_);
    }
    order.request = whole;
    // A text that is full already is a client's mistake, not a case.
    if (static_cast<Position>(whole.text.size()) >= whole.context) {
        turn_ = script_.turns.size();
        return;
    }
    const Oracle oracle = plain_answer(whole);
    expected_ = oracle.answer;
    scored_.scores = oracle.scores;
    scored_.prompt_scores = oracle.prompt_scores;
    scores_of_prompt_ = scored_.prompt_scores.empty() ? 0 : 1;  // the first is not scored
    scores_of_answer_ = 0;
    prompt_ = whole.text.size();
    given_ = 0;
    whole.text.insert(whole.text.end(), expected_.begin(), expected_.end());
    texts_.push_back(std::move(whole.text));
    const std::uint64_t number = ++asked_;
    order.on_token = [this, number](TokenId token) { return take(number, token); };
    order.on_scores = [this, number](Position position, const TokenScores& scores) {
        take(number, position, scores);
    };
    order.on_end = [this, number](const AnswerStats& stats, const Status& status) {
        end(number, stats, status);
    };
    if (turn.cancel_after && turn.polled) {
        order.cancelled = [this, number, until = world_.now() + *turn.cancel_after] {
            if (number == asked_ && world_.now() >= until) stopped_ = true;
            return stopped_;
        };
    }
    open_ = true;
    stopped_ = false;
    const Result<RequestId> taken = conductor_.submit(std::move(order));
    if (drained_ && !taken.ok()) {
        turn_ = script_.turns.size();
        return;
    }
    if (drained_) world_.violate("an order was taken after the conductor was told to drain");
    if (!taken.ok()) return world_.violate("an order was refused: " + taken.error().what);
    request_ = taken.value();
    if (!turn.cancel_after || turn.polled) return;
    world_.call_at(world_.now() + *turn.cancel_after, [this, number] {
        if (number != asked_ || !open_) return;
        stopped_ = true;
        conductor_.cancel(*request_);
    });
}

Go SimClientRun::take(std::uint64_t number, TokenId token) {
    if (number != asked_ || !open_) {
        world_.violate("a token after the end of its answer");
        return Go::Stop;
    }
    if (given_ >= expected_.size() || expected_[given_] != token) {
        world_.violate("token " + std::to_string(given_) + " of request " +
                       std::to_string(request_ ? request_->value : 0) + " is " +
                       std::to_string(token) + ", plain decoding says " +
                       (given_ < expected_.size() ? std::to_string(expected_[given_])
                                                  : std::string{"that the answer is over"}));
        return Go::Stop;
    }
    ++given_;
    ++outcome_.tokens;
    if (!scored_.scores.empty() && scores_of_answer_ != given_)
        world_.violate("a token was given to the client without its scores");
    if (request_ && conductor_.text(*request_).size() < prompt_ + given_) {
        world_.violate("a client was given a token that the log does not hold");
    }
    const auto& stop_after = script_.turns[turn_].stop_after;
    if (!stop_after || given_ < *stop_after) return Go::On;
    stopped_ = true;
    return Go::Stop;
}

/// Each once, in order, with the bits of plain decoding.
void SimClientRun::take(std::uint64_t number, Position position, const TokenScores& scores) {
    if (number != asked_ || !open_) return world_.violate("scores after the end of their answer");
    const auto at = static_cast<std::size_t>(position);
    const bool of_prompt = at < prompt_;
    const std::vector<TokenScores>& expected = of_prompt ? scored_.prompt_scores : scored_.scores;
    std::size_t& seen = of_prompt ? scores_of_prompt_ : scores_of_answer_;
    const std::size_t index = of_prompt ? at : at - prompt_;
    if (index != seen || index >= expected.size() || !(expected[index] == scores)) {
        return world_.violate("the scores of position " + std::to_string(position) +
                              " are not those of plain decoding");
    }
    ++seen;
}

void SimClientRun::end(std::uint64_t number, const AnswerStats& stats, const Status& status) {
    if (number != asked_ || !open_) return world_.violate("an answer ends twice");
    open_ = false;
    outcome_.replays += stats.replays;
    outcome_.preemptions += stats.preemptions;
    outcome_.cached_tokens += static_cast<std::uint64_t>(stats.cached_tokens);
    if (stats.replays > 0 && !losses_)
        world_.violate("an answer was replayed, although no stage was lost");
    const std::string& salt = script_.turns[turn_].request.cache_salt;
    // A later attempt may find what its own text had proven before the loss, or the preemption.
    const bool began_once = stats.replays == 0 && stats.preemptions == 0;
    if (turn_ == 0 && !salt.empty() && stats.cached_tokens > 0 && began_once)
        world_.violate("a prompt was found in the cache under a salt that no other request has");
    world_.tell([&] {
        return "answer ends: " + (status.ok() ? "ok" : status.error().what) + ", " +
               std::to_string(given_) + " of " + std::to_string(expected_.size()) + " tokens";
    });
    if (!status.ok()) {
        ++outcome_.failed;
        error_ = status.error().what;
        if (!faults_) world_.violate("an error without a fault: " + status.error().what);
    } else if (stopped_) {
        ++outcome_.stopped;
    } else {
        ++outcome_.answers;
        if (scores_of_prompt_ != scored_.prompt_scores.size())
            world_.violate("an answer ends without the scores of its prompt");
        if (given_ != expected_.size()) {
            world_.violate("an answer ends after " + std::to_string(given_) + " of " +
                           std::to_string(expected_.size()) + " tokens");
        }
        if (stats.finish == FinishReason::None || stats.finish == FinishReason::Interrupted) {
            world_.violate("an answer ends by itself and does not say why");
        }
    }
    next_turn();
}

void SimClientRun::next_turn() {
    if (++turn_ >= script_.turns.size()) return;
    // Never from the callback itself: by then the answer must be over for good.
    world_.call_at(world_.now() + script_.turns[turn_].pause, [this] { ask(); });
}

}  // namespace paceline::testing
