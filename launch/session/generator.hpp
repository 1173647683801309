// Generator: the interface that turns a prompt into an answer, text that appears as it is drawn.
//
// Plain decoding in this process (make_plain_generator) or a pipeline of processes
// (make_pipeline_generator); `run` and the chat use both in the same way. It keeps the text and its
// KV cache from one run to the next, so that a conversation continues where it stopped.
// One thread; the cancel token may be raised from any, also from a signal handler.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/decoding/answer.hpp"
#include "actors/decoding/plain_decoder.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/progress_bar.hpp"
#include "launch/base/run_log.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/session/pipeline_stats.hpp"
#include "launch/session/run_stats.hpp"
#include "model/backend.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

/// A Request whose answer is wanted as text.
struct TextRequest {
    Request request = {};  // its text: the prompt, or the next turn of a conversation
    std::vector<std::string> stop_strings = {};
    bool prompt_only = false;  // process the prompt, generate nothing; request.max_tokens is 1
};

using TextSink = std::function<Status(std::string_view)>;

class Generator {
public:
    Generator() = default;
    Generator(const Generator&) = delete;
    Generator& operator=(const Generator&) = delete;
    virtual ~Generator() = default;

    /// Appends request.text to the text and generates until the request's limits, a stop string,
    /// an error of `sink` or `cancel` end it. A context of 0 is the generator's. Whole characters
    /// go to `sink`, on the caller's thread; the stop string that ends an answer is not among them.
    /// Errors: as PlainDecoder::run(); PeerGone naming a stage that cannot be replaced; that of
    /// `sink`. Precondition: the stop strings are valid. See stream_answer().
    virtual Result<Answer> answer(const TextRequest& wanted,
                                  const Tokenizer& tokenizer,
                                  const CancelToken& cancel,
                                  const TextSink& sink) = 0;

    [[nodiscard]] virtual Position text_tokens() const = 0;  // prompts and answers so far
    [[nodiscard]] virtual Position context() const = 0;
    virtual void reset() = 0;  // forgets the text
    /// Called during run() with the part of the prompt that is processed, 0 to 1, from its thread,
    /// until the first token is there. For terminals; may be empty.
    virtual void on_prefill(std::function<void(double part)> progress) = 0;
    [[nodiscard]] virtual GeneratorTraits traits() const = 0;
    /// All runs so far as a trace file (runtime/observe/trace_file.hpp), also after a failed one;
    /// empty where nothing is traced.
    [[nodiscard]] virtual std::string trace_text() const { return {}; }
    /// What the stages did during the last run; nothing where there are none.
    [[nodiscard]] virtual std::optional<PipelineStats> pipeline_stats() const { return {}; }
};

/// A generator that gives its tokens one by one to a callback which may stop it: plain decoding.
class TokenGenerator : public Generator {
public:
    /// Appends request.text to the text and generates until the request's limits, the callback or
    /// `cancel` end it. Errors: as PlainDecoder::run().
    virtual Result<AnswerStats> run(const Request& request,
                                    const PlainDecoder::OnToken& on_token,
                                    const CancelToken& cancel) = 0;
    /// As PlainDecoder::on_scores().
    virtual void on_scores(PlainDecoder::OnScores scores) = 0;
    Result<Answer> answer(const TextRequest& wanted,
                          const Tokenizer& tokenizer,
                          const CancelToken& cancel,
                          const TextSink& sink) override;
};

/// What a starting pipeline prints on stderr.
struct StartOutput {
    bool table = true;     // stages, processes, devices, memory
    bool remarks = true;   // parts and stand-ins, and what makes it slow here
    Show bars = Show::No;  // of loading
};

struct Cluster;

/// What a command wants to know about a pipeline while it runs, and its other machines.
struct SessionObservers {
    RunLog* log = nullptr;  // never nullptr when it is used; must outlive the generator
    bool trace = false;     // record events for trace_text()
    StartOutput output = {};
    Cluster* cluster = nullptr;  // the other machines; must outlive the generator
};

/// One process, nothing speculated. Packs the weights; `bars`: whether stderr shows how far. `file`
/// must outlive the generator.
[[nodiscard]] Result<std::unique_ptr<TokenGenerator>> make_plain_generator(
    const ModelFile& file, const ModelOptions& options, Show bars);

/// Spawns the processes of `pipeline` and waits until all have loaded. `file` must outlive the
/// generator.
/// Errors: as place(), check_gpus(), check_memory() and make_cpu_backend(); PeerGone naming the
/// stage.
[[nodiscard]] Result<std::unique_ptr<Generator>> make_pipeline_generator(
    const ModelFile& file,
    const ModelOptions& options,
    const ResolvedConfig& pipeline,
    const SessionObservers& hooks);

}  // namespace paceline
