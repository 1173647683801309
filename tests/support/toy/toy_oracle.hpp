// What plain decoding makes of a request on the toy model, and a draft that knows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "actors/decoding/request.hpp"
#include "actors/draft/draft_source.hpp"
#include "tests/support/toy/toy_backend.hpp"
#include "tests/support/toy/toy_grammar.hpp"

namespace paceline::testing {

/// What plain decoding makes of a request, on a fresh backend.
struct Oracle {
    std::vector<TokenId> answer;
    FinishReason finish = FinishReason::None;
    std::vector<TokenScores> scores = {};  // as in Answer
    std::vector<TokenScores> prompt_scores = {};
};
inline Oracle plain_answer(const Request& request, TokenId all_nan_at = -1) {
    FakeBackend backend{0, kFakeLayers, 4096};
    backend.all_nan_at = all_nan_at;
    PlainDecoder decoder =
        PlainDecoder::make(
            backend, {.prefill_rows = 7, .context = request.context, .grammars = toy_grammars()})
            .value();
    Oracle oracle;
    const auto on_token = [&](TokenId token) {
        oracle.answer.push_back(token);
        return Go::On;
    };
    const auto clock = [] { return Micros{0}; };
    Answer scored;
    decoder.on_scores([&](Position position, const TokenScores& scores) {
        scored.add_scores(position < static_cast<Position>(request.text.size()), scores);
    });
    oracle.finish = decoder.run(request, on_token, nullptr, clock).value().finish;
    oracle.scores = std::move(scored.scores);
    oracle.prompt_scores = std::move(scored.prompt_scores);
    return oracle;
}

/// Proposes the true continuation, each token right with the given probability.
class OracleSource final : public DraftSource {
public:
    OracleSource(std::vector<TokenId> text, double right, DraftCost cost, std::uint64_t seed)
        : text_{std::move(text)}, right_{right}, cost_{cost}, random_{seed} {}
    [[nodiscard]] DraftCost cost() const override { return cost_; }
    void commit(std::span<const TokenId> tokens) override { committed_ += tokens.size(); }
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken&) override {
        std::vector<TokenId> tokens;
        for (std::int32_t i = 0; i < gamma; ++i) {
            const std::size_t at = committed_ + path.size() + static_cast<std::size_t>(i);
            const bool right = std::bernoulli_distribution{right_}(random_);
            const TokenId candidate =
                std::uniform_int_distribution<TokenId>{0, kFakeVocab - 1}(random_);
            tokens.push_back(right && at < text_.size() ? text_[at] : candidate);
        }
        return tokens;
    }

private:
    std::vector<TokenId> text_;
    double right_;
    DraftCost cost_;
    std::mt19937_64 random_;
    std::size_t committed_ = 0;
};

}  // namespace paceline::testing
