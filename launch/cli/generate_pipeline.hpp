// PipelineAnswers: answers to many prompts by a pipeline, for `paceline generate`: the samples that
// AnswerBatches makes, byte for byte, but without hidden states.
//
// As many requests as the session has contexts run at a time; where an answer ends, the next task
// takes its place. Complete answers are given to `done` on the thread of run(), so files are not
// written on the pipeline's loop.
// Owns the session. One thread; the cancel token may be raised from any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "actors/decoding/answer_batches.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/finish_reason.hpp"
#include "launch/session/pipeline_session.hpp"

namespace paceline {

/// What a pipeline can be asked for. `top`: at most kTopScoresMax; no hidden states.
[[nodiscard]] bool suits_pipelines(const BatchParams& params);

/// BadFile if the answer to `prompt` ended because no token could be drawn, with the text that
/// plain decoding has: its verdict comes without an error.
[[nodiscard]] Status check_finish(FinishReason finish, std::int64_t prompt);

class PipelineAnswers {
public:
    using Done = AnswerBatches::Done;
    /// After each answer; false: no further one is begun.
    using GoOn = std::function<bool(const VerdictTally& so_far)>;

    /// Precondition: suits_pipelines(params); the session decodes params.max_running at a time.
    PipelineAnswers(std::unique_ptr<PipelineSession> session, BatchParams params);

    /// Answers the tasks in their order, until `go_on` ends it; returns how many were answered, the
    /// first ones. Once. Errors: Cancelled; those of the pipeline, of an answer, and of `done`.
    [[nodiscard]] Result<std::size_t> run(std::span<const AnswerTask> tasks,
                                          const Done& done,
                                          const GoOn& go_on,
                                          const CancelToken& cancel);

    [[nodiscard]] PipelineSession& session() { return *session_; }

private:
    struct Running {
        AnswerTask task;
        Answer answer = {};
        RequestId request = {};
    };

    [[nodiscard]] Status begin(const AnswerTask& task);
    [[nodiscard]] Result<std::vector<Running*>> wait_for_ended(const CancelToken& cancel);
    [[nodiscard]] Status give(Running& ended, const Done& done);
    [[nodiscard]] TrainingSample sample_of(const Running& ended) const;

    BatchParams params_;
    VerdictTally verdicts_ = {};
    std::vector<std::unique_ptr<Running>> running_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Running*> ended_;               // guarded by mutex_, like the next
    std::optional<Status> over_;                // of the pipeline
    std::unique_ptr<PipelineSession> session_;  // last: its loop uses the rest
};

}  // namespace paceline
