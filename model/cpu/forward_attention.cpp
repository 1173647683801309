// The attention sub-layer of Forward.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/cpu/forward.hpp"
#include "model/cpu/forward_scratch.hpp"

namespace paceline {

void Forward::attention(int thread, int layer, const RowGroup& group) {
    const CpuLayer& w = weights_.layer(layer);
    const int rows = static_cast<int>(group.rows.size());
    const PackedInputs x = pack_rows(
        thread, rows, config_.dim, type_bit(w.q) | type_bit(w.k) | type_bit(w.v),
        [&](int r, Columns columns, float* out) {
            norm_columns(group.residual[static_cast<std::size_t>(r)], w.attn_norm, columns, out);
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
    const PackedInputs mixed = pack_rows(
        thread, rows, config_.q_dim(), type_bit(w.attn_out),
        [&](int r, Columns columns, float* out) { gather_heads(thread, group, r, columns, out); });
    multiply(thread, w.attn_out, mixed, group.residual.data(), true);
}

/// The attention output of a row, for the given columns: where it was cut by splits, the splits of
/// every head that has a column there are merged first.
void Forward::gather_heads(int thread, const RowGroup& group, int r, Columns columns, float* out) {
    if (!group.by_split) {
        std::memcpy(
            out + columns.first,
            mixed_.data() + static_cast<std::ptrdiff_t>(r) * config_.q_dim() + columns.first,
            static_cast<std::size_t>(columns.last - columns.first) * sizeof(float));
        return;
    }
    const auto row = static_cast<std::size_t>(group.rows[static_cast<std::size_t>(r)]);
    const int splits = rows_[row].position / kSplit + 1;
    float* running = scratch_[static_cast<std::size_t>(thread)]->running.data();
    const int head_dim = config_.head_dim;
    for (int head = columns.first / head_dim; head * head_dim < columns.last; ++head) {
        if (splits == 1) {  // what most rows have; attend_unit() takes the same way
            kernels_.finish(part(r, head, 0), head_dim, out + head * head_dim);
            continue;
        }
        std::fill_n(running, head_dim + 2, 0.0f);
        running[head_dim] = -std::numeric_limits<float>::infinity();
        for (int split = 0; split < splits; ++split) {
            kernels_.merge(running, part(r, head, split), head_dim);
        }
        kernels_.finish(running, head_dim, out + head * head_dim);
    }
}

void Forward::rotate_head(float* head,
                          const float* norm,
                          const float* cosines,
                          const float* sines) const {
    if (norm != nullptr) {
        const float scale = kernels_.rms_scale(head, config_.head_dim, config_.norm_epsilon);
        kernels_.scale_by(head, norm, scale, config_.head_dim, head);
    }
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
                          offset_of(row.slot));
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
    const auto result = [&](int i) {
        return mixed_.data() + static_cast<std::ptrdiff_t>(row_of(i)) * config_.q_dim() +
               head_of(i) * config_.head_dim;
    };
    for (int split = 0; split <= set.last_position / kSplit; ++split) {
        attend_split(thread, layer, group, unit, split, out);
        for (int i = 0; i < queries; ++i) {
            const auto row =
                static_cast<std::size_t>(group.rows[static_cast<std::size_t>(row_of(i))]);
            const int last_split = rows_[row].position / kSplit;
            float* running = scratch.running.data() + i * part_stride();
            if (split > last_split) continue;
            if (last_split > 0) kernels_.merge(running, out[i], config_.head_dim);
            // One split needs no merging: gather_heads() takes the same way, for equal bits.
            if (split == last_split)
                kernels_.finish(last_split > 0 ? running : out[i], config_.head_dim, result(i));
        }
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

}  // namespace paceline
