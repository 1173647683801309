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
#include <span>
#include <string>

#include "actors/decoding/plain_decoder.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/environment.hpp"
#include "launch/load_model.hpp"
#include "launch/model_options.hpp"
#include "launch/pipeline_config.hpp"
#include "model/backend.hpp"

namespace paceline {

/// What a run cost. The last three stay 0 where nothing is speculated.
struct GeneratorFigures {
    PlainFigures decoding;
    std::int64_t waves = 0;
    std::int64_t proposed_tokens = 0;
    std::int64_t accepted_tokens = 0;
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
    /// end it. Errors: as PlainDecoder::run(); PeerGone naming a stage that died.
    virtual Result<GeneratorFigures> run(std::span<const TokenId> more,
                                         const PlainParams& params,
                                         const PlainDecoder::OnToken& on_token,
                                         const CancelToken& cancel) = 0;

    [[nodiscard]] virtual Position text_tokens() const = 0;  // prompts and answers so far
    [[nodiscard]] virtual Position context() const = 0;
    virtual void reset() = 0;  // forgets the text
    [[nodiscard]] virtual GeneratorTraits traits() const = 0;
};

/// One process, nothing speculated. Packs the weights. `file` must outlive the generator.
[[nodiscard]] Result<std::unique_ptr<Generator>> make_plain_generator(
    const ModelFile& file, const ModelOptions& options, const Environment& environment);

/// Spawns the processes of `config` and waits until all have loaded. `file` must outlive the
/// generator. Errors: as resolve() and make_cpu_backend(); PeerGone naming the stage.
[[nodiscard]] Result<std::unique_ptr<Generator>> make_pipeline_generator(
    const ModelFile& file,
    const ModelOptions& options,
    const PipelineConfig& config,
    const Environment& environment);

}  // namespace paceline
