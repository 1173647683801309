// The kernels of candidates: which tokens may be among them, and the list itself.
//
// Some `count` tokens of a row are known to score at least so much: the best of its chunks, or of
// its tiles. list_rivals lists, chunk by chunk, whatever reaches the lowest of these, and with
// noise whatever counts in log_prob: little more than what is asked for. finish_candidates takes
// the best of the lists and adds up the probabilities in the order in which the CPU adds them,
// which is that of the lists: a float sum with the same bits. For sample.cu.
#pragma once

#include "model/kernels/cuda/sampling/sample_race.cuh"

namespace paceline::cuda::draw {

inline constexpr int kFinishThreads = 256;
inline constexpr int kWindow = 2048;    // rivals that are in shared memory at once
inline constexpr float kMargin = 5.0f;  // kRivalMargin of candidates.hpp

/// Shared memory of list_rivals.
struct RivalShared {
    Key keys[kChunkTokens];  // [tile][column][member] of the groups that were scored, 0: no rival
    Key warps[kChunkThreads / 32];
    Key witnesses[kChunkThreads];
    Key lowest;
    int counts[kChunkTiles];
};

/// The lowest key that is listed, for the whole block.
PACE_DEVICE Key lowest_rival(const DrawJob& job, const RowView& view, RivalShared& shared) {
    const int thread = thread_index();
    const bool by_chunks = view.chunks() >= job.candidates;
    const int count = by_chunks ? view.chunks() : view.tiles();
    const Key* of_chunks = view.greedy ? job.chunk_top : job.chunk_best;
    const Key* from = by_chunks ? of_chunks + view.index * job.chunks
                                : job.tile_best + view.index * job.chunks * kChunkTiles;
    // Fewer chunks than candidates have at most 15 * 8 tiles: a thread for each.
    const Key own = thread < count ? from[thread] : 0;
    shared.witnesses[thread] = own;
    if (thread == 0) shared.lowest = 0;
    sync_block();
    int rank = 0;
    for (int i = 0; i < count; ++i) {
        const Key other = shared.witnesses[i];
        if (other > own || (other == own && i < thread)) ++rank;
    }
    if (thread < count && rank == job.candidates - 1) shared.lowest = own;
    sync_block();
    return shared.lowest;
}

/// Writes the part of log_prob's sum that a greedy row's group has.
PACE_DEVICE void soften_group(const DrawJob& job, const RowView& view, float top, int group) {
    float sum = 0.0f;
    float members[noise::kMembers];
    view.load_group(group, members);
#pragma unroll
    for (const float logit : members) {
        sum += clamped_exp((logit > kFloatMax ? kFloatMax : logit) - top);
    }
    job.group_sum[view.index * job.chunks * kChunkThreads + group] = sum;
}

/// Lists the keys from `lowest` on in the order of their groups, and of the members in each.
/// score(column, member) is that of a half's tile; groups that are not `open` are not asked.
template <class Score>
PACE_DEVICE void write_rivals(const DrawJob& job,
                              const RowView& view,
                              RivalShared& shared,
                              bool open,
                              Key lowest,
                              Score score) {
    const int member = lane() % kHalf;
    const int half = thread_index() / kHalf;
    Key* keys = shared.keys + noise::kTileTokens * half;
    const std::uint32_t groups = half_of(ballot(open));
    int count = 0;
    for (std::uint32_t rest = groups; ballot(rest != 0) != 0; rest &= rest - 1) {
        const int column = rest == 0 ? 0 : lowest_one(rest);
        Key key = score(column, member, rest != 0);
        if (key < lowest) key = 0;
        if (rest != 0) keys[kHalf * column + member] = key;
        count += ones(half_of(ballot(key != 0)));
    }
    if (member == 0) shared.counts[half] = count;
    sync_block();

    int before = 0;
    for (int i = 0; i < half; ++i) before += shared.counts[i];
    const int row_chunk = view.index * job.chunks + block_x();
    Key* to = job.rivals + std::int64_t{row_chunk} * kChunkTokens;
    if (half == kChunkTiles - 1 && member == 0) job.rival_count[row_chunk] = before + count;
    for (std::uint32_t rest = groups; ballot(rest != 0) != 0; rest &= rest - 1) {
        const Key key = rest == 0 ? 0 : keys[kHalf * lowest_one(rest) + member];
        const std::uint32_t listed = half_of(ballot(key != 0));
        if (key != 0) to[before + ones(listed & ((1U << member) - 1))] = key;
        before += ones(listed);
    }
}

PACE_KERNEL void list_rivals(DrawJob job) {
    wait_for_previous();
    let_next_start();
    RivalShared& shared = *shared_memory<RivalShared>(0);
    const RowView view = row_view(job, block_y());
    const Key top = top_of_row(job, view, shared.warps);
    if (top == 0) {
        if (thread_index() == 0) job.rival_count[view.index * job.chunks + block_x()] = 0;
        return;
    }
    Key lowest = lowest_rival(job, view, shared);
    const int group = kChunkThreads * block_x() + thread_index();
    const int first_group = group - group % kHalf;
    const float group_max = job.group_max[view.index * job.chunks * kChunkThreads + group];
    if (view.greedy) {
        const float top_logit = score_of(top);
        soften_group(job, view, top_logit > kFloatMax ? kFloatMax : top_logit, group);
        const bool open = group_max > minus_infinity() && ordered(group_max) >= lowest >> 32;
        write_rivals(job, view, shared, open, lowest, [&](int column, int member, bool wanted) {
            if (!wanted) return Key{0};
            const int token = token_of_member(first_group + column, member);
            const float logit = view.logit(token);
            return logit > minus_infinity() ? rank_key(logit, token) : Key{0};
        });
        return;
    }
    const Race race = make_race(job, view, top);
    const float best = score_of(winner_of_row(job, view, shared.warps));
    const Key near_best = Key{ordered(best - kMargin)} << 32;
    if (near_best < lowest) lowest = near_best;
    const float arrival = race_of_group(group, race.noise);
    const float bound = race.bound(group_max, arrival);
    const bool open = bound > minus_infinity() && ordered(bound) >= lowest >> 32;
    write_rivals(job, view, shared, open, lowest, [&](int column, int member, bool wanted) {
        const float its_arrival = shuffle(arrival, (lane() & kHalf) + column);
        return wanted ? race.score(first_group + column, member, its_arrival) : Key{0};
    });
}

/// Shared memory of finish_candidates.
struct FinishShared {
    double columns[noise::kColumns];
    double total;
    Key warps[kFinishThreads / 32];
    Key best[kCandidatesMax];
    Key rivals[kWindow];
    float parts[kWindow];
    int counts[kChunksMax];       // of the chunks' lists
    int offsets[kChunksMax + 1];  // of them in that of the row
};

/// The sum of a greedy row's group sums: down each column of the tiles, then over the columns.
PACE_DEVICE float total_of_groups(const DrawJob& job, const RowView& view, FinishShared& shared) {
    const float* sums = job.group_sum + view.index * job.chunks * kChunkThreads;
    const int groups = view.tiles() * noise::kColumns;
    const int thread = thread_index();
    double sum = 0.0;
    for (int from = 0; from < groups; from += kWindow) {
        const int count = groups - from < kWindow ? groups - from : kWindow;
        for (int i = thread; i < count; i += kFinishThreads) shared.parts[i] = sums[from + i];
        sync_block();
        if (thread < noise::kColumns) {
            for (int i = thread; i < count; i += noise::kColumns)
                sum += static_cast<double>(shared.parts[i]);
        }
        sync_block();
    }
    if (thread < noise::kColumns) shared.columns[thread] = sum;
    sync_block();
    double total = 0.0;
    for (int column = 0; column < noise::kColumns; ++column) total += shared.columns[column];
    return static_cast<float>(total);
}

/// Where each chunk's list begins in the row's. Returns the length of that.
PACE_DEVICE int find_offsets(const DrawJob& job, const RowView& view, FinishShared& shared) {
    const int chunks = view.chunks();
    if (thread_index() < chunks)
        shared.counts[thread_index()] = job.rival_count[view.index * job.chunks + thread_index()];
    sync_block();
    for (int i = thread_index(); i <= chunks; i += kFinishThreads) {
        int before = 0;
        for (int chunk = 0; chunk < i; ++chunk) before += shared.counts[chunk];
        shared.offsets[i] = before;
    }
    sync_block();
    return shared.offsets[chunks];
}

/// Brings the row's rivals from `from` on into shared memory, as many as fit; returns how many.
PACE_DEVICE int load_window(const DrawJob& job,
                            const RowView& view,
                            FinishShared& shared,
                            int from) {
    const int chunks = view.chunks();
    const int left = shared.offsets[chunks] - from;
    const int count = left < kWindow ? left : kWindow;
    for (int chunk = warp(); chunk < chunks; chunk += kFinishThreads / 32) {
        const int begin = shared.offsets[chunk];
        const int end = shared.offsets[chunk + 1];
        const Key* list =
            job.rivals + (std::int64_t{view.index} * job.chunks + chunk) * kChunkTokens;
        for (int i = begin + lane(); i < end; i += 32) {
            if (i >= from && i < from + count) shared.rivals[i - from] = list[i - begin];
        }
    }
    sync_block();
    return count;
}

/// Improves `best` by the rivals in shared memory; returns how many of them there are.
PACE_DEVICE int keep_best(FinishShared& shared, int found, int rivals, int wanted) {
    const Key kept = thread_index() < found ? shared.best[thread_index()] : 0;
    Key before = ~Key{0};
    int count = 0;
    for (; count < wanted; ++count) {
        Key next = kept < before ? kept : 0;
        for (int i = thread_index(); i < rivals; i += kFinishThreads) {
            const Key key = shared.rivals[i];
            if (key < before) next = larger(next, key);
        }
        before = largest_of_block(next, shared.warps);
        if (before == 0) break;
        if (thread_index() == 0) shared.best[count] = before;
    }
    sync_block();
    return count;
}

/// Adds what the rivals in shared memory have of the sum of exp(score - top), one after another.
PACE_DEVICE void add_parts(FinishShared& shared, int rivals, float top, float& total) {
    for (int i = thread_index(); i < rivals; i += kFinishThreads) {
        const float score = score_of(shared.rivals[i]);
        shared.parts[i] = score >= top - kMargin ? fixed_exp(score - top) : 0.0f;
    }
    sync_block();
    if (thread_index() == 0) {
        for (int i = 0; i < rivals; ++i) total += shared.parts[i];
    }
}

PACE_DEVICE float not_above_zero(float x) {
    return 0.0f < x ? 0.0f : x;
}

PACE_KERNEL void finish_candidates(DrawJob job) {
    wait_for_previous();
    let_next_start();
    FinishShared& shared = *shared_memory<FinishShared>(0);
    const RowView view = row_view(job, block_x());
    const Key winner = winner_of_row(job, view, shared.warps);
    CandidateList& list = job.lists[view.index];
    const int thread = thread_index();
    int found = 0;
    float total = 0.0f;
    if (winner != 0) {
        const int rivals = find_offsets(job, view, shared);
        for (int from = 0; from < rivals; from += kWindow) {
            const int count = load_window(job, view, shared, from);
            found = keep_best(shared, found, count, job.candidates);
            if (!view.greedy) add_parts(shared, count, score_of(winner), total);
            sync_block();
        }
        if (view.greedy) total = total_of_groups(job, view, shared);
        if (thread == 0) shared.total = static_cast<double>(total);
        sync_block();
        total = static_cast<float>(shared.total);
    }
    if (thread == 0) list.count = found;
    if (thread >= kCandidatesMax) return;
    list.tokens[thread] = 0;
    list.scores[thread] = 0.0f;
    list.log_probs[thread] = 0.0f;
    if (thread >= found) return;
    const Key key = shared.best[thread];
    const float score = score_of(key);
    const float log_total = fixed_log(total);
    list.tokens[thread] = name_of(job, view, token_of(key));
    list.scores[thread] = score;
    if (view.greedy) {
        const float top = score_of(winner) > kFloatMax ? kFloatMax : score_of(winner);
        const float behind = (top < score ? top : score) - top;
        list.log_probs[thread] = not_above_zero(behind - log_total);
    } else {
        list.log_probs[thread] = not_above_zero(score - score_of(winner) - log_total);
    }
}

}  // namespace paceline::cuda::draw
