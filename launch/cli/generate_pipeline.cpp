#include "launch/cli/generate_pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // at the cancel token

}  // namespace

bool suits_pipelines(const BatchParams& params) {
    return params.hidden.empty() && params.top <= kTopScoresMax;
}

Status check_finish(FinishReason finish, std::int64_t prompt) {
    if (finish == FinishReason::GrammarFailed)
        return Error{Errc::BadFile,
                     fmt::format("the answer to prompt {} ends: {}", prompt, kGrammarFailed)};
    if (finish == FinishReason::Failed)
        return Error{Errc::BadFile,
                     fmt::format("no token can be drawn for prompt {}: no logit is a finite "
                                 "number; the model's weights may be damaged",
                                 prompt)};
    return {};
}

PipelineAnswers::PipelineAnswers(std::unique_ptr<PipelineSession> session, BatchParams params)
    : params_{std::move(params)}, session_{std::move(session)} {
    PACE_CHECK(suits_pipelines(params_), "hidden states are of plain decoding");
    session_->on_over([this](const Status& ended) {
        const std::lock_guard lock{mutex_};
        over_ = ended;
        changed_.notify_all();
    });
}

Status PipelineAnswers::begin(const AnswerTask& task) {
    running_.push_back(std::make_unique<Running>(Running{.task = task}));
    Running& running = *running_.back();
    Request request = params_.request;
    request.text.assign(task.tokens.begin(), task.tokens.end());
    request.sampling.seed += static_cast<std::uint64_t>(task.index);
    request.context = std::min(request.context, session_->context());
    if (params_.top > 0) request.scores = {.answer = true, .top = params_.top};
    const Result<RequestId> taken =
        session_->submit(order_into(running.answer, std::move(request), [this, &running] {
            const std::lock_guard lock{mutex_};
            ended_.push_back(&running);
            changed_.notify_all();
        }));
    if (!taken) return taken.error();
    running.request = taken.value();
    return {};
}

Result<std::vector<PipelineAnswers::Running*>> PipelineAnswers::wait_for_ended(
    const CancelToken& cancel) {
    std::unique_lock lock{mutex_};
    while (ended_.empty()) {
        if (cancel.cancelled()) return Error{Errc::Cancelled, "the run was interrupted"};
        if (over_ && !over_->ok()) return over_->error();
        if (over_) return Error{Errc::PeerGone, "the pipeline has ended"};
        changed_.wait_for(lock, kLook);
    }
    return std::exchange(ended_, {});
}

TrainingSample PipelineAnswers::sample_of(const Running& ended) const {
    const Answer& answer = ended.answer;
    TrainingSample sample{.task = ended.task, .finish = answer.stats.finish};
    sample.tokens.assign(ended.task.tokens.begin(), ended.task.tokens.end());
    sample.tokens.insert(sample.tokens.end(), answer.ids.begin(), answer.ids.end());
    const auto top = static_cast<std::size_t>(params_.top);
    sample.top_ids.assign(sample.tokens.size() * top, -1);
    sample.top_logprob.assign(sample.tokens.size() * top, 0);
    for (std::size_t i = 0; i < answer.scores.size() && i < answer.ids.size(); ++i) {
        // The distribution stands at the token before the one that was drawn from it.
        const std::size_t row = (ended.task.tokens.size() + i - 1) * top;
        const std::vector<ScoredToken>& best = answer.scores[i].top;
        for (std::size_t rank = 0; rank < std::min(best.size(), top); ++rank) {
            sample.top_ids[row + rank] = best[rank].token;
            sample.top_logprob[row + rank] = saturated_half(best[rank].log_prob);
        }
    }
    return sample;
}

Status PipelineAnswers::give(Running& ended, const Done& done) {
    if (!ended.answer.status) return ended.answer.status;
    if (Status s = check_finish(ended.answer.stats.finish, ended.task.prompt); !s) return s;
    verdicts_.add(ended.answer.stats.verdicts);
    session_->close(ended.request);
    Status taken = done(sample_of(ended));
    std::erase_if(running_, [&](const auto& running) { return running.get() == &ended; });
    return taken;
}

Result<std::size_t> PipelineAnswers::run(std::span<const AnswerTask> tasks,
                                         const Done& done,
                                         const GoOn& go_on,
                                         const CancelToken& cancel) {
    std::size_t begun = 0;
    bool more = true;
    for (;;) {
        const auto most = static_cast<std::size_t>(params_.max_running);
        while (more && begun < tasks.size() && running_.size() < most) {
            if (Status s = begin(tasks[begun++]); !s) return s.error();
        }
        if (running_.empty()) return begun;
        Result<std::vector<Running*>> ended = wait_for_ended(cancel);
        if (!ended) return ended.error();
        for (Running* running : ended.value()) {
            if (Status s = give(*running, done); !s) return s.error();
            more = go_on(verdicts_) && more;
        }
    }
}

}  // namespace paceline
