#include "model/cuda/cuda_forward.hpp"

#include <algorithm>
#include <numeric>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/gemm/gemm_blas.hpp"

namespace paceline {
namespace {

using cuda::NextInput;

}  // namespace

CudaForward::CudaForward(const ModelConfig& config,
                         const CudaOptions& options,
                         std::span<const std::unique_ptr<CudaRank>> ranks)
    : config_{config},
      ranks_{ranks},
      first_{*ranks.front()},
      stream_{first_.stream},
      at_{first_.at},
      first_layer_{options.first_layer},
      last_layer_{options.last_layer},
      skipped_{options.skipped},
      kv_layers_{options.first_layer, options.last_layer, options.skipped},
      limits_{limits_of(config, options)},
      graphs_on_{options.graphs},
      rope_{config.rope} {}

std::vector<CudaForward::Stretch> CudaForward::stretches_of(std::span<const Row> rows) const {
    std::vector<Stretch> stretches;
    std::vector<int> active;
    for (int sublayer = 2 * first_layer_; sublayer < 2 * last_layer_; ++sublayer) {
        if (skipped_.skips(sublayer)) {
            if (!stretches.empty() && stretches.back().last == sublayer) ++stretches.back().last;
            continue;
        }
        active.clear();
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (runs(rows[r], sublayer)) active.push_back(static_cast<int>(r));
        }
        if (active.empty()) continue;
        if (!stretches.empty() && stretches.back().last == sublayer &&
            stretches.back().rows == active) {
            ++stretches.back().last;
        } else {
            stretches.push_back({sublayer, sublayer + 1, active});
        }
    }
    return stretches;
}

std::size_t CudaForward::batch_rows(std::span<const Row> rows) const {
    const std::size_t most = std::min(rows.size(), static_cast<std::size_t>(limits_.rows));
    std::int64_t splits = 0;
    for (std::size_t r = 0; r < most; ++r) {
        splits += cuda::attention_splits(rows[r].position + 1);
        if (splits > limits_.splits) return r;
    }
    return most;
}

std::vector<int> CudaForward::all_of(std::size_t count) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

void CudaForward::send(std::span<const Row> rows, ActiveRows active, int heads, int kv_heads) {
    const int count = static_cast<int>(active.size());
    rows_now_ = grid_rows(count);
    const int queries_per_kv = heads / kv_heads;
    unit_rows_now_ = cuda::attention_unit_rows(count, queries_per_kv);
    attention_tiles_now_ = cuda::attention_tiles(unit_rows_now_, queries_per_kv);
    tables_.write(rows, active, unit_rows_now_);
    for (const std::unique_ptr<CudaRank>& rank : ranks_) tables_.send(rank->index(), rank->stream);
    one_split_now_ = tables_.header().merges == 0;
}

bool CudaWatch::all_stale() const {
    const CancelToken::RowWatch* watch = cancel == nullptr ? nullptr : cancel->rows();
    if (watch == nullptr || rows == 0) return false;
    for (std::size_t r = 0; r < rows; ++r) {
        if (!watch->stale(first_row + r)) return false;
    }
    return true;
}

RunOutcome CudaForward::run(std::span<const Row> rows,
                            const CudaStates& states,
                            const CudaDraws& draws,
                            const CudaWatch& watch) {
    const bool stale = watch.all_stale();
    if (watch.cancelled()) return RunOutcome::Cancelled;
    if (stale) return RunOutcome::Done;
    const auto begins = [](const Row& row) { return row.first == 0; };
    bool embeds = std::any_of(rows.begin(), rows.end(), begins);
    if (!std::all_of(rows.begin(), rows.end(), begins)) give_hidden(states.in);
    const std::vector<Stretch> stretches = stretches_of(rows);
    // Usually the first stretch has all rows and embeds them itself.
    const bool all_begin = !stretches.empty() && stretches.front().rows.size() == rows.size();
    if (embeds && (!all_begin || beginnings_are_kept(rows))) {
        send(rows, all_of(rows.size()), config_.heads, config_.kv_heads);
        join();
        fork();
        embed();
        finish_all();  // the tables are written anew
        embeds = false;
    }
    keep_beginnings(rows);
    // Now, so that no copy stands between the layers and the head.
    const std::vector<int> asked = draws.asked();
    if (!asked.empty()) send_draws(draws, head_group(asked, 0));
    bool runs = false;
    for (const Stretch& stretch : stretches) {
        const Waited waited = runs ? wait(watch) : Waited::Done;  // the tables are written anew
        if (waited == Waited::Dead) return RunOutcome::Done;
        if (waited == Waited::Cancelled || watch.cancelled()) {
            finish_all();  // copies to the caller's memory may be on their way
            return RunOutcome::Cancelled;
        }
        send(rows, stretch.rows, config_.heads, config_.kv_heads);
        runs = true;
        if (wants_stacks(rows, stretch)) {
            run_and_keep(rows, stretch, embeds, watch.cancel);
            if (watch.cancelled()) {
                finish_all();
                return RunOutcome::Cancelled;
            }
        } else {
            replay(stretch, embeds);
        }
        embeds = false;
    }
    const RunOutcome outcome = finish_run(states.out, draws, watch);
    if (outcome == RunOutcome::Done) keep_skipped(rows);
    return outcome;
}

/// The rows of one head, from `first` on.
std::span<const int> CudaForward::head_group(std::span<const int> asked, std::size_t first) const {
    const auto most = static_cast<std::size_t>(head_rows());
    return asked.subspan(first, std::min(most, asked.size() - first));
}

/// What comes after the layers goes into the stream before they are done: one wait for all of it,
/// and one more for each further head_rows() rows that something is drawn after.
RunOutcome CudaForward::finish_run(HiddenRows out, const CudaDraws& draws, const CudaWatch& watch) {
    join();
    send_out(out);
    const std::vector<int> asked = draws.asked();
    std::size_t first = 0;
    do {
        const std::span<const int> group = head_group(asked, first);
        if (first > 0) send_draws(draws, group);
        if (!group.empty()) launch_draws(draws, group);
        const Waited waited = wait(watch);
        if (waited != Waited::Done)
            return waited == Waited::Dead ? RunOutcome::Done : RunOutcome::Cancelled;
        take_drawn(draws, group);
        first += group.size();
    } while (first < asked.size());
    take_out(out);
    return RunOutcome::Done;
}

/// Each device those tokens whose rows it has, for all devices.
void CudaForward::embed() {
    on_each([&](CudaRank& rank) {
        const TablePlaces tables = tables_.on(rank.index());
        cuda::EmbedArgs args{rank.weights->embedding(), tables.tokens, tables.rows, rank.at.hidden};
        if (args.table.outputs == 0) return;
        args.first_token = rank.weights->first_token();
        for (const std::unique_ptr<CudaRank>& other : ranks_) {
            if (other.get() != &rank) args.other_hidden[args.others++] = other->at.hidden;
        }
        cuda::launch_embed(rank.stream, args, rows_now_);
    });
}

void CudaForward::replay(const Stretch& stretch, bool embeds) {
    const bool whole = stretch.first == 2 * first_layer_ && stretch.last == 2 * last_layer_;
    const bool recordable = graphs_on_ && whole && rows_now_ <= cuda::kBatchRows;
    join();  // the tables are there
    if (!recordable || embeds != (stretch.first == 0)) return launch_stretch(stretch, embeds);
    Recorded& batch = recorded_[{rows_now_, one_split_now_, attention_tiles_now_}];
    // A kernel's first launch loads its code, which a recording may not: so the second is recorded.
    if (!batch.ran) {
        batch.ran = true;
        return launch_stretch(stretch, embeds);
    }
    if (batch.graph.empty()) batch.graph = stream_.record([&] { launch_stretch(stretch, embeds); });
    batch.graph.launch(stream_);
}

void CudaForward::launch_stretch(const Stretch& stretch, bool embeds) {
    fork();
    if (embeds) {
        embed();
        barrier();
    }
    on_each([&](CudaRank& rank) {
        const TablePlaces tables = tables_.on(rank.index());
        launch_ready(rank, tables.row_index, tables.rows, input_of_sublayer(rank, stretch.first),
                     rows_now_);
    });
    const auto next_after = [&](int sublayer) {
        int next = sublayer + 1;
        while (next < 2 * last_layer_ && skipped_.skips(next)) ++next;
        return next;
    };
    for (int sublayer = stretch.first; sublayer < stretch.last;) {
        const int next = next_after(sublayer);
        gathers_now_ = next >= stretch.last;
        // After the last one it is not needed; it costs less than another kind of finish.
        launch_sublayer(sublayer, next < 2 * last_layer_ ? next : sublayer);
        sublayer = next;
    }
    join();
}

/// `following` is the sub-layer whose input is made.
void CudaForward::launch_sublayer(int sublayer, int following) {
    const int layer = sublayer / 2;
    const auto next = [&](const CudaRank& rank) {
        NextInput input = input_of_sublayer(rank, following);
        if (gathers_now_) input.others = 0;  // a stretch begins with rows that are made ready anew
        return input;
    };
    barrier();
    if (sublayer % 2 == 0) {
        on_each([&](CudaRank& rank) {
            launch_mix(rank, rank.weights->layer(layer).attention, rank.cache,
                       kv_layers_.place(layer - first_layer_));
        });
        barrier();
        on_each([&](CudaRank& rank) {
            launch_residual(rank, rank.weights->layer(layer).attention.out, rank.at.mixed,
                            next(rank));
        });
        return;
    }
    on_each([&](CudaRank& rank) { launch_gates(rank, rank.weights->layer(layer)); });
    barrier();
    on_each([&](CudaRank& rank) {
        launch_residual(rank, rank.weights->layer(layer).down, rank.at.gated, next(rank));
    });
}

/// Waits for the stream. A batch that is no longer needed is stopped: a cancelled one, and one all
/// of whose rows have died. Single rows go on with the others: a recording has its rows by number,
/// and what a row costs beside the weights is little.
CudaForward::Waited CudaForward::wait(const CudaWatch& watch) {
    Waited outcome = Waited::Done;
    while (watch.cancel != nullptr && !stream_.idle()) {
        if (outcome == Waited::Done) {
            if (watch.all_stale()) outcome = Waited::Dead;
            if (watch.cancelled()) outcome = Waited::Cancelled;
        }
        if (outcome == Waited::Done) continue;
        // Again and again: the tables may be on their way still, and write over it.
        on_each([&](CudaRank& rank) {
            tables_.stop(rank.index(), rank.urgent);
            stop_head(rank);
        });
        if (ranks_.size() > 1) cuda::set_device(first_.device);
    }
    stream_.finish();
    return outcome;
}

RunOutcome CudaForward::run_adapter(std::span<const Row> rows,
                                    const CudaStates& states,
                                    const CancelToken* cancel) {
    if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
    const CudaAttention& adapter = first_.weights->adapter();
    give_hidden(states.in);
    // Those of the whole adapter: a device may have none of its heads.
    send(rows, all_of(rows.size()), adapter.all_heads, adapter.all_kv_heads);
    const auto input = [&](const CudaRank& rank) {
        const CudaAttention& own = rank.weights->adapter();
        return input_for(rank, own.norm, own.qkv.front());
    };
    gathers_now_ = true;
    join();
    fork();
    on_each([&](CudaRank& rank) {
        const TablePlaces tables = tables_.on(rank.index());
        launch_ready(rank, tables.row_index, tables.rows, input(rank), rows_now_);
    });
    barrier();
    on_each(
        [&](CudaRank& rank) { launch_mix(rank, rank.weights->adapter(), rank.adapter_cache, 0); });
    barrier();
    on_each([&](CudaRank& rank) {
        NextInput next = input(rank);
        next.others = 0;  // nothing follows
        launch_residual(rank, rank.weights->adapter().out, rank.at.mixed, next);
    });
    return finish_run(states.out, {}, {.cancel = cancel});
}

}  // namespace paceline
