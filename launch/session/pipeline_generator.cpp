// The Generator of a pipeline of processes: a Service with one conversation.
#include <algorithm>
#include <chrono>

#include "launch/session/generator.hpp"
#include "launch/session/service.hpp"

namespace paceline {
namespace {

class PipelineGenerator final : public Generator {
public:
    explicit PipelineGenerator(std::unique_ptr<PipelineSession> session)
        : service_{std::move(session), {.running = 1, .waiting = 1}} {}

    Result<Answer> answer(const TextRequest& wanted,
                          const Tokenizer& tokenizer,
                          const CancelToken& cancel,
                          const TextSink& sink) override {
        const std::vector<TokenId>& before = wanted.request.text;
        ServiceOrder order{
            .request = wanted.request,
            .text =
                AnswerText{tokenizer, before.empty() ? std::nullopt : std::optional{before.back()},
                           wanted.stop_strings},
            .prompt_only = wanted.prompt_only};
        std::vector<TokenId>& whole = order.request.text;
        whole.insert(whole.begin(), text_.begin(), text_.end());
        std::vector<TokenId> prompt = whole;
        service_.session().reset_stats();
        const auto begun = std::chrono::steady_clock::now();
        const Submitted taken = service_.submit(std::move(order));
        if (taken.outcome != SubmitOutcome::Accepted) return taken.why.error();
        Result<Answer> answer = follow(taken, wanted, cancel, sink);
        if (!answer) return answer;
        text_ = std::move(prompt);
        text_.insert(text_.end(), answer.value().ids.begin(), answer.value().ids.end());
        add_prefill(answer.value(), begun);
        return answer;
    }

    [[nodiscard]] Position text_tokens() const override {
        return static_cast<Position>(text_.size());
    }
    [[nodiscard]] Position context() const override { return service_.session().context(); }
    void reset() override { text_.clear(); }
    void on_prefill(std::function<void(double part)> progress) override {
        on_prefill_ = std::move(progress);
    }
    [[nodiscard]] GeneratorTraits traits() const override { return service_.session().traits(); }
    [[nodiscard]] std::string trace_text() const override {
        return service_.session().trace_text();
    }
    [[nodiscard]] std::optional<PipelineStats> pipeline_stats() const override {
        return service_.session().stats();
    }

private:
    static constexpr std::chrono::milliseconds kLook{20};   // at `cancel`, and at the prefill
    static constexpr std::chrono::milliseconds kPause{15};  // a terminal shows no more

    /// Gives the text to `sink` as it comes, until the answer is over.
    Result<Answer> follow(const Submitted& taken,
                          const TextRequest& wanted,
                          const CancelToken& cancel,
                          const TextSink& sink) {
        AnswerReader reader{taken.stream, 0, kPause};
        Answer answer;
        Status shown;
        bool cancelled = false;
        for (;;) {
            (void)reader.wait(kLook);
            const AnswerPiece piece = reader.read();
            if (!wanted.prompt_only) {
                answer.ids.insert(answer.ids.end(), piece.ids.begin(), piece.ids.end());
                answer.scores.insert(answer.scores.end(), piece.scores.begin(), piece.scores.end());
                if (shown.ok() && !piece.text.empty()) shown = sink(piece.text);
            }
            if (piece.over) {
                if (!piece.status) return piece.status.error();
                if (!shown.ok()) return shown.error();
                answer.stats = piece.stats;
                answer.prompt_scores = taken.stream->prompt_scores();
                return answer;
            }
            if (on_prefill_ && taken.stream->size() == 0) {
                const auto rows = static_cast<double>(service_.session().prefilled_rows());
                const auto all = static_cast<double>(wanted.request.text.size());
                on_prefill_(std::min(1.0, rows / std::max(1.0, all)));
            }
            if (!cancelled && (cancel.cancelled() || !shown.ok())) {
                service_.cancel(taken.id);
                cancelled = true;
            }
        }
    }

    /// The conductor learns of a prefill when it is over, never of one that was cancelled.
    void add_prefill(Answer& answer, std::chrono::steady_clock::time_point begun) const {
        AnswerStats& stats = answer.stats;
        const bool cut = stats.finish == FinishReason::Interrupted && stats.generated_tokens == 0;
        if (!cut || stats.begun.count() == 0) return;
        stats.prompt_tokens = std::min(stats.prompt_tokens, service_.session().prefilled_rows());
        stats.prefilled = stats.begun + std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::steady_clock::now() - begun);
    }

    Service service_;
    std::vector<TokenId> text_;  // prompts and answers of the conversation
    std::function<void(double part)> on_prefill_;
};

}  // namespace

Result<std::unique_ptr<Generator>> make_pipeline_generator(const ModelFile& file,
                                                           const ModelOptions& options,
                                                           const ResolvedConfig& pipeline,
                                                           const SessionObservers& hooks) {
    Result<std::unique_ptr<PipelineSession>> session = PipelineSession::open(
        file, options, pipeline,
        {.log = hooks.log, .trace = hooks.trace, .output = hooks.output, .cluster = hooks.cluster});
    if (!session) return session.error();
    return std::unique_ptr<Generator>{
        std::make_unique<PipelineGenerator>(std::move(session).value())};
}

}  // namespace paceline
