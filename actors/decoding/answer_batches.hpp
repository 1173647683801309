// AnswerBatches: answers to many prompts, made in batches of rows of many requests on one backend.
//
// As many requests as there are max_running run at a time, each with KV pages of its own. A batch
// is the newest row of every request that is answering, and, as far as rows are left, rows of
// prompts of those that are joining. Where an answer ends the next prompt takes its place
// (continuous batching). What is drawn depends on prompt, parameters and the answer's own seed
// alone: rows do not see their neighbours, so the tokens are those of PlainDecoder.
//
// With the tokens an answer keeps the target's most probable next tokens after each row, and
// residuals. To read the residual after a layer, the layers of a batch run in several calls that
// end there.
//
// Borrows the backend, which must hold all layers. One thread; the cancel token may be raised
// from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/request.hpp"
#include "actors/decoding/slot_allocator.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/finish_reason.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

struct BatchParams {
    Request request = {};          // of every answer but for its text; answer i draws with seed + i
    int max_running = 32;          // requests at a time, >= 1
    int batch_rows = 64;           // of one batch, >= max_running
    int top = 0;                   // likeliest tokens kept per row; 0: none
    std::vector<int> hidden = {};  // layers after which the residual is kept; ascending, from 1
};

struct AnswerTask {
    std::int64_t index = 0;                // of the answer: chooses its seed
    std::int32_t prompt = 0;               // which prompt it answers, and
    std::int32_t sample = 0;               // for which time
    std::span<const TokenId> tokens = {};  // the prompt; outlives run()
};

/// A row i is the token at position i. What lies after the last token is known only if it ran.
struct TrainingSample {
    AnswerTask task;
    std::vector<TokenId> tokens = {};  // prompt and answer; an end token is the last of them
    FinishReason finish = FinishReason::None;
    std::vector<TokenId> top_ids = {};            // [tokens, top], best first, -1: not known
    std::vector<std::uint16_t> top_logprob = {};  // [tokens, top] f16: log softmax of the logits
    std::vector<std::vector<std::uint16_t>> hidden = {};  // per layer [tokens, dim] f16

    [[nodiscard]] std::span<const TokenId> answer() const {
        return std::span{tokens}.subspan(task.tokens.size());
    }
};

/// As f16. Saturating: an infinity in training data would be worse than the largest number.
[[nodiscard]] std::uint16_t saturated_half(float value);

/// KV slots with which a request never waits for pages: those of the largest that fill all
/// max_running.
[[nodiscard]] std::int32_t kv_slots_for(std::span<const AnswerTask> tasks,
                                        const BatchParams& params);

class AnswerBatches {
public:
    using Done = std::function<Status(TrainingSample)>;
    /// After each batch: tokens drawn in it, rows it had.
    using OnBatch = std::function<void(int drawn, int rows)>;

    /// Preconditions: `params` are in their ranges; the backend holds all layers.
    AnswerBatches(Backend& backend, BatchParams params);

    /// Answers all tasks, begun in their order; `done` gets each answer when it is complete.
    /// Every task has room in the context for one token of answer.
    /// Errors: Cancelled; OutOfMemory if a request alone has not enough KV slots; BadFile if the
    /// model gives no number to draw a token from; those of `done`.
    [[nodiscard]] Status run(std::span<const AnswerTask> tasks,
                             const Done& done,
                             const OnBatch& on_batch,
                             const CancelToken& cancel);

private:
    struct RunningAnswer {
        TrainingSample answer;
        RequestSlots slots;
        SamplingParams sampling;
        FinishRule rule;
        Position fed = 0;  // rows that have run

        [[nodiscard]] bool over() const { return answer.finish != FinishReason::None; }
        [[nodiscard]] Position unfed() const {
            return static_cast<Position>(answer.tokens.size()) - fed;
        }
    };
    struct BatchRow {
        RunningAnswer* running;
        Position position;
    };

    [[nodiscard]] Status seat_next(std::span<const AnswerTask>& waiting);
    void plan_batch();
    void add_rows(RunningAnswer& running, Position count);
    [[nodiscard]] RunOutcome run_layers(const CancelToken& cancel);
    void keep_residuals(std::size_t layer_index);
    [[nodiscard]] Status draw();
    [[nodiscard]] std::optional<TokenId> draw_for(RunningAnswer& running, std::span<float> logits);
    void keep_candidates(RunningAnswer& running, std::span<const Candidate> best);
    [[nodiscard]] Status clear_seats(const Done& done);

    Backend* backend_;
    BatchParams params_;
    bool winner_is_drawn_;  // greedy without penalties: the likeliest token is the one drawn
    KvPages pages_;         // before the max_running, which give theirs back
    std::vector<std::unique_ptr<RunningAnswer>> running_;  // in the order in which they joined
    std::vector<Row> rows_;
    std::vector<BatchRow> batch_;    // what each row is
    std::vector<std::size_t> ends_;  // rows that are the newest of their text
    std::vector<float> hidden_;      // [batch_rows, dim]
    std::vector<float> end_hidden_;  // [max_running, dim]
    std::vector<float> logits_;      // [max_running, vocab]
    SamplerScratch scratch_;
};

}  // namespace paceline
