#include "model/cuda/cuda_backend.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <string>

#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"
#include "model/cuda/cuda_ranks.hpp"
#include "model/cuda/cuda_unsupported.hpp"
#include "model/cuda/cuda_workspace.hpp"
#include "model/kernels/cuda/gemm/gemm_blas.hpp"
#include "model/kernels/cuda/sampling/sample_rows.hpp"

namespace paceline {
namespace {

#ifndef PACELINE_BUILD_ID
#define PACELINE_BUILD_ID "unknown"
#endif

struct Parts {
    ModelConfig config;
    CudaOptions options;
    std::uint64_t fingerprint = 0;
    MemoryUse use;
    CudaRanks ranks;
    std::unique_ptr<CudaForward> forward;

    [[nodiscard]] const CudaRank& first() const { return *ranks.front(); }
    [[nodiscard]] const CudaWeights& weights() const { return *first().weights; }
};

class CudaBackendImpl final : public CudaBackend, private EagleLayer {
public:
    explicit CudaBackendImpl(std::unique_ptr<Parts> parts) : parts_{std::move(parts)} {}

    [[nodiscard]] const ModelConfig& config() const override { return parts_->config; }
    [[nodiscard]] int first_layer() const override { return parts_->options.first_layer; }
    [[nodiscard]] int last_layer() const override { return parts_->options.last_layer; }
    [[nodiscard]] std::int32_t kv_slots() const override { return parts_->first().cache.slots; }
    [[nodiscard]] const std::string& device_name() const override {
        return parts_->first().info.name;
    }
    [[nodiscard]] MemoryUse memory_use() const override { return parts_->use; }

    [[nodiscard]] std::size_t batch_rows(std::span<const Row> rows) const override {
        return parts_->forward->batch_rows(rows);
    }

    [[nodiscard]] double batch_seconds(std::span<const Row> rows, int times) override {
        for (const Row& row : rows) check(row);
        cuda::set_device(parts_->options.device);
        return parts_->forward->batch_seconds(rows, times);
    }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows hidden,
                          const CancelToken* cancel) override {
        PACE_CHECK(hidden.size() == rows.size() * dim(), "hidden is [rows, dim]");
        return run(rows, hidden, {.jobs = {}, .hidden = true}, {}, cancel);
    }

    RunOutcome run_and_draw(std::span<const Row> rows,
                            HiddenRows hidden,
                            const BehindRows& behind,
                            std::span<std::optional<TokenId>> tokens,
                            const CancelToken* cancel) override {
        PACE_CHECK(behind.jobs.size() == rows.size() && tokens.size() == rows.size(),
                   "a job and a token for each row");
        const CudaDraws draws{.head = has_head(HeadId::Final) ? &head_of(HeadId::Final) : nullptr,
                              .jobs = behind.jobs,
                              .tokens = tokens};
        return run(rows, hidden, behind, draws, cancel);
    }

    RunOutcome run_and_draw_candidates(HeadId id,
                                       std::span<const Row> rows,
                                       HiddenRows hidden,
                                       const BehindRows& behind,
                                       std::span<std::vector<Candidate>> best,
                                       const CancelToken* cancel) override {
        PACE_CHECK(has_head(id), "a head of this segment");
        PACE_CHECK(behind.jobs.size() == rows.size() && best.size() == rows.size(),
                   "a job and a list for each row");
        return run(rows, hidden, behind, {.head = &head_of(id), .jobs = behind.jobs, .best = best},
                   cancel);
    }

    RunOutcome run_adapter(std::span<const Row> rows,
                           ConstHiddenRows hidden,
                           HiddenRows out,
                           const CancelToken* cancel) override {
        PACE_CHECK(has_adapter(), "an adapter of this segment");
        PACE_CHECK(hidden.size() == rows.size() * dim() && out.size() == hidden.size(),
                   "hidden states and what comes of them are [rows, dim]");
        for (const Row& row : rows) {
            check_keys(*this, row);
            check_position(row);
        }
        return in_batches(rows, [&](std::size_t first, std::size_t count) {
            return parts_->forward->run_adapter(
                rows.subspan(first, count),
                {.in = of_rows(hidden, first, count), .out = of_rows(out, first, count)}, cancel);
        });
    }

    [[nodiscard]] EagleLayer* eagle_layer() override {
        return parts_->forward->eagle() != nullptr ? this : nullptr;
    }

    void head(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) override {
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
                     ConstHiddenRows hidden,
                     int rows,
                     std::span<float> logits) override {
        PACE_CHECK(!short_list(id).empty(), "a head with a short list");
        run_head(id, hidden, rows, logits, short_list(id).size());
    }

    [[nodiscard]] bool draws(const SamplingParams& params) const override {
        return cuda::supported(params);
    }

    void draw(ConstHiddenRows hidden,
              std::span<const DrawJob> jobs,
              std::span<std::optional<TokenId>> tokens) override {
        PACE_CHECK(hidden.size() == jobs.size() * dim() && tokens.size() >= jobs.size(),
                   "hidden is [jobs, dim], a token for each job");
        (void)in_chunks(jobs.size(), [&](std::size_t first, std::size_t count) {
            parts_->forward->draw(of_rows(hidden, first, count),
                                  {.head = &head_of(HeadId::Final),
                                   .jobs = jobs.subspan(first, count),
                                   .tokens = tokens.subspan(first, count)});
            return RunOutcome::Done;
        });
    }

    [[nodiscard]] int candidates_max() const override { return cuda::kCandidatesMax; }

    void draw_candidates(HeadId id,
                         ConstHiddenRows hidden,
                         std::span<const DrawJob> jobs,
                         std::span<std::vector<Candidate>> best) override {
        PACE_CHECK(has_head(id), "a head of this segment");
        PACE_CHECK(hidden.size() == jobs.size() * dim() && best.size() >= jobs.size(),
                   "hidden is [jobs, dim], a list for each job");
        (void)in_chunks(jobs.size(), [&](std::size_t first, std::size_t count) {
            parts_->forward->draw(of_rows(hidden, first, count),
                                  {.head = &head_of(id),
                                   .jobs = jobs.subspan(first, count),
                                   .best = best.subspan(first, count)});
            return RunOutcome::Done;
        });
    }

    [[nodiscard]] bool has_head(HeadId id) const override {
        if (id == HeadId::Adapter) return parts_->weights().has_adapter();
        if (id != HeadId::Final) return static_cast<std::size_t>(id) <= parts_->weights().heads();
        return parts_->options.final_head || last_layer() == config().layers;
    }

    [[nodiscard]] std::span<const TokenId> short_list(HeadId id) const override {
        PACE_CHECK(has_head(id), "a head of this segment");
        return head_of(id).tokens;
    }

    [[nodiscard]] std::string equality_class() const override {
        return fmt::format("cuda build={} sm={} dtype={} kv={}{} weights={}", PACELINE_BUILD_ID,
                           parts_->first().info.capability, name(parts_->options.dtype),
                           name(parts_->options.kv), (parts_->options.exact ? "" : " exact=off"),
                           parts_->fingerprint);
    }

    [[nodiscard]] std::size_t kv_bytes() const override { return parts_->forward->pages().bytes(); }
    void read_kv(KvSlot slot, KvBytes bytes) const override {
        check_slot(slot, bytes.size());
        cuda::set_device(parts_->options.device);
        parts_->forward->pages().read(slot, bytes);
    }
    void write_kv(KvSlot slot, ConstKvBytes bytes) override {
        check_slot(slot, bytes.size());
        cuda::set_device(parts_->options.device);
        parts_->forward->pages().write(slot, bytes);
    }

    void gather(std::span<const RowSource> rows, HiddenRows to) override {
        PACE_CHECK(to.size() == rows.size() * dim(), "a place for each row");
        for (const RowSource& row : rows)
            PACE_CHECK(row.is_gap() || (row.row + 1) * dim() <= row.of.size(),
                       "a row of its source");
        cuda::set_device(parts_->options.device);
        parts_->forward->states().gather(rows, to);
    }
    void copy(ConstHiddenRows from, HiddenRows to) override {
        PACE_CHECK(from.size() == to.size(), "as many rows as are copied");
        cuda::set_device(parts_->options.device);
        parts_->forward->states().copy(from, to);
    }
    [[nodiscard]] MemoryPlace memory_place() const override { return MemoryPlace::Device; }
    [[nodiscard]] RowMemory make_rows(std::size_t rows) override {
        cuda::set_device(parts_->options.device);
        return parts_->forward->states().make_rows(rows);
    }

private:
    [[nodiscard]] std::size_t dim() const { return static_cast<std::size_t>(config().dim); }
    template <class T>
    [[nodiscard]] PlacedSpan<T> of_rows(PlacedSpan<T> hidden,
                                        std::size_t first,
                                        std::size_t count) const {
        return hidden.subspan(first * dim(), count * dim());
    }

    RunOutcome run(std::span<const Row> rows,
                   HiddenRows hidden,
                   const BehindRows& behind,
                   const CudaDraws& draws,
                   const CancelToken* cancel) {
        const bool begin = std::all_of(rows.begin(), rows.end(), begins_with_token);
        PACE_CHECK(
            hidden.size() == rows.size() * dim() || (hidden.empty() && begin && !behind.hidden),
            "hidden is [rows, dim], or not needed");
        for (const Row& row : rows) check(row);
        check_jobs(draws.jobs, draws.head != nullptr ? draws.head->id : HeadId::Final);
        return in_batches(rows, [&](std::size_t first, std::size_t count) {
            const auto of = [&](auto all) { return all.empty() ? all : all.subspan(first, count); };
            const HiddenRows states = hidden.empty() ? hidden : of_rows(hidden, first, count);
            return parts_->forward->run(
                rows.subspan(first, count), {states, behind.hidden ? states : HiddenRows{}},
                {draws.head, of(draws.jobs), of(draws.tokens), of(draws.best)},
                {cancel, first, count});
        });
    }

    // ---- Steps of an EAGLE draft

    void put(std::span<const KvSlot> slots, std::span<const float> states) override {
        for (const KvSlot slot : slots) check_feature(slot);
        cuda::set_device(parts_->options.device);
        parts_->forward->eagle()->put(slots, states);
    }
    void read(KvSlot slot, std::span<float> to) override {
        check_feature(slot);
        cuda::set_device(parts_->options.device);
        parts_->forward->eagle()->read(slot, to);
    }
    RunOutcome run_step(const EagleStep& step,
                        HiddenRows out,
                        const StepDraws& draws,
                        const CancelToken* cancel) override {
        const std::size_t rows = step.rows.size();
        PACE_CHECK(step.before.size() == rows && step.kept.size() == rows, "features of each row");
        PACE_CHECK(out.empty() || out.size() == rows * dim(), "out is [rows, dim], or not needed");
        for (std::size_t r = 0; r < rows; ++r) check_step_row(step, r);
        check_jobs(draws.jobs, draws.head);
        const CudaHead* head = draws.jobs.empty() ? nullptr : &head_of(draws.head);
        return in_batches(step.rows, [&](std::size_t first, std::size_t count) {
            const auto of = [&](auto all) { return all.empty() ? all : all.subspan(first, count); };
            return parts_->forward->run_step(
                {of(step.rows), of(step.before), of(step.kept)},
                out.empty() ? out : of_rows(out, first, count),
                {head, of(draws.jobs), of(draws.tokens), of(draws.best)}, {cancel, first, count});
        });
    }
    void check_feature(KvSlot slot) const {
        PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
    }
    void check_step_row(const EagleStep& step, std::size_t r) const {
        const Row& row = step.rows[r];
        check(row);
        PACE_CHECK(begins_with_token(row) && row.last == 2 * last_layer() && row.mask == nullptr &&
                       row.stack == nullptr,
                   "a row that runs the whole layer");
        if (step.before[r] != kNoFeature) check_feature(step.before[r]);
        if (step.kept[r] != kNoFeature) check_feature(step.kept[r]);
    }

    /// Rows through layers: `run` gets (first, count) of each batch.
    template <class Run>
    RunOutcome in_batches(std::span<const Row> rows, Run run) {
        // The calling thread may serve backends on other devices too.
        cuda::set_device(parts_->options.device);
        for (std::size_t first = 0; first < rows.size();) {
            const std::size_t count = parts_->forward->batch_rows(rows.subspan(first));
            if (run(first, count) == RunOutcome::Cancelled) return RunOutcome::Cancelled;
            first += count;
        }
        return RunOutcome::Done;
    }

    /// The same for hidden states through a head.
    template <class Run>
    RunOutcome in_chunks(std::size_t rows, Run run) {
        cuda::set_device(parts_->options.device);
        const auto chunk = static_cast<std::size_t>(parts_->forward->head_rows());
        for (std::size_t first = 0; first < rows; first += chunk) {
            if (run(first, std::min(chunk, rows - first)) == RunOutcome::Cancelled)
                return RunOutcome::Cancelled;
        }
        return RunOutcome::Done;
    }

    [[nodiscard]] const CudaHead& head_of(HeadId id) const { return parts_->weights().head(id); }

    void run_head(
        HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits, std::size_t width) {
        PACE_CHECK(has_head(id), "a head of this segment");
        PACE_CHECK(hidden.size() == static_cast<std::size_t>(rows) * dim(),
                   "hidden is [rows, dim]");
        PACE_CHECK(logits.size() == static_cast<std::size_t>(rows) * width,
                   "logits are [rows, vocab], or [rows, listed tokens]");
        (void)in_chunks(static_cast<std::size_t>(rows), [&](std::size_t first, std::size_t count) {
            parts_->forward->head(head_of(id), of_rows(hidden, first, count),
                                  static_cast<int>(count), logits.data() + first * width);
            return RunOutcome::Done;
        });
    }

    void check_slot(KvSlot slot, std::size_t bytes) const {
        PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
        PACE_CHECK(bytes == kv_bytes(), "bytes of one slot");
    }

    void check_jobs(std::span<const DrawJob> jobs, HeadId head) const {
        for (const DrawJob& job : jobs)
            PACE_CHECK(job.params == nullptr || (has_head(head) && draws(*job.params)),
                       "what is drawn has a head and parameters that the device knows");
    }

    void check(const Row& row) const {
        PACE_CHECK(row.stack_mask == nullptr || row.mask == nullptr,
                   "states after some sub-layers, of a row that skips none");
        check_row(*this, row, parts_->options.skipped);
        check_position(row);
    }

    void check_position(const Row& row) const {
        PACE_CHECK(row.position < cuda_context(config(), parts_->options),
                   "a position within the model's context");
    }

    std::unique_ptr<Parts> parts_;
};

CudaOptions resolved(const ModelConfig& config, const CudaOptions& given) {
    CudaOptions options = given;
    if (options.last_layer < 0) options.last_layer = config.layers;
    // Nothing that cuBLAS would multiply: as exact as any.
    if (options.rows_max < cuda::kBlasRowsMin) options.exact = true;
    return options;
}

Result<std::unique_ptr<CudaBackend>> made(const ModelFile& file, const CudaOptions& options) {
    auto parts = std::make_unique<Parts>();
    parts->config = file.config();
    parts->fingerprint = file.fingerprint();
    Result<CudaRanks> ranks = plan_ranks(file, options);
    if (!ranks) return ranks.error();
    parts->ranks = std::move(ranks).value();
    std::vector<MemoryUse> uses;
    for (const std::unique_ptr<CudaRank>& rank : parts->ranks) uses.push_back(rank->use);
    parts->use = sum_of(uses);
    parts->forward = std::make_unique<CudaForward>(parts->config, options, parts->ranks);
    if (Status loaded = load_ranks(parts->ranks, file, options); !loaded) return loaded.error();
    const CudaForward::Made made = parts->forward->make(options);
    if (!made.pinned) return no_pinned_room(options, parts->use);
    if (made.lacks != nullptr)
        return no_room(options, made.lacks->device, made.lacks->info, made.lacks->use);
    cuda::set_device(options.device);
    parts->options = options;
    parts->options.heads.clear();  // loaded
    parts->options.adapter.reset();
    parts->options.eagle.reset();
    return std::unique_ptr<CudaBackend>{std::make_unique<CudaBackendImpl>(std::move(parts))};
}

}  // namespace

std::vector<MemoryUse> cuda_memory_of_each(const ModelFile& file, const CudaOptions& given) {
    return cuda_uses(file, resolved(file.config(), given));
}

MemoryUse cuda_memory(const ModelFile& file, const CudaOptions& given) {
    return sum_of(cuda_memory_of_each(file, given));
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
