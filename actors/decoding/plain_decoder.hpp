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
#include "actors/decoding/request.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/device_sampler.hpp"

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
    /// Of the token at a position of the text.
    using OnScores = std::function<void(Position position, const TokenScores& scores)>;
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
    void on_scores(OnScores scores) { on_scores_ = std::move(scores); }

    /// Prompts and answers so far.
    [[nodiscard]] std::span<const TokenId> text() const { return text_; }
    [[nodiscard]] Position fed() const { return fed_; }
    [[nodiscard]] Position context() const { return context_; }
    /// Forgets the text and what is in the KV cache.
    void reset();

private:
    static constexpr std::size_t kScoredRows = 8;  // of one call of the head

    PlainDecoder(Backend& backend, PlainOptions options, Position context);
    [[nodiscard]] Status check(const Request& request, Position context) const;
    RunOutcome feed(std::int32_t rows, const Request& request, const CancelToken* cancel);
    RunOutcome run_rows(std::span<const Row> rows,
                        const Request& request,
                        const CancelToken* cancel);
    [[nodiscard]] Status begin_grammar(const Request& request, Position length);
    void score_prompt(Position first, Position end, const ScoreOptions& scores);
    [[nodiscard]] std::optional<TokenId> draw(const Request& request);
    [[nodiscard]] DeviceSampler* device_for(const Request& request) const;
    std::span<float> last_logits();

    Backend* backend_;
    int prefill_rows_;
    Position context_;
    std::vector<TokenId> text_;
    Position fed_ = 0;
    std::int32_t last_rows_ = 0;  // rows of the last feed: where the newest hidden state lies
    std::vector<KvSlot> slots_;   // slots_[p] == p: the prefix table of every row
    std::vector<float> hidden_;   // [prefill_rows, dim], unless tokens are drawn with the layers
    std::vector<float> logits_;   // [vocab]
    std::vector<float> prompt_logits_;  // [kScoredRows, vocab], once a prompt is scored
    std::vector<DrawJob> jobs_;  // of the last feed's rows, where tokens are drawn with the layers
    std::vector<std::optional<TokenId>> tokens_;
    std::unique_ptr<SamplerScratch> scratch_;
    std::shared_ptr<GrammarLoader> grammars_;
    std::unique_ptr<AnswerGrammar> grammar_;  // of the answer; nullptr: none
    RowScores row_scores_;
    OnScores on_scores_;                           // may be empty
    std::function<void(double part)> on_prefill_;  // may be empty
};

}  // namespace paceline
