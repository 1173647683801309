#include "model/cpu/cpu_backend.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>

#include "ipc/base/check.hpp"
#include "model/cpu/cpu_adapter.hpp"
#include "model/cpu/cpu_weights.hpp"
#include "model/cpu/forward.hpp"
#include "model/cpu/kv_store.hpp"

namespace paceline {
namespace {

#ifndef PACELINE_BUILD_ID
#define PACELINE_BUILD_ID "unknown"
#endif

/// What a CpuBackend keeps, in the order in which it is made.
struct Parts {
    ModelConfig config;
    CpuOptions options;
    Isa isa;
    std::uint64_t fingerprint;
    std::unique_ptr<ThreadTeam> team;
    CpuWeights weights;
    KvStore kv;
    std::unique_ptr<CpuAdapter> adapter;  // maybe none
};

class CpuBackendImpl final : public CpuBackend {
public:
    explicit CpuBackendImpl(Parts parts)
        : parts_{std::move(parts)},
          forward_{parts_.config,
                   parts_.weights,
                   kernels(parts_.isa),
                   parts_.kv,
                   *parts_.team,
                   parts_.options.first_layer,
                   parts_.options.last_layer,
                   parts_.options.rows_max} {}

    [[nodiscard]] const ModelConfig& config() const override { return parts_.config; }
    [[nodiscard]] int first_layer() const override { return parts_.options.first_layer; }
    [[nodiscard]] int last_layer() const override { return parts_.options.last_layer; }
    [[nodiscard]] std::int32_t kv_slots() const override { return parts_.kv.slots(); }
    [[nodiscard]] Isa isa() const override { return parts_.isa; }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows hidden,
                          const CancelToken* cancel) override {
        const auto dim = static_cast<std::size_t>(parts_.config.dim);
        const std::span<float> states = hidden.host();
        PACE_CHECK(states.size() == rows.size() * dim, "hidden is [rows, dim]");
        for (const Row& row : rows) check_row(*this, row, parts_.options.skipped);
        const auto chunk = static_cast<std::size_t>(parts_.options.rows_max);
        for (std::size_t first = 0; first < rows.size(); first += chunk) {
            const std::size_t count = std::min(chunk, rows.size() - first);
            const RunOutcome outcome = forward_.run(rows.subspan(first, count),
                                                    states.data() + first * dim, cancel, first);
            if (outcome == RunOutcome::Cancelled) return outcome;
        }
        return RunOutcome::Done;
    }

    void head(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) override {
        run_head(id, hidden.host(), rows, logits, parts_.config.vocab_size);
    }

    void head_listed(HeadId id,
                     ConstHiddenRows hidden,
                     int rows,
                     std::span<float> logits) override {
        const std::size_t listed = short_list(id).size();
        PACE_CHECK(listed > 0, "a head with a short list");
        run_head(id, hidden.host(), rows, logits, static_cast<int>(listed));
    }

    [[nodiscard]] bool has_head(HeadId id) const override {
        if (id == HeadId::Adapter) return parts_.adapter != nullptr;
        if (id != HeadId::Final)
            return static_cast<std::size_t>(id) <= parts_.weights.heads().size();
        return parts_.options.final_head || last_layer() == parts_.config.layers;
    }

    [[nodiscard]] std::span<const TokenId> short_list(HeadId id) const override {
        PACE_CHECK(has_head(id), "a head of this segment");
        if (id == HeadId::Final) return {};
        return id == HeadId::Adapter ? parts_.adapter->tokens() : head_of(id).tokens;
    }

    RunOutcome run_adapter(std::span<const Row> rows,
                           ConstHiddenRows hidden,
                           HiddenRows out,
                           const CancelToken* cancel) override {
        PACE_CHECK(has_adapter(), "an adapter of this segment");
        const auto dim = static_cast<std::size_t>(parts_.config.dim);
        PACE_CHECK(hidden.size() == rows.size() * dim && out.size() == hidden.size(),
                   "hidden states and what comes of them are [rows, dim]");
        for (const Row& row : rows) check_keys(*this, row);
        return parts_.adapter->run(rows, hidden.host(), out.host(), cancel);
    }

    [[nodiscard]] std::size_t kv_bytes() const override { return parts_.kv.slot_bytes(); }
    void read_kv(KvSlot slot, KvBytes bytes) const override {
        PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
        PACE_CHECK(bytes.size() == kv_bytes(), "bytes for one slot");
        parts_.kv.read(slot, bytes.host());
    }
    void write_kv(KvSlot slot, ConstKvBytes bytes) override {
        PACE_CHECK(slot >= 0 && slot < kv_slots(), "a slot that exists");
        PACE_CHECK(bytes.size() == kv_bytes(), "bytes of one slot");
        parts_.kv.write(slot, bytes.host());
    }

    double gemm_only_seconds(int rows) override {
        PACE_CHECK(rows >= 1 && rows <= parts_.options.rows_max, "rows of one chunk");
        return forward_.gemm_only_seconds(rows);
    }

    [[nodiscard]] MemoryUse memory_use() const override {
        MemoryUse use{parts_.weights.packed_bytes(), parts_.kv.bytes(), forward_.workspace_bytes()};
        if (parts_.adapter) {
            const MemoryUse more = parts_.adapter->memory_use();
            use.weight_bytes += more.weight_bytes;
            use.kv_bytes += more.kv_bytes;
            use.workspace_bytes += more.workspace_bytes;
        }
        return use;
    }

    [[nodiscard]] std::string equality_class() const override {
        return fmt::format("cpu build={} isa={} dtype={} kv={} weights={}", PACELINE_BUILD_ID,
                           name(parts_.isa), name(parts_.options.dtype), name(parts_.kv.type()),
                           parts_.fingerprint);
    }

private:
    [[nodiscard]] const CpuHead& head_of(HeadId id) const {
        return parts_.weights.heads()[static_cast<std::size_t>(id) - 1];
    }

    /// Logits of [rows, width], in chunks.
    void run_head(
        HeadId id, std::span<const float> hidden, int rows, std::span<float> logits, int width) {
        PACE_CHECK(has_head(id), "a head of this segment");
        const auto dim = static_cast<std::size_t>(parts_.config.dim);
        const auto columns = static_cast<std::size_t>(width);
        PACE_CHECK(hidden.size() == static_cast<std::size_t>(rows) * dim, "hidden is [rows, dim]");
        PACE_CHECK(logits.size() == static_cast<std::size_t>(rows) * columns,
                   "logits are [rows, vocab], or [rows, listed tokens]");
        for (int first = 0; first < rows; first += parts_.options.rows_max) {
            const auto at = static_cast<std::size_t>(first);
            const int count = std::min(parts_.options.rows_max, rows - first);
            const float* from = hidden.data() + at * dim;
            const Logits to{logits.data() + at * columns, width};
            if (id == HeadId::Final) {
                forward_.head(from, count, to.data);
            } else if (id == HeadId::Adapter) {
                parts_.adapter->head(from, count, to);
            } else {
                forward_.head(head_of(id), from, count, to);
            }
        }
    }

    Parts parts_;
    Forward forward_;
};

Status check_options(const ModelConfig& config, const CpuOptions& options) {
    const auto bad = [](std::string what) { return Error{Errc::BadArgument, std::move(what)}; };
    if (Status layers = check_layers(config, options.first_layer, options.last_layer); !layers)
        return layers;
    if (options.threads < 1 || options.threads > 1024)
        return bad(fmt::format("threads = {}, must be 1 to 1024", options.threads));
    if (!options.cores.empty() &&
        options.cores.size() != static_cast<std::size_t>(options.threads)) {
        return bad(fmt::format("{} cores for {} threads: give one each or none",
                               options.cores.size(), options.threads));
    }
    if (options.kv_slots < 1)
        return bad(fmt::format("kv_slots = {}, must be at least 1", options.kv_slots));
    if (options.rows_max < 1)
        return bad(fmt::format("rows_max = {}, must be at least 1", options.rows_max));
    if (options.isa && !supports(*options.isa))
        return bad("this machine cannot run the " + std::string{name(*options.isa)} + " kernels");
    if (config.head_dim > kHeadDimMax)
        return Error{Errc::Unsupported, fmt::format("head_dim = {}, at most {} is supported",
                                                    config.head_dim, kHeadDimMax)};
    if (config.heads / config.kv_heads > kAttentionQueriesMax) {
        return Error{Errc::Unsupported,
                     fmt::format("{} query heads per KV head, at most {} are supported",
                                 config.heads / config.kv_heads, kAttentionQueriesMax)};
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<CpuBackend>> make_cpu_backend(const ModelFile& file,
                                                     const CpuOptions& given) {
    CpuOptions options = given;
    const ModelConfig& config = file.config();
    if (options.last_layer < 0) options.last_layer = config.layers;
    if (Status checked = check_options(config, options); !checked) return checked.error();
    if (Status checked = check_heads(config, options.heads); !checked) return checked.error();
    if (options.adapter) {
        if (Status checked = check_adapter(config, *options.adapter); !checked)
            return checked.error();
    }
    const Isa isa = options.isa.value_or(best_isa());
    auto team = std::make_unique<ThreadTeam>(options.threads, options.cores, options.usable_cores);
    Result<CpuWeights> weights = CpuWeights::load(file, options, *team);
    if (!weights) return weights.error();
    Result<KvStore> kv =
        KvStore::make(config, options.kv,
                      {options.first_layer, options.last_layer, options.skipped}, options.kv_slots);
    if (!kv) return kv.error();
    std::unique_ptr<CpuAdapter> adapter;
    if (options.adapter) {
        Result<std::unique_ptr<CpuAdapter>> made =
            CpuAdapter::make(file, options, weights.value().head(), kernels(isa), *team);
        if (!made) return made.error();
        adapter = std::move(made).value();
    }
    team->start_anew();
    options.heads.clear();  // packed
    options.adapter.reset();
    return std::unique_ptr<CpuBackend>{std::make_unique<CpuBackendImpl>(
        Parts{config, options, isa, file.fingerprint(), std::move(team), std::move(weights).value(),
              std::move(kv).value(), std::move(adapter)})};
}

}  // namespace paceline
