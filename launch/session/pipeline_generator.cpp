// The Generator of a pipeline of processes: a PipelineSession with one conversation.

#include "launch/session/generator.hpp"
#include "launch/session/pipeline_session.hpp"

namespace paceline {
namespace {

class PipelineGenerator final : public Generator {
public:
    explicit PipelineGenerator(std::unique_ptr<PipelineSession> session)
        : session_{std::move(session)} {}

    Result<AnswerFigures> run(const Request& request,
                              const PlainDecoder::OnToken& on_token,
                              const CancelToken& cancel) override {
        AnswerFigures figures;
        Status answered;
        AnswerOrder order;
        order.continues = request_;
        order.request = request;
        order.on_token = on_token;
        order.cancelled = [&cancel] { return cancel.cancelled(); };
        order.on_end = [&](const AnswerFigures& cost, const Status& status) {
            figures = cost;
            answered = status;
        };
        session_->reset_figures();
        const Result<RequestId> taken = session_->submit(std::move(order));
        if (!taken) return taken.error();
        request_ = taken.value();
        if (Status ended = session_->run(); !ended) return ended.error();
        if (!answered) return answered.error();
        return figures;
    }

    [[nodiscard]] Position text_tokens() const override {
        return request_ ? static_cast<Position>(session_->text(*request_).size()) : 0;
    }
    [[nodiscard]] Position context() const override { return session_->context(); }
    void reset() override {
        if (request_) session_->close(*request_);
        request_.reset();
    }
    [[nodiscard]] GeneratorTraits traits() const override { return session_->traits(); }
    [[nodiscard]] std::string trace_text() const override { return session_->trace_text(); }
    [[nodiscard]] std::optional<PipelineFigures> pipeline_figures() const override {
        return session_->figures();
    }

private:
    std::unique_ptr<PipelineSession> session_;
    std::optional<RequestId> request_;  // the conversation, once it has begun
};

}  // namespace

Result<std::unique_ptr<Generator>> make_pipeline_generator(const ModelFile& file,
                                                           const ModelOptions& options,
                                                           const PipelineConfig& config,
                                                           const RunHooks& hooks) {
    Result<std::unique_ptr<PipelineSession>> session =
        PipelineSession::open(file, options, config, {.log = hooks.log, .trace = hooks.trace});
    if (!session) return session.error();
    return std::unique_ptr<Generator>{
        std::make_unique<PipelineGenerator>(std::move(session).value())};
}

}  // namespace paceline
