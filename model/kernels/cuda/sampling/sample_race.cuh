// The kernels of the race: fold, race, and the token that won.
//
// As on the CPU (row_kernels.inc): a group's largest logit and its first arrival bound the scores
// of its 16 tokens; the group with a tile's highest bound is scored exactly, and then only groups
// whose bound reaches the best score of the chunk so far. Nothing is approximated, so it does not
// matter which were skipped. For sample.cu.
#pragma once

#include "model/kernels/cuda/sampling/sample_job.cuh"

namespace paceline::cuda::draw {

/// Writes a tile's and a chunk's best, of a key per thread (tile) and per chunk.
PACE_DEVICE void report_tile(const DrawJob& job, const RowView& view, Key tile_best) {
    if (lane() % kHalf == 0) {
        const int tile = kChunkTiles * block_x() + thread_index() / kHalf;
        job.tile_best[view.index * job.chunks * kChunkTiles + tile] = tile_best;
    }
}

/// The largest logit of each group, and the tokens that have those of tiles and chunks.
PACE_KERNEL void fold_rows(DrawJob job) {
    wait_for_previous();
    let_next_start();
    const RowView view = row_view(job, block_y());
    const int group = kChunkThreads * block_x() + thread_index();
    float members[noise::kMembers];
    view.load_group(group, members);
    float largest = minus_infinity();
    int token = 0;
#pragma unroll
    for (int member = 0; member < noise::kMembers; ++member) {
        if (members[member] > largest) {  // false for NaN: it is passed over
            largest = members[member];
            token = token_of_member(group, member);
        }
    }
    job.group_max[view.index * job.chunks * kChunkThreads + group] = largest;
    const Key own = largest > minus_infinity() ? rank_key(largest, token) : 0;
    const Key tile_best = largest_of_lanes(own, kHalf);
    report_tile(job, view, tile_best);
    const Key best = largest_of_block(tile_best, shared_memory<Key>(0));
    if (thread_index() == 0) job.chunk_top[view.index * job.chunks + block_x()] = best;
}

/// What a draw needs: DrawArgs of the row kernels.
struct Race {
    RowView view;
    NoiseKey noise;
    float max_logit;
    float logit_min;
    std::int32_t last_id;

    PACE_DEVICE float z(float logit) const {
        return (logit - max_logit) * view.row.inverse_temperature;
    }
    /// No member of the group scores above this; -infinity if none is kept.
    PACE_DEVICE float bound(float group_max, float race) const {
        const float at = z(group_max);
        if (!(group_max >= logit_min && at >= view.row.z_min)) return minus_infinity();
        return at + (noise::kBoundSlack - fixed_log(race));
    }
    /// z + gumbel of a member, 0 if it is not kept.
    PACE_DEVICE Key score(int group, int member, float race) const {
        const int token = token_of_member(group, member);
        const float logit = view.logit(token);
        const float at = z(logit);
        const bool kept =
            at >= view.row.z_min && (logit > logit_min || (logit == logit_min && token <= last_id));
        if (!kept) return 0;
        const float score = at + gumbel_of_member(group, member, race, noise);
        return score > minus_infinity() ? rank_key(score, token) : 0;
    }
};

/// `top` is the row's largest logit, and there is one.
PACE_DEVICE Race make_race(const DrawJob& job, const RowView& view, Key top) {
    Race race;
    race.view = view;
    race.noise = {static_cast<std::uint32_t>(view.row.seed),
                  static_cast<std::uint32_t>(view.row.seed >> 32),
                  static_cast<std::uint32_t>(view.row.position)};
    race.max_logit = score_of(top);
    const Key cut = job.cut == nullptr ? 0 : job.cut[view.index];
    race.logit_min = score_of(cut);
    race.last_id = cut == 0 ? 0x7FFFFFFF : token_of(cut);
    return race;
}

/// The winner of each chunk, and some kept token of each tile, a good one.
PACE_KERNEL void race_rows(DrawJob job) {
    wait_for_previous();
    let_next_start();
    Key* warps = shared_memory<Key>(0);
    const RowView view = row_view(job, block_y());
    if (view.greedy) return;
    const Key top = top_of_row(job, view, warps);
    if (top == 0) {
        report_tile(job, view, 0);
        if (thread_index() == 0) job.chunk_best[view.index * job.chunks + block_x()] = 0;
        return;
    }
    const Race race = make_race(job, view, top);
    const int group = kChunkThreads * block_x() + thread_index();
    const int first_group = group - group % kHalf;
    const int member = lane() % kHalf;  // when the half scores a group
    const float own_race = race_of_group(group, race.noise);
    const float bound =
        race.bound(job.group_max[view.index * job.chunks * kChunkThreads + group], own_race);
    bool open = bound > minus_infinity();

    Key block_best = 0;
    Key best = 0;
    for (bool first = true;; first = false) {
        // At first the highest bound of each tile, then whatever reaches the best score.
        const Key highest = first ? largest_of_lanes(open ? rank_key(bound, group) : 0, kHalf) : 0;
        const Key lead = larger(block_best, best);
        const bool wanted = first ? token_of(highest) == group : open && bound >= score_of(lead);
        const unsigned votes = ballot(wanted);
        if (!first && votes == 0) break;
        const std::uint32_t mine = half_of(votes);
        const int column = mine == 0 ? 0 : lowest_one(mine);
        const float arrival = shuffle(own_race, (lane() & kHalf) + column);
        const Key key = mine == 0 ? 0 : race.score(first_group + column, member, arrival);
        best = larger(best, largest_of_lanes(key, kHalf));
        if (mine != 0 && member == column) open = false;
        if (first) block_best = largest_of_block(best, warps);
    }
    report_tile(job, view, best);
    best = largest_of_block(best, warps);
    if (thread_index() == 0) job.chunk_best[view.index * job.chunks + block_x()] = best;
}

/// The best key of the row, a greedy one or one with noise, for a block of any size.
PACE_DEVICE Key winner_of_row(const DrawJob& job, const RowView& view, Key* warps) {
    const Key* of_chunks = (view.greedy ? job.chunk_top : job.chunk_best) + view.index * job.chunks;
    Key best = 0;
    for (int i = thread_index(); i < view.chunks(); i += block_size())
        best = larger(best, of_chunks[i]);
    return largest_of_block(best, warps);
}

/// What the caller calls a token of the row.
PACE_DEVICE std::int32_t name_of(const DrawJob& job, const RowView& view, std::int32_t token) {
    const std::int32_t* names = job.input.list.tokens;
    return token >= 0 && names != nullptr && view.greedy ? names[token] : token;
}

PACE_KERNEL void finish_draw(DrawJob job) {
    wait_for_previous();
    let_next_start();
    const RowView view = row_view(job, block_x());
    const Key best = winner_of_row(job, view, shared_memory<Key>(0));
    if (thread_index() == 0) job.tokens[view.index] = name_of(job, view, token_of(best));
}

}  // namespace paceline::cuda::draw
