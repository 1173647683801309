// The Generator of a pipeline of processes: a PipelineSession with one conversation.
#include <algorithm>
#include <chrono>

#include "launch/session/generator.hpp"
#include "launch/session/pipeline_session.hpp"

namespace paceline {
namespace {

class PipelineGenerator final : public Generator {
public:
    explicit PipelineGenerator(std::unique_ptr<PipelineSession> session)
        : session_{std::move(session)} {}

    Result<AnswerStats> run(const Request& request,
                            const PlainDecoder::OnToken& on_token,
                            const CancelToken& cancel) override {
        Answer answer;
        AnswerOrder order = order_into(answer, request);
        order.continues = request_;
        const auto begun = std::chrono::steady_clock::now();
        bool prefill = true;
        order.on_token = [&](TokenId token) {
            prefill = false;
            return on_token(token);
        };
        // The conductor asks several times a second.
        order.cancelled = [&] {
            if (prefill && on_prefill_) {
                on_prefill_(static_cast<double>(session_->prefilled_rows()) /
                            static_cast<double>(std::max<std::size_t>(1, request.text.size())));
            }
            return cancel.cancelled();
        };
        session_->reset_stats();
        const Result<RequestId> taken = session_->submit(std::move(order));
        if (!taken) return taken.error();
        request_ = taken.value();
        if (Status ended = session_->run(); !ended) return ended.error();
        if (!answer.status) return answer.status.error();
        AnswerStats& stats = answer.stats;
        const bool cut = stats.finish == FinishReason::Interrupted && prefill;
        if (!cut || stats.begun.count() == 0) return stats;
        // The conductor learns of a prefill when it is over, never of one that was cancelled.
        stats.prompt_tokens = std::min(stats.prompt_tokens, session_->prefilled_rows());
        stats.prefilled = stats.begun + std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::steady_clock::now() - begun);
        return stats;
    }

    [[nodiscard]] Position text_tokens() const override {
        return request_ ? static_cast<Position>(session_->text(*request_).size()) : 0;
    }
    [[nodiscard]] Position context() const override { return session_->context(); }
    void reset() override {
        if (request_) session_->close(*request_);
        request_.reset();
    }
    void on_prefill(std::function<void(double part)> progress) override {
        on_prefill_ = std::move(progress);
    }
    [[nodiscard]] GeneratorTraits traits() const override { return session_->traits(); }
    [[nodiscard]] std::string trace_text() const override { return session_->trace_text(); }
    [[nodiscard]] std::optional<PipelineStats> pipeline_stats() const override {
        return session_->stats();
    }

private:
    std::unique_ptr<PipelineSession> session_;
    std::optional<RequestId> request_;  // the conversation, once it has begun
    std::function<void(double part)> on_prefill_;
};

}  // namespace

Result<std::unique_ptr<Generator>> make_pipeline_generator(const ModelFile& file,
                                                           const ModelOptions& options,
                                                           const ResolvedConfig& pipeline,
                                                           const SessionObservers& hooks) {
    Result<std::unique_ptr<PipelineSession>> session = PipelineSession::open(
        file, options, pipeline, {.log = hooks.log, .trace = hooks.trace, .told = hooks.told});
    if (!session) return session.error();
    return std::unique_ptr<Generator>{
        std::make_unique<PipelineGenerator>(std::move(session).value())};
}

}  // namespace paceline
