#include "model/cpu/forward.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

unsigned type_bit(const PackedMatrix& matrix) {
    return 1U << static_cast<unsigned>(activation_for(matrix.type));
}

std::vector<float*> row_pointers(AlignedArray<float>& buffer, int rows, int cols) {
    std::vector<float*> pointers;
    for (int r = 0; r < rows; ++r)
        pointers.push_back(buffer.data() + static_cast<std::ptrdiff_t>(r) * cols);
    return pointers;
}

AlignedArray<float> floats(int rows, int cols) {
    return AlignedArray<float>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
}

int share(int total, int part, int parts) {
    return static_cast<int>(static_cast<std::int64_t>(total) * part / parts);
}

}  // namespace

struct Forward::Scratch {
    Scratch(const ModelConfig& config, int cols_max, std::size_t half_page_bytes)
        : row(static_cast<std::size_t>(cols_max)),
          scores(static_cast<std::size_t>(kAttentionQueriesMax) * kSplit),
          gathered(2 * static_cast<std::size_t>(kSplit / kKvPageSlots) * half_page_bytes),
          split_parts(static_cast<std::size_t>(kAttentionQueriesMax) *
                      static_cast<std::size_t>(config.head_dim + 2)),
          running(split_parts.size()) {}

    AlignedArray<float> row;              // one row between producing and packing it
    AlignedArray<float> scores;           // [queries][kSplit]
    AlignedArray<std::uint8_t> gathered;  // [pages of a split] keys, then values
    AlignedArray<float> split_parts;      // [queries][head_dim + 2]
    AlignedArray<float> running;          // [queries][head_dim + 2]
    ActivationSet own;                    // few rows: packed by every thread for itself
};

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
            types |= type_bit(*m);
        }
    }
    if (weights.head().data != nullptr) types |= type_bit(weights.head());
    const int cols_max = std::max({config.dim, config.q_dim(), config.ffn_dim});
    for (int thread = 0; thread < team.size(); ++thread) {
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
    const std::uint64_t rows = static_cast<std::uint64_t>(rows_max_);
    const auto per_row = static_cast<std::uint64_t>(2 * config_.q_dim() + 2 * config_.kv_dim() +
                                                    2 * config_.ffn_dim);
    const auto cols_max =
        static_cast<std::uint64_t>(std::max({config_.dim, config_.q_dim(), config_.ffn_dim}));
    return 4 * (rows * (per_row + cols_max) + parts_.size());
}

// ---- a call -----------------------------------------------------------------------------------

RunOutcome Forward::run(std::span<const Row> rows, float* hidden, const CancelToken* cancel) {
    rows_ = rows;
    hidden_ = hidden;
    cancel_ = cancel;
    stop_after_.store(kNever, std::memory_order_relaxed);
    const int set_rows = std::clamp(kAttentionQueriesMax / queries_per_kv(), 1, kSetRowsMax);
    plan_.build(rows, hidden, {config_.dim, config_.kv_heads, set_rows, kSplitRowsMax});
    pages_.build(rows);
    const auto pairs = static_cast<std::size_t>(rope_.pairs());
    cosines_.resize(rows.size() * pairs);
    sines_.resize(rows.size() * pairs);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        rope_.fill(rows[r].position, {cosines_.data() + r * pairs, pairs},
                   {sines_.data() + r * pairs, pairs});
    }
    for (int s = plan_.first(); s < plan_.last(); ++s) {
        next_unit_[static_cast<std::size_t>(s)].store(
            0, std::memory_order_relaxed);  // published by run() of the team
    }
    auto work = [this](int thread) { walk(thread); };
    team_.run(work);
    return stop_after_.load(std::memory_order_relaxed) == kNever ? RunOutcome::Done
                                                                 : RunOutcome::Cancelled;
}

void Forward::walk(int thread) {
    if (plan_.first() == 0) {
        embed(thread);
        team_.barrier();
    }
    for (int sublayer = plan_.first(); sublayer < plan_.last(); ++sublayer) {
        if (thread == 0 && cancel_ != nullptr && cancel_->cancelled()) {
            stop_after_.store(sublayer, std::memory_order_relaxed);  // ordered by the barrier below
        }
        const RowGroup* group = plan_.group(sublayer);
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
    }
}

void Forward::embed(int thread) {
    const int rows = static_cast<int>(rows_.size());
    for (int r = thread; r < rows; r += team_.size()) {
        const Row& row = rows_[static_cast<std::size_t>(r)];
        if (row.first != 0) continue;
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
        if (row.stack == nullptr || sublayer < row.first || sublayer >= row.last) continue;
        std::memcpy(row.stack + static_cast<std::ptrdiff_t>(sublayer - row.first) * config_.dim,
                    hidden_ + static_cast<std::ptrdiff_t>(r) * config_.dim,
                    static_cast<std::size_t>(config_.dim) * sizeof(float));
    }
}

// ---- steps ------------------------------------------------------------------------------------

/// Packs `rows` rows that produce(thread, row, out) computes, in every rounding of `types`. With
/// few rows every thread packs all of them for itself, which is cheaper than a barrier.
template <class Produce>
const ActivationSet& Forward::pack_rows(
    int thread, int rows, int cols, unsigned types, Produce produce) {
    Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
    const bool alone = rows <= kPrivateRowsMax;
    ActivationSet& set = alone ? scratch.own : shared_;
    const int first = alone ? 0 : share(rows, thread, team_.size());
    const int last = alone ? rows : share(rows, thread + 1, team_.size());
    if (alone || thread == 0) {
        for (unsigned type = 0; type < 3; ++type) {
            if ((types & (1U << type)) != 0)
                set.by_type[type].shape(static_cast<ActivationType>(type), rows, cols);
        }
    }
    if (!alone) team_.barrier();  // the shape is set, and nobody reads the rows of the step before
    for (int r = first; r < last; ++r) {
        produce(r, scratch.row.data());
        for (unsigned type = 0; type < 3; ++type) {
            if ((types & (1U << type)) != 0)
                kernels_.pack_row(scratch.row.data(), cols, set.by_type[type], r);
        }
    }
    if (!alone) team_.barrier();
    return set;
}

void Forward::multiply(int thread,
                       const PackedMatrix& weights,
                       const ActivationSet& x,
                       float* const* y,
                       bool accumulate) {
    const GemmArgs args{&weights,
                        &x.by_type[static_cast<std::size_t>(activation_for(weights.type))], y, 0,
                        accumulate};
    kernels_.gemm(args, share(weights.tiles(), thread, team_.size()),
                  share(weights.tiles(), thread + 1, team_.size()));
}

void Forward::attention(int thread, int layer, const RowGroup& group) {
    const CpuLayer& w = weights_.layer(layer);
    const int rows = static_cast<int>(group.rows.size());
    const ActivationSet& x =
        pack_rows(thread, rows, config_.dim, type_bit(w.q) | type_bit(w.k) | type_bit(w.v),
                  [&](int r, float* out) {
                      kernels_.rms_norm(group.residual[static_cast<std::size_t>(r)],
                                        w.attn_norm.data(), config_.dim, config_.norm_epsilon, out);
                  });
    multiply(thread, w.q, x, q_rows_.data(), false);
    multiply(thread, w.k, x, k_rows_.data(), false);
    multiply(thread, w.v, x, v_rows_.data(), false);
    team_.barrier();
    rotate_and_store(thread, layer, group);
    team_.barrier();
    std::atomic<int>& next = next_unit_[static_cast<std::size_t>(2 * layer)];
    const int units = static_cast<int>(group.units.size());
    // Relaxed: the counter only hands out numbers; the barrier orders the results.
    for (int unit = next.fetch_add(1, std::memory_order_relaxed); unit < units;
         unit = next.fetch_add(1, std::memory_order_relaxed)) {
        attend_unit(thread, layer, group, group.units[static_cast<std::size_t>(unit)]);
    }
    team_.barrier();
    const ActivationSet& mixed =
        pack_rows(thread, rows, config_.q_dim(), type_bit(w.attn_out), [&](int r, float* out) {
            if (!group.by_split) {
                std::memcpy(out, mixed_.data() + static_cast<std::ptrdiff_t>(r) * config_.q_dim(),
                            static_cast<std::size_t>(config_.q_dim()) * sizeof(float));
                return;
            }
            const Position position =
                rows_[static_cast<std::size_t>(group.rows[static_cast<std::size_t>(r)])].position;
            float* running = scratch_[static_cast<std::size_t>(thread)]->running.data();
            for (int head = 0; head < config_.heads; ++head) {
                std::fill_n(running, config_.head_dim + 2, 0.0f);
                running[config_.head_dim] = -std::numeric_limits<float>::infinity();
                for (int split = 0; split <= position / kSplit; ++split) {
                    kernels_.merge(running, part(r, head, split), config_.head_dim);
                }
                kernels_.finish(running, config_.head_dim, out + head * config_.head_dim);
            }
        });
    multiply(thread, w.attn_out, mixed, group.residual.data(), true);
}

void Forward::mlp(int thread, int layer, const RowGroup& group) {
    const CpuLayer& w = weights_.layer(layer);
    const int rows = static_cast<int>(group.rows.size());
    const ActivationSet& x = pack_rows(
        thread, rows, config_.dim, type_bit(w.gate) | type_bit(w.up), [&](int r, float* out) {
            kernels_.rms_norm(group.residual[static_cast<std::size_t>(r)], w.ffn_norm.data(),
                              config_.dim, config_.norm_epsilon, out);
        });
    multiply(thread, w.gate, x, gate_rows_.data(), false);
    multiply(thread, w.up, x, up_rows_.data(), false);
    team_.barrier();
    const ActivationSet& h =
        pack_rows(thread, rows, config_.ffn_dim, type_bit(w.down), [&](int r, float* out) {
            kernels_.silu_mul(gate_rows_[static_cast<std::size_t>(r)],
                              up_rows_[static_cast<std::size_t>(r)], config_.ffn_dim, out);
        });
    multiply(thread, w.down, h, group.residual.data(), true);
}

// ---- attention --------------------------------------------------------------------------------

void Forward::rotate_head(float* head,
                          const float* norm,
                          const float* cosines,
                          const float* sines) const {
    if (norm != nullptr)
        kernels_.rms_norm(head, norm, config_.head_dim, config_.norm_epsilon, head);
    const int pairs = rope_.pairs();
    if (config_.rope.pairing == RopePairing::Adjacent) {
        for (int i = 0; i < pairs; ++i) {
            const float a = head[2 * i];
            const float b = head[2 * i + 1];
            head[2 * i] = a * cosines[i] - b * sines[i];
            head[2 * i + 1] = a * sines[i] + b * cosines[i];
        }
        return;
    }
    for (int i = 0; i < pairs; ++i) {
        const float a = head[i];
        const float b = head[i + pairs];
        head[i] = a * cosines[i] - b * sines[i];
        head[i + pairs] = a * sines[i] + b * cosines[i];
    }
}

/// Bias, norm and rope on queries and keys; keys and values into their slots. The unit of work
/// is one row's KV head with the query heads that share it.
void Forward::rotate_and_store(int thread, int layer, const RowGroup& group) {
    const CpuLayer& w = weights_.layer(layer);
    const int head_dim = config_.head_dim;
    const int units = static_cast<int>(group.rows.size()) * config_.kv_heads;
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    const auto add_bias = [&](const std::vector<float>& bias, int head, float* x) {
        if (bias.empty()) return;
        for (int d = 0; d < head_dim; ++d)
            x[d] += bias[static_cast<std::size_t>(head * head_dim + d)];
    };
    for (int unit = share(units, thread, team_.size());
         unit < share(units, thread + 1, team_.size()); ++unit) {
        const auto r = static_cast<std::size_t>(unit / config_.kv_heads);
        const int kv_head = unit % config_.kv_heads;
        const auto row_index = static_cast<std::size_t>(group.rows[r]);
        const Row& row = rows_[row_index];
        const float* cosines =
            cosines_.data() + row_index * static_cast<std::size_t>(rope_.pairs());
        const float* sines = sines_.data() + row_index * static_cast<std::size_t>(rope_.pairs());
        float* key = k_rows_[r] + kv_head * head_dim;
        float* value = v_rows_[r] + kv_head * head_dim;
        add_bias(w.k_bias, kv_head, key);
        add_bias(w.v_bias, kv_head, value);
        rotate_head(key, w.k_norm.empty() ? nullptr : w.k_norm.data(), cosines, sines);
        kernels_.store_kv(kv_.type(), key, value, head_dim,
                          kv_.page(layer - first_layer_, page_of(row.slot), kv_head),
                          lane_of(row.slot));
        for (int i = 0; i < queries_per_kv(); ++i) {
            const int head = kv_head * queries_per_kv() + i;
            float* query = q_rows_[r] + head * head_dim;
            add_bias(w.q_bias, head, query);
            rotate_head(query, w.q_norm.empty() ? nullptr : w.q_norm.data(), cosines, sines);
            for (int d = 0; d < head_dim; ++d) query[d] *= query_scale;
        }
    }
}

void Forward::attend_unit(int thread, int layer, const RowGroup& group, const AttentionUnit& unit) {
    const RowSet& set = group.sets[static_cast<std::size_t>(unit.set)];
    const int queries = set.count * queries_per_kv();
    float* out[kAttentionQueriesMax];
    const auto row_of = [&](int query) { return set.first + query / queries_per_kv(); };
    const auto head_of = [&](int query) {
        return unit.head * queries_per_kv() + query % queries_per_kv();
    };
    if (unit.split != AttentionUnit::kAllSplits) {
        for (int i = 0; i < queries; ++i) out[i] = part(row_of(i), head_of(i), unit.split);
        attend_split(thread, layer, group, unit, unit.split, out);
        return;
    }
    Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
    for (int i = 0; i < queries; ++i) {
        out[i] = scratch.split_parts.data() + i * part_stride();
        float* running = scratch.running.data() + i * part_stride();
        std::fill_n(running, part_stride(), 0.0f);
        running[config_.head_dim] = -std::numeric_limits<float>::infinity();
    }
    for (int split = 0; split <= set.last_position / kSplit; ++split) {
        attend_split(thread, layer, group, unit, split, out);
        for (int i = 0; i < queries; ++i) {
            const Row& row =
                rows_[static_cast<std::size_t>(group.rows[static_cast<std::size_t>(row_of(i))])];
            if (row.position < split * kSplit) continue;
            kernels_.merge(scratch.running.data() + i * part_stride(), out[i], config_.head_dim);
        }
    }
    for (int i = 0; i < queries; ++i) {
        kernels_.finish(scratch.running.data() + i * part_stride(), config_.head_dim,
                        mixed_.data() + static_cast<std::ptrdiff_t>(row_of(i)) * config_.q_dim() +
                            head_of(i) * config_.head_dim);
    }
}

/// One split for the rows of a set: runs of rows that read the same pages in place go together,
/// a row that needs gathering goes alone.
void Forward::attend_split(int thread,
                           int layer,
                           const RowGroup& group,
                           const AttentionUnit& unit,
                           int split,
                           float* const* out) {
    const RowSet& set = group.sets[static_cast<std::size_t>(unit.set)];
    constexpr int kPages = kSplit / kKvPageSlots;
    const auto pages_in_split = [&](int r) {
        const std::span<const std::int32_t> all =
            pages_.pages(group.rows[static_cast<std::size_t>(set.first + r)]);
        const auto begin = std::min(all.size(), static_cast<std::size_t>(split) * kPages);
        return all.subspan(begin, std::min<std::size_t>(all.size() - begin, kPages));
    };
    const auto in_place = [&](std::span<const std::int32_t> pages) {
        return std::find(pages.begin(), pages.end(), kGatherPage) == pages.end();
    };
    for (int first = 0; first < set.count;) {
        int count = 1;
        std::span<const std::int32_t> last = pages_in_split(first);
        while (in_place(last) && first + count < set.count) {
            const std::span<const std::int32_t> next = pages_in_split(first + count);
            if (!in_place(next) || next.size() < last.size() ||
                !std::equal(last.begin(), last.end(), next.begin()))
                break;
            last = next;
            ++count;
        }
        attend_rows(thread, layer, group, unit, split, first, count,
                    out + first * queries_per_kv());
        first += count;
    }
}

void Forward::attend_rows(int thread,
                          int layer,
                          const RowGroup& group,
                          const AttentionUnit& unit,
                          int split,
                          int first,
                          int count,
                          float* const* out) {
    const RowSet& set = group.sets[static_cast<std::size_t>(unit.set)];
    Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
    constexpr int kPages = kSplit / kKvPageSlots;
    const std::uint8_t* keys[kPages] = {};
    const std::uint8_t* values[kPages] = {};
    const float* queries[kAttentionQueriesMax];
    int counts[kAttentionQueriesMax];
    for (int r = 0; r < count; ++r) {
        const int a = set.first + first + r;
        const Row& row = rows_[static_cast<std::size_t>(group.rows[static_cast<std::size_t>(a)])];
        for (int i = 0; i < queries_per_kv(); ++i) {
            const int head = unit.head * queries_per_kv() + i;
            queries[r * queries_per_kv() + i] =
                q_rows_[static_cast<std::size_t>(a)] + head * config_.head_dim;
            counts[r * queries_per_kv() + i] =
                std::clamp(row.position + 1 - split * kSplit, 0, kSplit);
        }
    }
    // The last row of a run sees the furthest.
    const int longest = group.rows[static_cast<std::size_t>(set.first + first + count - 1)];
    const Row& row = rows_[static_cast<std::size_t>(longest)];
    const std::span<const std::int32_t> pages = pages_.pages(longest);
    for (int b = split * kPages;
         b < std::min<int>((split + 1) * kPages, static_cast<int>(pages.size())); ++b) {
        const int at = b - split * kPages;
        if (pages[static_cast<std::size_t>(b)] != kGatherPage) {
            const KvPageView page =
                kv_.page(layer - first_layer_, pages[static_cast<std::size_t>(b)], unit.head);
            keys[at] = page.keys;
            values[at] = page.values;
            continue;
        }
        std::uint8_t* base =
            scratch.gathered.data() + 2 * static_cast<std::size_t>(at) * kv_.half_page_bytes();
        kv_.gather(layer - first_layer_, unit.head, row, b, {base, base + kv_.half_page_bytes()});
        keys[at] = base;
        values[at] = base + kv_.half_page_bytes();
    }
    kernels_.attend({kv_.type(), config_.head_dim, count * queries_per_kv(), queries, counts, keys,
                     values, scratch.scores.data(), out});
}

// ---- head and yardstick -----------------------------------------------------------------------

void Forward::head(const float* hidden, int rows, float* logits) {
    for (int r = 0; r < rows; ++r) {
        logits_rows_[static_cast<std::size_t>(r)] =
            logits + static_cast<std::ptrdiff_t>(r) * config_.vocab_size;
    }
    auto work = [&](int thread) {
        const ActivationSet& x =
            pack_rows(thread, rows, config_.dim, type_bit(weights_.head()), [&](int r, float* to) {
                kernels_.rms_norm(hidden + static_cast<std::ptrdiff_t>(r) * config_.dim,
                                  weights_.output_norm().data(), config_.dim, config_.norm_epsilon,
                                  to);
            });
        multiply(thread, weights_.head(), x, logits_rows_.data(), false);
    };
    team_.run(work);
}

double Forward::gemm_only_seconds(int rows) {
    const auto inputs = [&](int cols) {
        ActivationSet set;
        std::vector<float> row(static_cast<std::size_t>(cols));
        for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(c % 7) - 3.0f;
        for (unsigned type = 0; type < 3; ++type) {
            if (shared_.by_type[type].capacity() == 0) continue;
            set.by_type[type] = Activations(rows, cols);
            set.by_type[type].shape(static_cast<ActivationType>(type), rows, cols);
            for (int r = 0; r < rows; ++r)
                kernels_.pack_row(row.data(), cols, set.by_type[type], r);
        }
        return set;
    };
    const ActivationSet x = inputs(config_.dim);
    const ActivationSet mixed = inputs(config_.q_dim());
    const ActivationSet h = inputs(config_.ffn_dim);
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
