#include "model/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"
#include "model/cuda/cuda_weights.hpp"
#include "model/kernels/cuda/sample_rows.hpp"

namespace paceline {
namespace {

#ifndef PACELINE_BUILD_ID
#define PACELINE_BUILD_ID "unknown"
#endif

constexpr int kCapabilityMin = 80;  // bf16 products

struct Parts {
    ModelConfig config;
    CudaOptions options;
    cuda::DeviceInfo device;
    std::uint64_t fingerprint = 0;
    MemoryUse use;
    std::unique_ptr<CudaWeights> weights;
    CudaCache cache;
    CudaCache adapter_cache;
    std::unique_ptr<CudaForward> forward;
};

class CudaBackendImpl final : public CudaBackend {
public:
    explicit CudaBackendImpl(std::unique_ptr<Parts> parts) : parts_{std::move(parts)} {}

    [[nodiscard]] const ModelConfig& config() const override { return parts_->config; }
    [[nodiscard]] int first_layer() const override { return parts_->options.first_layer; }
    [[nodiscard]] int last_layer() const override { return parts_->options.last_layer; }
    [[nodiscard]] std::int32_t kv_slots() const override { return parts_->cache.slots; }
    [[nodiscard]] const std::string& device_name() const override { return parts_->device.name; }
    [[nodiscard]] MemoryUse memory_use() const override { return parts_->use; }

    [[nodiscard]] double wave_seconds(std::span<const Row> rows, int times) override {
        for (const Row& row : rows) check(row);
        cuda::set_device(parts_->options.device);
        return parts_->forward->wave_seconds(rows, times);
    }

    RunOutcome run_layers(std::span<const Row> rows,
                          std::span<float> hidden,
                          const CancelToken* cancel) override {
        PACE_CHECK(hidden.size() == rows.size() * dim(), "hidden is [rows, dim]");
        for (const Row& row : rows) check(row);
        return in_chunks(rows.size(), [&](std::size_t first, std::size_t count) {
            return parts_->forward->run(rows.subspan(first, count), hidden.data() + first * dim(),
                                        cancel);
        });
    }

    RunOutcome run_adapter(std::span<const Row> rows,
                           std::span<const float> hidden,
                           std::span<float> out,
                           const CancelToken* cancel) override {
        PACE_CHECK(has_adapter(), "an adapter of this segment");
        PACE_CHECK(hidden.size() == rows.size() * dim() && out.size() == hidden.size(),
                   "hidden states and what comes of them are [rows, dim]");
        for (const Row& row : rows) check_keys(row);
        return in_chunks(rows.size(), [&](std::size_t first, std::size_t count) {
            return parts_->forward->run_adapter(rows.subspan(first, count),
                                                hidden.data() + first * dim(),
                                                out.data() + first * dim(), cancel);
        });
    }

    void head(HeadId id,
              std::span<const float> hidden,
              int rows,
              std::span<float> logits) override {
        const auto vocab = static_cast<std::size_t>(config().vocab_size);
        const std::span<const TokenId> listed = short_list(id);
        if (listed.empty()) return run_head(id, hidden, rows, logits, vocab);
        std::vector<float> few(static_cast<std::size_t>(rows) * listed.size());
        run_head(id, hidden, rows, few, listed.size());
        PACE_CHECK(logits.size() == static_cast<std::size_t>(rows) * vocab,
                   "logits are [rows, vocab]");
        std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
        for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
            for (std::size_t i = 0; i < listed.size(); ++i)
                logits[r * vocab + static_cast<std::size_t>(listed[i])] =
                    few[r * listed.size() + i];
        }
    }

    void head_listed(HeadId id,
                     std::span<const float> hidden,
                     int rows,
                     std::span<float> logits) override {
        PACE_CHECK(!short_list(id).empty(), "a head with a short list");
        run_head(id, hidden, rows, logits, short_list(id).size());
    }

    [[nodiscard]] bool draws(const SamplingParams& params) const override {
        return cuda::supported(params);
    }

    void draw(std::span<const float> hidden,
              std::span<const DrawJob> jobs,
              std::span<std::optional<TokenId>> tokens) override {
        PACE_CHECK(hidden.size() == jobs.size() * dim() && tokens.size() >= jobs.size(),
                   "hidden is [jobs, dim], a token for each job");
        (void)in_chunks(jobs.size(), [&](std::size_t first, std::size_t count) {
            parts_->forward->draw(parts_->weights->final_head(), hidden.data() + first * dim(),
                                  jobs.subspan(first, count), tokens.subspan(first, count));
            return RunOutcome::Done;
        });
    }

    [[nodiscard]] int candidates_max() const override { return cuda::kCandidatesMax; }

    void draw_candidates(HeadId id,
                         std::span<const float> hidden,
                         std::span<const DrawJob> jobs,
                         std::span<std::vector<Candidate>> best) override {
        PACE_CHECK(has_head(id), "a head of this segment");
        PACE_CHECK(hidden.size() == jobs.size() * dim() && best.size() >= jobs.size(),
                   "hidden is [jobs, dim], a list for each job");
        (void)in_chunks(jobs.size(), [&](std::size_t first, std::size_t count) {
            parts_->forward->draw_candidates(head_of(id), hidden.data() + first * dim(),
                                             jobs.subspan(first, count),
                                             best.subspan(first, count));
            return RunOutcome::Done;
        });
    }

    [[nodiscard]] bool has_head(HeadId id) const override {
        if (id == HeadId::Adapter) return parts_->weights->has_adapter();
        if (id != HeadId::Final)
            return static_cast<std::size_t>(id) <= parts_->weights->heads().size();
        return parts_->options.final_head || last_layer() == config().layers;
    }

    [[nodiscard]] std::span<const TokenId> short_list(HeadId id) const override {
        PACE_CHECK(has_head(id), "a head of this segment");
        return head_of(id).tokens;
    }

    [[nodiscard]] std::string equality_class() const override {
        return std::string{"cuda build="} + PACELINE_BUILD_ID +
               " sm=" + std::to_string(parts_->device.capability) +
               " dtype=" + std::string{name(parts_->options.dtype)} +
               " kv=" + std::string{name(parts_->options.kv)} +
               " weights=" + std::to_string(parts_->fingerprint);
    }

private:
    [[nodiscard]] std::size_t dim() const { return static_cast<std::size_t>(config().dim); }

    template <class Run>
    RunOutcome in_chunks(std::size_t rows, Run run) {
        // The calling thread may serve backends on other devices too.
        cuda::set_device(parts_->options.device);
        const auto chunk = static_cast<std::size_t>(parts_->options.rows_max);
        for (std::size_t first = 0; first < rows; first += chunk) {
            if (run(first, std::min(chunk, rows - first)) == RunOutcome::Cancelled)
                return RunOutcome::Cancelled;
        }
        return RunOutcome::Done;
    }

    [[nodiscard]] const CudaHead& head_of(HeadId id) const {
        if (id == HeadId::Final) return parts_->weights->final_head();
        if (id == HeadId::Adapter) return parts_->weights->adapter_head();
        return parts_->weights->heads()[static_cast<std::size_t>(id) - 1];
    }

    void run_head(HeadId id,
                  std::span<const float> hidden,
                  int rows,
                  std::span<float> logits,
                  std::size_t width) {
        PACE_CHECK(has_head(id), "a head of this segment");
        PACE_CHECK(hidden.size() == static_cast<std::size_t>(rows) * dim(),
                   "hidden is [rows, dim]");
        PACE_CHECK(logits.size() == static_cast<std::size_t>(rows) * width,
                   "logits are [rows, vocab], or [rows, listed tokens]");
        (void)in_chunks(static_cast<std::size_t>(rows), [&](std::size_t first, std::size_t count) {
            parts_->forward->head(head_of(id), hidden.data() + first * dim(),
                                  static_cast<int>(count), logits.data() + first * width);
            return RunOutcome::Done;
        });
    }

    void check(const Row& row) const {
        PACE_CHECK(
            row.first >= 2 * first_layer() && row.last <= 2 * last_layer() && row.first <= row.last,
            "sub-layers of this segment");
        PACE_CHECK(row.first != 0 || (row.token >= 0 && row.token < config().vocab_size),
                   "a token of the vocabulary");
        check_keys(row);
    }

    void check_keys(const Row& row) const {
        PACE_CHECK(row.slot >= 0 && row.slot < kv_slots(), "a slot that exists");
        PACE_CHECK(row.position < CudaForward::context_of(config(), parts_->options),
                   "a position within the model's context");
        PACE_CHECK(row.prefix_count >= 0 && row.path_count >= 0 &&
                       row.prefix_count + row.path_count == row.position + 1,
                   "the visible keys end with the row's own");
        PACE_CHECK(row.key_slot(row.position) == row.slot, "the last visible key is the row's own");
    }

    std::unique_ptr<Parts> parts_;
};

Error bad(std::string what) {
    return {Errc::BadArgument, std::move(what)};
}

Status check_group(int queries_per_kv) {
    if (queries_per_kv <= cuda::kAttentionGroupMax) return {};
    return Error{Errc::Unsupported,
                 std::to_string(queries_per_kv) + " query heads per KV head, at most " +
                     std::to_string(cuda::kAttentionGroupMax) + " are supported on a GPU"};
}

Status check_options(const ModelConfig& config, const CudaOptions& options) {
    if (options.first_layer < 0 || options.first_layer >= options.last_layer ||
        options.last_layer > config.layers) {
        return bad("layers [" + std::to_string(options.first_layer) + ", " +
                   std::to_string(options.last_layer) + ") are not a part of the model's " +
                   std::to_string(config.layers) + " layers");
    }
    if (options.kv_slots < 1)
        return bad("kv_slots = " + std::to_string(options.kv_slots) + ", must be at least 1");
    if (options.rows_max < 1 || options.rows_max > cuda::kGemmRowsMax)
        return bad("rows_max = " + std::to_string(options.rows_max) + ", must be 1 to " +
                   std::to_string(cuda::kGemmRowsMax));
    if (config.head_dim > cuda::kAttentionHeadDimMax)
        return Error{Errc::Unsupported,
                     "head_dim = " + std::to_string(config.head_dim) + ", at most " +
                         std::to_string(cuda::kAttentionHeadDimMax) + " is supported on a GPU"};
    if (Status checked = check_group(config.heads / config.kv_heads); !checked) return checked;
    if (Status checked = check_heads(config, options.heads); !checked) return checked;
    if (!options.adapter) return {};
    if (Status checked = check_adapter(config, *options.adapter); !checked) return checked;
    return check_group(options.adapter->heads / options.adapter->kv_heads);
}

std::string gib(std::uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB",
                  static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30U));
    return text;
}

MemoryUse use_of(const ModelConfig& config, const CudaOptions& options, std::uint64_t weights) {
    MemoryUse use;
    use.weight_bytes = weights;
    use.kv_bytes = CudaCache::bytes_of(options.kv, options.last_layer - options.first_layer,
                                       config.kv_heads, config.head_dim, options.kv_slots);
    if (options.adapter) {
        use.kv_bytes += CudaCache::bytes_of(options.kv, 1, options.adapter->kv_heads,
                                            options.adapter->head_dim, options.kv_slots);
    }
    use.workspace_bytes = CudaForward::workspace_bytes(config, options);
    return use;
}

Error no_room(const CudaOptions& options, const cuda::DeviceInfo& device, const MemoryUse& use) {
    const std::uint64_t all = use.weight_bytes + use.kv_bytes + use.workspace_bytes;
    return {Errc::OutOfMemory,
            "cuda:" + std::to_string(options.device) + " (" + device.name + ") has " +
                gib(device.free_bytes) + " free, layers [" + std::to_string(options.first_layer) +
                ", " + std::to_string(options.last_layer) + ") need " + gib(all) + ": weights " +
                gib(use.weight_bytes) + ", keys and values " + gib(use.kv_bytes) + ", workspace " +
                gib(use.workspace_bytes) +
                "; use fewer layers a device, a shorter context (-c) or a smaller --dtype"};
}

CudaOptions resolved(const ModelConfig& config, const CudaOptions& given) {
    CudaOptions options = given;
    if (options.last_layer < 0) options.last_layer = config.layers;
    return options;
}

Result<std::unique_ptr<CudaBackend>> made(const ModelFile& file, const CudaOptions& options) {
    auto parts = std::make_unique<Parts>();
    parts->config = file.config();
    parts->device = cuda::use_device(options.device);
    if (parts->device.capability < kCapabilityMin)
        return Error{Errc::Unsupported, "cuda:" + std::to_string(options.device) + " (" +
                                            parts->device.name + ") has compute capability " +
                                            std::to_string(parts->device.capability / 10) + "." +
                                            std::to_string(parts->device.capability % 10) +
                                            ", at least 8.0 is needed"};
    parts->fingerprint = file.fingerprint();
    parts->weights = CudaWeights::plan(file, options);
    parts->use = use_of(parts->config, options, parts->weights->bytes());
    const MemoryUse& use = parts->use;
    if (use.weight_bytes + use.kv_bytes + use.workspace_bytes > parts->device.free_bytes)
        return no_room(options, parts->device, use);
    parts->forward = std::make_unique<CudaForward>(
        parts->config, options, *parts->weights, parts->cache,
        options.adapter ? &parts->adapter_cache : nullptr, parts->device.processors);
    cuda::Stream& stream = parts->forward->stream();
    if (Status loaded = parts->weights->load(file, options, stream); !loaded) return loaded.error();
    const ModelConfig& config = parts->config;
    bool fits =
        CudaCache::make(options.kv, options.last_layer - options.first_layer, config.kv_heads,
                        config.head_dim, options.kv_slots, stream, parts->cache);
    if (fits && options.adapter) {
        fits = CudaCache::make(options.kv, 1, options.adapter->kv_heads, options.adapter->head_dim,
                               options.kv_slots, stream, parts->adapter_cache);
    }
    if (!fits || !parts->forward->make(options)) return no_room(options, parts->device, use);
    parts->options = options;
    parts->options.heads.clear();  // loaded
    parts->options.adapter.reset();
    return std::unique_ptr<CudaBackend>{std::make_unique<CudaBackendImpl>(std::move(parts))};
}

}  // namespace

MemoryUse cuda_memory(const ModelFile& file, const CudaOptions& given) {
    const CudaOptions options = resolved(file.config(), given);
    return use_of(file.config(), options, CudaWeights::plan(file, options)->bytes());
}

Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const ModelFile& file,
                                                       const CudaOptions& given) {
    const CudaOptions options = resolved(file.config(), given);
    if (Status checked = check_options(file.config(), options); !checked) return checked.error();
    try {
        return made(file, options);
    } catch (const cuda::DeviceError& error) {
        return Error{Errc::System, error.what()};
    }
}

}  // namespace paceline
