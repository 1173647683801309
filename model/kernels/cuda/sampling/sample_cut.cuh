// The kernels of top-k and top-p: weigh, and cut.
//
// Both filters ask for the same thing: the token with which weights, added in the order of the
// ranking, reach a need; for top-k each token weighs 1, for top-p exp(z) in units of 2^-30. Sums of
// integers do not depend on their order, so the cut is that of find_cutoff() exactly.
//
// weigh_rows: sums by bin (bin_of) for each chunk. cut_rows, a block for each row: finds the bin
// in which the need is met, gathers its tokens into shared memory if they are few enough, and
// closes in on the one; otherwise it reads the row again at each step. For sample.cu.
#pragma once

#include "model/kernels/cuda/sampling/sample_job.cuh"

namespace paceline::cuda::draw {

inline constexpr int kCutThreads = 512;
inline constexpr int kCutWarps = kCutThreads / 32;
inline constexpr int kParts = kCutWarps;  // of a range of keys, a warp sums each
inline constexpr int kGatherMax = 4096;

// Shared memory of weigh_rows: kBins x kChunkThreads sums, and the keys of the warps.
inline constexpr std::size_t kWeighWarps = sizeof(std::uint64_t) * kBins * kChunkThreads;
inline constexpr std::size_t kWeighShared = kWeighWarps + sizeof(Key) * 4;

// A thread's number of tokens and their weight in one word: 16 tokens weigh up to 2^34.
inline constexpr int kCountShift = 40;

PACE_KERNEL void weigh_rows(DrawJob job) {
    wait_for_previous();
    let_next_start();
    const RowView view = row_view(job, block_y());
    if (!has_cut(view.row)) return;
    auto* sums = shared_memory<std::uint64_t>(0);  // [kBins][kChunkThreads]
    const Key top = top_of_row(job, view, shared_memory<Key>(kWeighWarps));
    if (top == 0) return;
    const float max_logit = score_of(top);
    for (int bin = 0; bin < kBins; ++bin) sums[kChunkThreads * bin + thread_index()] = 0;
    const int group = kChunkThreads * block_x() + thread_index();
    float members[noise::kMembers];
    view.load_group(group, members);
#pragma unroll
    for (const float logit : members) {
        if (!(logit > minus_infinity())) continue;
        const float behind = max_logit - logit;
        const float z = (logit - max_logit) * view.row.inverse_temperature;
        sums[kChunkThreads * bin_of(behind) + thread_index()] +=
            (std::uint64_t{1} << kCountShift) + weight_of(z);
    }
    sync_block();

    static_assert(2 * kBins == kChunkThreads, "two threads add up a bin");
    const int bin = thread_index() / 2;
    std::uint64_t mass = 0;
    std::uint32_t count = 0;
    for (int i = 0; i < kChunkThreads / 2; ++i) {
        // Neighbours start at different places, for the sake of the memory banks.
        const int at = (2 * i + thread_index() % 2 + 2 * bin) % kChunkThreads;
        const std::uint64_t sum = sums[kChunkThreads * bin + at];
        mass += sum & ((std::uint64_t{1} << kCountShift) - 1);
        count += static_cast<std::uint32_t>(sum >> kCountShift);
    }
    mass += shuffle_xor_key(mass, 1);
    count += shuffle_xor(count, 1);
    if (thread_index() % 2 == 0) {
        const int at = (view.index * job.chunks + block_x()) * kBins + bin;
        job.bin_mass[at] = mass;
        job.bin_count[at] = count;
    }
}

/// Shared memory of cut_rows.
struct CutShared {
    Key gathered[kGatherMax];
    std::uint64_t sums[kParts][kCutThreads];
    std::uint64_t part_sums[kParts];
    std::uint64_t bin_mass[kBins];
    std::uint64_t bin_count[kBins];
    Key warps[kCutWarps];
    int warp_counts[kCutWarps];
};

enum class Weight { One, Mass };

/// A row on the way to its cut. All functions are called by the whole block.
struct Cutter {
    const DrawJob& job;
    const RowView& view;
    CutShared& shared;
    float max_logit;

    /// The range of keys that is looked at, and how many lie in `gathered`; -1: in the row.
    int bin;
    Key low;
    Key high;
    int gathered;

    PACE_DEVICE std::uint64_t weight(Key key, Weight kind) const {
        if (kind == Weight::One) return 1;
        return weight_of((score_of(key) - max_logit) * view.row.inverse_temperature);
    }

    /// Calls take(key) for this thread's share of the range, in the same order each time.
    template <class Take>
    PACE_DEVICE void each(Take take) const {
        if (gathered >= 0) {
            for (int i = thread_index(); i < gathered; i += kCutThreads) {
                const Key key = shared.gathered[i];
                if (key >= low && key <= high) take(key);
            }
            return;
        }
        const float* group_max = job.group_max + view.index * job.chunks * kChunkThreads;
        const int groups = view.tiles() * noise::kColumns;
        for (int group = thread_index(); group < groups; group += kCutThreads) {
            const float largest = group_max[group];
            if (!(largest > minus_infinity()) || bin_of(max_logit - largest) > bin) continue;
            float members[noise::kMembers];
            view.load_group(group, members);
            for (int member = 0; member < noise::kMembers; ++member) {
                const int token = token_of_member(group, member);
                const float logit = members[member];
                if (!(logit > minus_infinity()) || bin_of(max_logit - logit) != bin) continue;
                const Key key = rank_key(logit, token);
                if (key >= low && key <= high) take(key);
            }
        }
    }

    /// How many `mine` of lower threads are, and in `total` all of them.
    PACE_DEVICE int before_this_thread(int mine, int& total) const {
        int sum = mine;
        for (int step = 1; step < 32; step *= 2) {
            const int other = shuffle(sum, lane() >= step ? lane() - step : lane());
            if (lane() >= step) sum += other;
        }
        if (lane() == 31) shared.warp_counts[warp()] = sum;
        sync_block();
        int before = sum - mine;
        total = 0;
        for (int i = 0; i < kCutWarps; ++i) {
            if (i < warp()) before += shared.warp_counts[i];
            total += shared.warp_counts[i];
        }
        sync_block();
        return before;
    }

    /// Sums `sums[part]` into `part_sums[part]`, each by a warp.
    PACE_DEVICE void add_up_parts() const {
        sync_block();
        std::uint64_t sum = 0;
        for (int i = lane(); i < kCutThreads; i += 32) sum += shared.sums[warp()][i];
        for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor_key(sum, mask);
        if (lane() == 0) shared.part_sums[warp()] = sum;
        sync_block();
    }

    /// The weight of the range.
    PACE_DEVICE std::uint64_t mass() const {
        for (int part = 0; part < kParts; ++part) shared.sums[part][thread_index()] = 0;
        std::uint64_t own = 0;
        each([&](Key key) { own += weight(key, Weight::Mass); });
        shared.sums[0][thread_index()] = own;
        add_up_parts();
        const std::uint64_t sum = shared.part_sums[0];
        sync_block();
        return sum;
    }

    /// Moves the range's keys into shared memory if there is room. `mine` of them are this
    /// thread's.
    PACE_DEVICE void gather(int mine) {
        int total = 0;
        int at = before_this_thread(mine, total);
        if (total > kGatherMax) return;
        each([&](Key key) { shared.gathered[at++] = key; });
        gathered = total;
        sync_block();
    }

    /// The key of a bin with which the weights from above reach `need`; those of the bin do.
    PACE_DEVICE Key key_reaching(int in_bin, std::uint64_t need, Weight kind) {
        bin = in_bin;
        low = 0;
        high = ~Key{0};
        gathered = -1;
        for (;;) {
            Key last = ~Key{0};  // of the range
            Key first = 0;
            int mine = 0;
            each([&](Key key) {
                last = key < last ? key : last;
                first = larger(first, key);
                ++mine;
            });
            first = largest_of_block(first, shared.warps);
            last = ~largest_of_block(~last, shared.warps);
            if (first == last) return first;
            if (gathered < 0) gather(mine);

            int shift = 0;
            while (((first - last) >> shift) >= kParts) ++shift;
            for (int part = 0; part < kParts; ++part) shared.sums[part][thread_index()] = 0;
            each([&](Key key) {
                shared.sums[(first - key) >> shift][thread_index()] += weight(key, kind);
            });
            add_up_parts();
            int part = 0;
            while (shared.part_sums[part] < need) need -= shared.part_sums[part++];
            high = first - (Key(part) << shift);
            const Key width = (Key{1} << shift) - 1;
            low = high - last > width ? high - width : last;
        }
    }

    /// Adds up the bins of the chunks.
    PACE_DEVICE void add_up_bins() const {
        constexpr int kShares = kCutThreads / kBins;
        const int own = thread_index() % kBins;
        std::uint64_t mass_sum = 0;
        std::uint64_t count_sum = 0;
        for (int chunk = thread_index() / kBins; chunk < view.chunks(); chunk += kShares) {
            const int at = (view.index * job.chunks + chunk) * kBins + own;
            mass_sum += job.bin_mass[at];
            count_sum += job.bin_count[at];
        }
        shared.sums[0][thread_index()] = mass_sum;
        shared.sums[1][thread_index()] = count_sum;
        sync_block();
        if (thread_index() < kBins) {
            mass_sum = 0;
            count_sum = 0;
            for (int share = 0; share < kShares; ++share) {
                mass_sum += shared.sums[0][kBins * share + own];
                count_sum += shared.sums[1][kBins * share + own];
            }
            shared.bin_mass[own] = mass_sum;
            shared.bin_count[own] = count_sum;
        }
        sync_block();
    }

    /// The k-th token and its bin; 0 if there are not more than k.
    PACE_DEVICE Key cut_top_k(int k, int& at_bin) {
        std::uint64_t need = static_cast<std::uint64_t>(k);
        at_bin = 0;
        while (at_bin < kBins && shared.bin_count[at_bin] < need)
            need -= shared.bin_count[at_bin++];
        if (at_bin == kBins) return 0;
        return key_reaching(at_bin, need, Weight::One);
    }

    /// The cut of top-p among the tokens down to `last`, which is of `last_bin`; 0: all.
    PACE_DEVICE Key cut_top_p(float top_p, Key last, int last_bin) {
        std::uint64_t total = 0;
        for (int i = 0; i < last_bin; ++i) total += shared.bin_mass[i];
        if (last != 0) {
            bin = last_bin;
            low = last;
            high = ~Key{0};
            gathered = -1;
            total += mass();
        }
        // The product rounded up, between 1 and all of it.
        const double part = static_cast<double>(top_p) * static_cast<double>(total);
        auto need = static_cast<std::uint64_t>(part);
        if (static_cast<double>(need) < part) ++need;
        need = need < 1 ? 1 : need > total ? total : need;

        int at_bin = 0;
        while (at_bin < last_bin && shared.bin_mass[at_bin] < need)
            need -= shared.bin_mass[at_bin++];
        return key_reaching(at_bin, need, Weight::Mass);
    }
};

/// The last token that top-k and top-p keep, of each row.
PACE_KERNEL void cut_rows(DrawJob job) {
    wait_for_previous();
    let_next_start();
    CutShared& shared = *shared_memory<CutShared>(0);
    const RowView view = row_view(job, block_x());
    const Key top = has_cut(view.row) ? top_of_row(job, view, shared.warps) : 0;
    Key cut = 0;
    if (top != 0) {
        Cutter cutter{job, view, shared, score_of(top), 0, 0, 0, -1};
        cutter.add_up_bins();
        int last_bin = kBins;
        if (view.row.top_k > 0) cut = cutter.cut_top_k(view.row.top_k, last_bin);
        if (view.row.top_p < 1.0f) cut = cutter.cut_top_p(view.row.top_p, cut, last_bin);
    }
    if (thread_index() == 0) job.cut[view.index] = cut;
}

}  // namespace paceline::cuda::draw
