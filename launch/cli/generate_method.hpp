// GenerateMethod: which method `paceline generate` answers with, and the answers of pipelines.
//
// With --method auto the choice is that of `paceline run` by runs with as many requests at a time
// (launch/plan/method_history.hpp); hidden states, and more than kTopScoresMax tokens of a
// distribution, are of plain decoding. What the accounts of the pipelines measure is added to the
// record. While a pipeline decodes, its speed is compared with the prediction; if that is wrong for
// long, and another method pays for being loaded, the running answers end, and the others are
// decoded with that one (launch/plan/replan.hpp).
// One thread. Writes to stderr, and to the cache folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "actors/decoding/answer_batches.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/run_log.hpp"
#include "launch/cli/generate.hpp"
#include "launch/cli/generate_pipeline.hpp"
#include "launch/plan/method_history.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Whether the options ask for what plain decoding alone gives.
[[nodiscard]] bool needs_plain(const GenerateOptions& options);
/// Errors: BadArgument for a method that is named and cannot give what the options ask for.
[[nodiscard]] Status check_method(const GenerateOptions& options);

class GenerateMethod {
public:
    /// Of options that pass check_method(). Borrows all of them.
    GenerateMethod(const GenerateOptions& options,
                   const ModelFile& file,
                   const BatchParams& params,
                   const Environment& environment);

    /// Answers tasks with pipelines; returns those that are left for plain decoding, the last ones.
    /// `loaded` is called when the first pipeline is.
    /// Errors: those of PipelineAnswers::run(), and of a method that was named and cannot be
    /// started.
    [[nodiscard]] Result<std::span<const AnswerTask>> run(std::span<const AnswerTask> tasks,
                                                          const PipelineAnswers::Done& done,
                                                          const std::function<void()>& loaded,
                                                          const CancelToken& cancel);

private:
    struct Opened {
        std::string method;
        PipelineConfig config;
        std::unique_ptr<PipelineAnswers> answers;
        double load_seconds = 0.0;
    };

    [[nodiscard]] AutoChoice first_choice() const;
    [[nodiscard]] Result<Opened> open(const std::string& method, std::span<const AnswerTask> tasks);
    /// The first of a choice that can be started; nothing: plain decoding.
    [[nodiscard]] Result<std::optional<Opened>> open_first(const AutoChoice& choice,
                                                           std::span<const AnswerTask> tasks);
    /// Until all are answered (nothing), or another method is to answer `tasks`, which are the rest
    /// then.
    [[nodiscard]] Result<std::optional<AutoChoice>> answer_with(Opened& opened,
                                                                std::span<const AnswerTask>& tasks,
                                                                const PipelineAnswers::Done& done,
                                                                const CancelToken& cancel);

    const GenerateOptions& options_;
    const ModelFile& file_;
    const BatchParams& params_;
    const Environment& environment_;
    bool automatic_;
    MethodHistory history_;
    RunLog log_;
};

}  // namespace paceline
