#include "model/cpu/forward.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "model/cpu/forward_scratch.hpp"

namespace paceline {
namespace {

std::vector<float*> row_pointers(AlignedArray<float>& buffer, int rows, int cols) {
    std::vector<float*> pointers(static_cast<std::size_t>(rows));
    for (int r = 0; r < rows; ++r) {
        pointers[static_cast<std::size_t>(r)] =
            buffer.data() + static_cast<std::ptrdiff_t>(r) * cols;
    }
    return pointers;
}

AlignedArray<float> floats(int rows, int cols) {
    return AlignedArray<float>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
}

}  // namespace

Forward::Forward(const ModelConfig& config,
                 const CpuWeights& weights,
                 const KernelTable& kernels,
                 KvStore& kv,
                 ThreadTeam& team,
                 int first_layer,
                 int last_layer,
                 int rows_max)
    : config_{config},
      weights_{weights},
      kernels_{kernels},
      kv_{kv},
      team_{team},
      first_layer_{first_layer},
      last_layer_{last_layer},
      rows_max_{rows_max},
      splits_max_{(kv.slots() + kSplit - 1) / kSplit},
      rope_{config.rope},
      replanned_{
          std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(config.sublayers()))},
      next_unit_{
          std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(config.sublayers()))},
      q_{floats(rows_max, config.q_dim())},
      k_{floats(rows_max, config.kv_dim())},
      v_{floats(rows_max, config.kv_dim())},
      mixed_{floats(rows_max, config.q_dim())},
      gate_{floats(rows_max, config.ffn_dim)},
      up_{floats(rows_max, config.ffn_dim)},
      q_rows_{row_pointers(q_, rows_max, config.q_dim())},
      k_rows_{row_pointers(k_, rows_max, config.kv_dim())},
      v_rows_{row_pointers(v_, rows_max, config.kv_dim())},
      gate_rows_{row_pointers(gate_, rows_max, config.ffn_dim)},
      up_rows_{row_pointers(up_, rows_max, config.ffn_dim)},
      logits_rows_(static_cast<std::size_t>(rows_max)),
      parts_{static_cast<std::size_t>(std::min(kSplitRowsMax, rows_max)) *
             static_cast<std::size_t>(config.heads * splits_max_ * (config.head_dim + 2))} {
    unsigned types = 0;
    for (int l = first_layer; l < last_layer; ++l) {
        const CpuLayer& layer = weights.layer(l);
        for (const PackedMatrix* m :
             {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
            if (m->rows > 0) types |= type_bit(*m);
        }
    }
    if (weights.head().data != nullptr) types |= type_bit(weights.head());
    for (const CpuHead& head : weights.heads()) {
        types |= type_bit(head.output);
        if (head.transform.rows == 0) continue;
        types |= type_bit(head.transform);
        if (turned_.size() > 0) continue;
        turned_ = floats(rows_max, config.dim);
        turned_rows_ = row_pointers(turned_, rows_max, config.dim);
    }
    const int cols_max = std::max({config.dim, config.q_dim(), config.ffn_dim});
    for (int thread = 0; thread < team.capacity(); ++thread) {
        scratch_.push_back(std::make_unique<Scratch>(config, cols_max, kv.half_page_bytes()));
    }
    for (unsigned type = 0; type < 3; ++type) {
        if ((types & (1U << type)) == 0) continue;
        shared_.by_type[type] = Activations(rows_max, cols_max);
        for (const auto& scratch : scratch_)
            scratch->own.by_type[type] = Activations(kPrivateRowsMax, cols_max);
    }
}

Forward::~Forward() = default;

std::uint64_t Forward::workspace_bytes() const {
    const auto rows = static_cast<std::uint64_t>(rows_max_);
    const int buffers = 2 * (config_.q_dim() + config_.kv_dim() + config_.ffn_dim);
    const auto per_row = static_cast<std::uint64_t>(buffers);
    const int widest = std::max({config_.dim, config_.q_dim(), config_.ffn_dim});
    const auto cols_max = static_cast<std::uint64_t>(widest);
    return 4 * (rows * (per_row + cols_max) + parts_.size() + turned_.size());
}

// ---- a call -----------------------------------------------------------------------------------

RunOutcome Forward::run(std::span<const Row> rows,
                        float* hidden,
                        const CancelToken* cancel,
                        std::size_t first_row) {
    rows_ = rows;
    hidden_ = hidden;
    cancel_ = cancel;
    watch_ = cancel == nullptr ? nullptr : cancel->rows();
    first_row_ = first_row;
    stop_after_.store(kNever, std::memory_order_relaxed);
    stale_.assign(rows.size(), 0);
    (void)mark_deaths();
    make_plan(plans_[0]);
    pages_.build(rows);
    const auto pairs = static_cast<std::size_t>(rope_.pairs());
    cosines_.resize(rows.size() * pairs);
    sines_.resize(rows.size() * pairs);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        rope_.fill(rows[r].position, {cosines_.data() + r * pairs, pairs},
                   {sines_.data() + r * pairs, pairs});
    }
    for (int s = plans_[0].first(); s < plans_[0].last(); ++s) {
        // Relaxed: published by run() of the team.
        next_unit_[static_cast<std::size_t>(s)].store(0, std::memory_order_relaxed);
        replanned_[static_cast<std::size_t>(s)].store(false, std::memory_order_relaxed);
    }
    auto work = [this](int thread) { walk(thread); };
    team_.run(work);
    return stop_after_.load(std::memory_order_relaxed) == kNever ? RunOutcome::Done
                                                                 : RunOutcome::Cancelled;
}

/// Whether rows have died since it was asked last.
bool Forward::mark_deaths() {
    bool any = false;
    for (std::size_t r = 0; watch_ != nullptr && r < stale_.size(); ++r) {
        if (stale_[r] != 0 || !watch_->stale(first_row_ + r)) continue;
        stale_[r] = 1;
        any = true;
    }
    return any;
}

void Forward::make_plan(ForwardPlan& plan) {
    // Small sets when there are few rows, so that every thread gets some.
    const int fair = (static_cast<int>(rows_.size()) + team_.size() - 1) / team_.size();
    const int set_rows =
        std::clamp(std::min(kAttentionQueriesMax / queries_per_kv(), fair), 1, kSetRowsMax);
    plan.build(rows_, stale_, hidden_, {config_.dim, config_.kv_heads, set_rows, kSplitRowsMax});
}

void Forward::walk(int thread) {
    const int first = plans_[0].first();
    const int last = plans_[0].last();
    int plan = 0;
    if (first == 0) {
        embed(thread);
        team_.barrier();
    }
    for (int sublayer = first; sublayer < last; ++sublayer) {
        std::atomic<bool>& replanned = replanned_[static_cast<std::size_t>(sublayer)];
        if (thread == 0) {  // what is stored here is ordered by the barrier below
            if (cancel_ != nullptr && cancel_->cancelled())
                stop_after_.store(sublayer, std::memory_order_relaxed);
            if (mark_deaths()) {
                make_plan(plans_[1 - plan]);
                replanned.store(true, std::memory_order_relaxed);
            }
        }
        const RowGroup* group = plans_[plan].group(sublayer);
        if (group != nullptr) {
            if (sublayer % 2 == 0) {
                attention(thread, sublayer / 2, *group);
            } else {
                mlp(thread, sublayer / 2, *group);
            }
        }
        keep_stacks(thread, sublayer, group);
        team_.barrier();
        // Everybody sees the same answer, even if thread 0 has gone on and asks for a later stop.
        if (stop_after_.load(std::memory_order_relaxed) <= sublayer) return;
        if (replanned.load(std::memory_order_relaxed)) plan = 1 - plan;
    }
}

void Forward::embed(int thread) {
    const int rows = static_cast<int>(rows_.size());
    for (int r = thread; r < rows; r += team_.size()) {
        const Row& row = rows_[static_cast<std::size_t>(r)];
        if (row.first != 0 || row.given) continue;
        unpack_row(weights_.embedding(), row.token,
                   {hidden_ + static_cast<std::ptrdiff_t>(r) * config_.dim,
                    static_cast<std::size_t>(config_.dim)});
    }
}

/// Copies the residual after `sublayer` for rows that keep the whole stack.
void Forward::keep_stacks(int thread, int sublayer, const RowGroup* group) {
    bool wanted = false;
    for (const Row& row : rows_) wanted = wanted || row.stack != nullptr;
    if (!wanted) return;
    if (group != nullptr) team_.barrier();  // the residual is complete
    const int rows = static_cast<int>(rows_.size());
    for (int r = thread; r < rows; r += team_.size()) {
        const Row& row = rows_[static_cast<std::size_t>(r)];
        const std::optional<std::size_t> place = row.stack_place(sublayer);
        if (!place) continue;
        std::memcpy(row.stack + *place * static_cast<std::size_t>(config_.dim),
                    hidden_ + static_cast<std::ptrdiff_t>(r) * config_.dim,
                    static_cast<std::size_t>(config_.dim) * sizeof(float));
    }
}

// ---- steps ------------------------------------------------------------------------------------

void Forward::multiply(int thread,
                       const PackedMatrix& weights,
                       const PackedInputs& x,
                       float* const* y,
                       bool accumulate) {
    const GemmArgs args{&weights, &x.of(weights.type), y, 0, accumulate};
    kernels_.gemm(args, share(weights.tiles(), thread, team_.size()),
                  share(weights.tiles(), thread + 1, team_.size()));
}

void Forward::mlp(int thread, int layer, const RowGroup& group) {
    const CpuLayer& w = weights_.layer(layer);
    const int rows = static_cast<int>(group.rows.size());
    const PackedInputs x = pack_rows(thread, rows, config_.dim, type_bit(w.gate) | type_bit(w.up),
                                     [&](int r, Columns columns, float* out) {
                                         norm_columns(group.residual[static_cast<std::size_t>(r)],
                                                      w.ffn_norm, columns, out);
                                     });
    multiply(thread, w.gate, x, gate_rows_.data(), false);
    multiply(thread, w.up, x, up_rows_.data(), false);
    team_.barrier();
    const PackedInputs h = pack_rows(
        thread, rows, config_.ffn_dim, type_bit(w.down), [&](int r, Columns columns, float* out) {
            const auto row = static_cast<std::size_t>(r);
            kernels_.silu_mul(gate_rows_[row] + columns.first, up_rows_[row] + columns.first,
                              columns.last - columns.first, out + columns.first);
        });
    multiply(thread, w.down, h, group.residual.data(), true);
}

// ---- yardstick ---------------------------------------------------------------------------------

double Forward::gemm_only_seconds(int rows) {
    ActivationSet memory[3];
    const auto inputs = [&](ActivationSet& set, int cols) {
        PackedInputs packed;
        std::vector<float> row(static_cast<std::size_t>(cols));
        for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(c % 7) - 3.0f;
        for (unsigned type = 0; type < 3; ++type) {
            if (shared_.by_type[type].capacity() == 0) continue;
            set.by_type[type] = Activations(rows, cols);
            packed.by_type[type] =
                set.by_type[type].shaped(static_cast<ActivationType>(type), rows, cols);
            for (int r = 0; r < rows; ++r)
                kernels_.pack_row(row.data(), {0, cols}, packed.by_type[type], r);
        }
        return packed;
    };
    const PackedInputs x = inputs(memory[0], config_.dim);
    const PackedInputs mixed = inputs(memory[1], config_.q_dim());
    const PackedInputs h = inputs(memory[2], config_.ffn_dim);
    AlignedArray<float> residual = floats(rows, config_.dim);
    const bool with_head = weights_.head().data != nullptr;
    AlignedArray<float> logits = floats(with_head ? rows : 0, config_.vocab_size);
    const std::vector<float*> residual_rows = row_pointers(residual, rows, config_.dim);
    const std::vector<float*> logit_rows =
        row_pointers(logits, with_head ? rows : 0, config_.vocab_size);
    auto work = [&](int thread) {
        for (int l = first_layer_; l < last_layer_; ++l) {
            const CpuLayer& w = weights_.layer(l);
            multiply(thread, w.q, x, q_rows_.data(), false);
            multiply(thread, w.k, x, k_rows_.data(), false);
            multiply(thread, w.v, x, v_rows_.data(), false);
            team_.barrier();
            multiply(thread, w.attn_out, mixed, residual_rows.data(), true);
            team_.barrier();
            multiply(thread, w.gate, x, gate_rows_.data(), false);
            multiply(thread, w.up, x, up_rows_.data(), false);
            team_.barrier();
            multiply(thread, w.down, h, residual_rows.data(), true);
            team_.barrier();
        }
        if (with_head) multiply(thread, weights_.head(), x, logit_rows.data(), false);
    };
    const auto begin = std::chrono::steady_clock::now();
    team_.run(work);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace paceline
