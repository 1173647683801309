// Generator: what turns a prompt into a stream of tokens, whichever way it does it.
//
// Plain decoding in this process (make_plain_generator) or a pipeline of processes
// (make_pipeline_generator); `run` and the chat cannot tell which. It keeps the text and its KV
// cache from one run to the next, so that a conversation goes on where it stopped.
// One thread; the cancel token may be raised from any, also from a signal handler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "actors/decoding/plain_decoder.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/backend/load_model.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/run_log.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/session/pipeline_figures.hpp"
#include "model/backend.hpp"

namespace paceline {

/// What a run cost. All but the first stay 0 where nothing is speculated or distributed.
struct GeneratorFigures {
    PlainFigures decoding;
    std::int64_t waves = 0;
    std::int64_t proposed_tokens = 0;
    std::int64_t accepted_tokens = 0;
    std::uint32_t replays = 0;  // how often the answer was begun anew after what was committed
};

/// What stays the same from run to run.
struct GeneratorTraits {
    std::string method;
    std::string equality_class;
    int threads = 0;               // of all stages together
    MemoryUse memory;              // of all stages together
    std::uint64_t peak_bytes = 0;  // of the stages' own processes so far; 0 without any
};

class Generator {
public:
    Generator() = default;
    Generator(const Generator&) = delete;
    Generator& operator=(const Generator&) = delete;
    virtual ~Generator() = default;

    /// Appends `more` to the text and generates until the parameters, the callback or `cancel`
    /// end it. Errors: as PlainDecoder::run(); PeerGone naming a stage that cannot be replaced.
    virtual Result<GeneratorFigures> run(std::span<const TokenId> more,
                                         const PlainParams& params,
                                         const PlainDecoder::OnToken& on_token,
                                         const CancelToken& cancel) = 0;

    [[nodiscard]] virtual Position text_tokens() const = 0;  // prompts and answers so far
    [[nodiscard]] virtual Position context() const = 0;
    virtual void reset() = 0;  // forgets the text
    [[nodiscard]] virtual GeneratorTraits traits() const = 0;
    /// All runs so far as a trace file (runtime/observe/trace_file.hpp), also after a failed one; empty
    /// where nothing is traced.
    [[nodiscard]] virtual std::string trace_text() const { return {}; }
    /// What the stages did during the last run; nothing where there are none.
    [[nodiscard]] virtual std::optional<PipelineFigures> pipeline_figures() const { return {}; }
};

/// What a command wants to know about a pipeline while it runs.
struct RunHooks {
    RunLog* log = nullptr;  // never nullptr when it is used; must outlive the generator
    bool trace = false;     // record events for trace_text()
};

/// One process, nothing speculated. Packs the weights. `file` must outlive the generator.
[[nodiscard]] Result<std::unique_ptr<Generator>> make_plain_generator(
    const ModelFile& file, const ModelOptions& options, const Environment& environment);

/// Spawns the processes of `config`, waits until all have loaded and prints who does what where
/// to stderr. `file` must outlive the generator.
/// Errors: as place(), check_gpus(), check_memory() and make_cpu_backend(); PeerGone naming the
/// stage.
[[nodiscard]] Result<std::unique_ptr<Generator>> make_pipeline_generator(
    const ModelFile& file,
    const ModelOptions& options,
    const PipelineConfig& config,
    const RunHooks& hooks);

}  // namespace paceline
