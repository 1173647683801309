#include "launch/serve/method/served_pipelines.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "launch/base/report.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/placement/available_memory.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/session/pipeline_start.hpp"
#include "launch/session/place_on_gpus.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSpare = 20;  // a twentieth of the memory stays free: needs are estimates

}  // namespace

Result<PipelineConfig> ServedPipelines::config_of(const std::string& method,
                                                  const std::string& draft_model) const {
    Result<ConfigSource> source =
        options_->config_source ? *options_->config_source : method_source(method);
    if (!source) return source.error();
    return written_config(source.value(), device_of(options_->model), draft_model);
}

Result<PipelineConfig> ServedPipelines::config_of_any(const std::string& method) const {
    Result<PipelineConfig> written = config_of(method, options_->draft_model);
    if (!written && !options_->draft_model.empty()) return config_of(method, "");
    return written;
}

Result<SupervisionConfig> ServedPipelines::supervision(const std::string& method,
                                                       const std::string& draft_model) const {
    Result<PipelineConfig> written = config_of(method, draft_model);
    if (!written) return written.error();
    return written.value().supervision;
}

Result<ServedPipeline> ServedPipelines::start(const ModelFile& file, PipelineConfig written) const {
    const auto begin = Clock::now();
    PipelineConfig config = written;
    const PartsSearch search = parts_search(options_->model.parts, *environment_);
    Result<ResolvedConfig> pipeline = use_parts(std::move(written), search, file);
    if (!pipeline) return pipeline.error();
    if (!options_->gpus.empty()) {
        Result<ResolvedPipeline> placed = place_on_gpus(
            std::move(pipeline).value(), options_->model, file, {.gpus = options_->gpus});
        if (!placed) return placed.error();
        remark("serve", placed.value().gpu_table);
        pipeline = std::move(placed.value().resolved);
    }
    const Show bars = log_->verbose() ? Show::No : bars_on(*environment_);
    if (Status s =
            keep_draft_copy(pipeline.value(), file, options_->model, *environment_, {.bars = bars});
        !s)
        return s.error();
    for (const std::string& why : pipeline.value().parts.omitted)
        remark("serve", "left out: " + visible(why, kLineShownBytesMax));
    const bool table = log_->verbose() || environment_->stderr_is_terminal;
    Result<std::unique_ptr<PipelineSession>> session =
        PipelineSession::open(file, options_->model, pipeline.value(),
                              {.log = log_,
                               .output = {.table = table, .remarks = true, .bars = bars},
                               .cluster = cluster_,
                               .requests = options_->requests,
                               .kv_memory = options_->kv_memory});
    if (!session) return session.error();
    return ServedPipeline{std::move(session).value(), std::move(config),
                          std::chrono::duration<double>(Clock::now() - begin).count()};
}

Result<ServedPipeline> ServedPipelines::open(const ModelFile& file,
                                             const std::string& method,
                                             const std::string& draft_model) const {
    Result<PipelineConfig> written = config_of(method, draft_model);
    if (!written) return written.error();
    return start(file, std::move(written).value());
}

Result<ServedPipeline> ServedPipelines::open_any(const ModelFile& file,
                                                 const std::string& method) const {
    Result<PipelineConfig> written = config_of_any(method);
    if (!written) return written.error();
    return start(file, std::move(written).value());
}

bool ServedPipelines::fits_beside(const ModelFile& file, const std::string& method) const {
    Result<PipelineConfig> written = config_of_any(method);
    if (!written) return false;
    const PartsSearch search = parts_search(options_->model.parts, *environment_);
    const Result<ResolvedConfig> pipeline = use_parts(std::move(written).value(), search, file);
    if (!pipeline) return false;
    const std::optional<std::uint64_t> wanted =
        wanted_host_bytes(file, options_->model, pipeline.value(),
                          {.contexts = options_->requests, .bytes = options_->kv_memory});
    const std::optional<AvailableMemory> room = read_available_memory();
    return wanted && room && *wanted <= room->bytes - room->bytes / kSpare;
}

}  // namespace paceline::serve
