// PlainDecoder: autoregressive decoding of one text on one backend, without speculation.
//
// It is the oracle of every exactness test (all other methods must commit its tokens) and what
// `paceline run` uses when no pipeline is configured.
//
// Owns the text and the knowledge which of its positions are in the backend's KV cache; the
// backend is borrowed and must hold all layers. Threads: run() on one thread at a time; the
// cancel token may be raised from any.
// Invariants: positions [0, fed()) of text() are in the KV cache, in their home slots
// (slot == position); fed() < text().size() whenever there is a text.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "actors/decoding/grammar/answer_grammar.hpp"
#include "actors/decoding/plain/plain_passes.hpp"
#include "actors/decoding/plain/score_reports.hpp"
#include "actors/decoding/request.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

struct PlainOptions {
    int prefill_rows = 512;  // rows of one prefill chunk, >= 1
    Position context = 0;    // tokens of the whole text; 0: what the model and its KV cache hold
    std::shared_ptr<GrammarLoader> grammars = {};  // nullptr: requests with a grammar are refused
};

enum class Go : std::uint8_t { On, Stop };

class PlainDecoder {
public:
    using OnToken = std::function<Go(TokenId)>;
    using OnScores = ScoreReports::OnScores;
    using Clock = std::function<std::chrono::microseconds()>;

    /// Errors: BadArgument if the backend lacks layers, or options are out of range.
    static Result<PlainDecoder> make(Backend& backend, PlainOptions options);

    PlainDecoder(PlainDecoder&&) noexcept;
    PlainDecoder& operator=(PlainDecoder&&) noexcept;
    PlainDecoder(const PlainDecoder&) = delete;
    PlainDecoder& operator=(const PlainDecoder&) = delete;
    ~PlainDecoder();

    /// Appends request.text to the text (a prompt, or the next turn of a chat), then generates.
    /// Tokens are appended to the text as they are drawn. A context of 0 is the decoder's, a larger
    /// one is cut to it. `cancel` may be nullptr.
    /// Errors: BadArgument for an empty text, a token outside the vocabulary, bad sampling
    /// parameters, or a text that leaves no room in the context; Unsupported for a grammar in a
    /// build without them (then the text is as before).
    Result<AnswerStats> run(const Request& request,
                            const OnToken& on_token,
                            const CancelToken* cancel,
                            const Clock& clock);

    /// Called with the part of the prompt that is processed, from 0 to 1, after each chunk of it.
    void on_prefill(std::function<void(double part)> progress) {
        on_prefill_ = std::move(progress);
    }

    /// Called with what a request's ScoreOptions ask for: of a prompt's tokens as its rows are
    /// computed, of an answer's each before it is given to on_token.
    void on_scores(OnScores scores) { scores_.to(std::move(scores)); }

    /// Prompts and answers so far.
    [[nodiscard]] std::span<const TokenId> text() const { return text_; }
    [[nodiscard]] Position fed() const { return fed_; }
    [[nodiscard]] Position context() const { return context_; }
    /// Forgets the text and what is in the KV cache.
    void reset();

private:
    PlainDecoder(Backend& backend, PlainOptions options, Position context);
    [[nodiscard]] Status check(const Request& request, Position context) const;
    [[nodiscard]] Status begin_grammar(const Request& request, Position length);
    RunOutcome feed(const Request& request, const CancelToken* cancel);
    [[nodiscard]] std::optional<TokenId> draw(const Request& request);

    int prefill_rows_;
    Position context_;
    PlainPasses passes_;
    std::vector<TokenId> text_;
    Position fed_ = 0;
    std::unique_ptr<SamplerScratch> scratch_;
    std::shared_ptr<GrammarLoader> grammars_;
    std::unique_ptr<AnswerGrammar> grammar_;  // of the answer; nullptr: none
    ScoreReports scores_;
    std::function<void(double part)> on_prefill_;  // may be empty
};

}  // namespace paceline
