#include "model/cuda/cuda_forward.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "model/cuda/cuda_stacks.hpp"
#include "model/cuda/cuda_workspace.hpp"

namespace paceline {
namespace {

using cuda::NextInput;

/// 0, 1, .. count - 1.
std::vector<int> all_of(std::size_t count) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

}  // namespace

CudaForward::CudaForward(const ModelConfig& config,
                         const CudaOptions& options,
                         CudaGroup::Ranks ranks)
    : config_{config},
      segment_{options.first_layer,
               options.last_layer,
               options.skipped,
               {options.first_layer, options.last_layer, options.skipped}},
      limits_{cuda_limits(config, options)},
      rope_{config.rope},
      group_{ranks},
      launches_{config, group_, tables_, rope_.pairs()},
      heads_{config, group_, launches_, head_rows_of(limits_)},
      states_{group_, config.dim, limits_.rows},
      pages_{group_, states_.pinned()} {
    if (options.eagle) eagle_.emplace(*options.eagle, config, group_, launches_, limits_.rows);
    if (options.graphs) recorded_.emplace();
}

bool CudaForward::make_rank(CudaRank& rank, const CudaOptions& options) {
    const bool splits_gates = rank.weights->splits_gates();
    CudaWorkspace nowhere;
    const std::uint64_t bytes =
        place_workspace(config_, options, rank.part, splits_gates, nullptr, nowhere);
    if (!cuda::DeviceMemory::allocate(bytes, rank.memory) || !tables_.add_device(limits_) ||
        !RotationTable::make(rope_, cuda_context(config_, options), rank.stream, rank.angles))
        return false;
    // What is after the last input of a row stays zero.
    rank.stream.fill(rank.memory.data(), 0, bytes);
    rank.stream.finish();
    place_workspace(config_, options, rank.part, splits_gates, rank.memory.data(), rank.at);
    return true;
}

CudaForward::Made CudaForward::make(const CudaOptions& options) {
    if (!states_.make(states_staging_bytes(config_, limits_)) || !heads_.make() ||
        !BatchTables::make(limits_, tables_) || (eagle_ && !eagle_->make(*options.eagle)))
        return {};
    Made made{.pinned = true};
    group_.on_each([&](CudaRank& rank) {
        if (made.lacks == nullptr && !make_rank(rank, options)) made.lacks = &rank;
    });
    if (made.lacks != nullptr) return made;
    CudaRank& first = group_.first();
    if (first.through_host) {
        if (!CudaExchange::make(config_, options, exchange_)) return {};
        group_.use(exchange_);
    }
    if (!options.exact)
        launches_.use_blas(std::make_unique<cuda::Blas>(first.stream, first.at.blas));
    return made;
}

int CudaForward::head_rows() const {
    return head_rows_of(limits_);
}

std::vector<CudaForward::Stretch> CudaForward::stretches_of(std::span<const Row> rows) const {
    std::vector<Stretch> stretches;
    std::vector<int> active;
    for (int sublayer = 2 * segment_.first; sublayer < 2 * segment_.last; ++sublayer) {
        if (segment_.skipped.skips(sublayer)) {
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

void CudaForward::send(std::span<const Row> rows, ActiveRows active, int heads, int kv_heads) {
    const int count = static_cast<int>(active.size());
    CudaBatch& now = launches_.now();
    now.rows = grid_rows(count);
    const int queries_per_kv = heads / kv_heads;
    now.unit_rows = cuda::attention_unit_rows(count, queries_per_kv);
    now.attention_tiles = cuda::attention_tiles(now.unit_rows, queries_per_kv);
    tables_.write(rows, active, now.unit_rows);
    for (const std::unique_ptr<CudaRank>& rank : group_.ranks())
        tables_.send(rank->index(), rank->stream);
    now.one_split = tables_.header().merges == 0;
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
    const auto dim = static_cast<std::size_t>(config_.dim);
    const bool stale = watch.all_stale();
    if (watch.cancelled()) return RunOutcome::Cancelled;
    if (stale) return RunOutcome::Done;
    bool embeds = std::any_of(rows.begin(), rows.end(), begins_with_token);
    if (!std::all_of(rows.begin(), rows.end(), begins_with_token)) states_.give(states.in);
    const std::vector<Stretch> stretches = stretches_of(rows);
    // Usually the first stretch has all rows and embeds them itself.
    const bool all_begin = !stretches.empty() && stretches.front().rows.size() == rows.size();
    if (embeds && (!all_begin || beginnings_are_kept(rows))) {
        send(rows, all_of(rows.size()), config_.heads, config_.kv_heads);
        group_.join();
        group_.fork();
        embed();
        group_.finish();  // the tables are written anew
        embeds = false;
    }
    keep_beginnings(rows, dim, group_.first());
    // Now, so that no copy stands between the layers and the head.
    const std::vector<int> asked = draws.asked();
    if (!asked.empty()) heads_.send_draws(draws, head_group(asked, 0));
    bool runs = false;
    for (const Stretch& stretch : stretches) {
        const Waited waited = runs ? wait(watch) : Waited::Done;  // the tables are written anew
        if (waited == Waited::Dead) return RunOutcome::Done;
        if (waited == Waited::Cancelled || watch.cancelled()) {
            group_.finish();  // copies to the caller's memory may be on their way
            return RunOutcome::Cancelled;
        }
        send(rows, stretch.rows, config_.heads, config_.kv_heads);
        runs = true;
        if (wants_stacks(rows, stretch.rows)) {
            run_and_keep(rows, stretch, embeds, watch.cancel);
            if (watch.cancelled()) {
                group_.finish();
                return RunOutcome::Cancelled;
            }
        } else {
            replay(stretch, embeds);
        }
        embeds = false;
    }
    const RunOutcome outcome = finish_run(states.out, draws, watch);
    if (outcome == RunOutcome::Done) keep_skipped(rows, dim);
    return outcome;
}

RunOutcome CudaForward::run_step(const EagleStep& step,
                                 HiddenRows out,
                                 const CudaDraws& draws,
                                 const CudaWatch& watch) {
    if (watch.cancelled()) return RunOutcome::Cancelled;
    const Stretch whole{2 * segment_.first, 2 * segment_.last, all_of(step.rows.size())};
    send(step.rows, whole.rows, config_.heads, config_.kv_heads);
    eagle_->send(step.before, step.kept);
    const std::vector<int> asked = draws.asked();
    if (!asked.empty()) heads_.send_draws(draws, head_group(asked, 0));
    group_.join();
    group_.fork();
    embed();
    eagle_->fuse();
    replay(whole, false);
    group_.fork();
    eagle_->keep();
    return finish_run(out, draws, watch);
}

/// The rows of one head, from `first` on.
std::span<const int> CudaForward::head_group(std::span<const int> asked, std::size_t first) const {
    const auto most = static_cast<std::size_t>(head_rows());
    return asked.subspan(first, std::min(most, asked.size() - first));
}

/// What comes after the layers goes into the stream before they are done: one wait for all of it,
/// and one more for each further head_rows() rows that something is drawn after.
RunOutcome CudaForward::finish_run(HiddenRows out, const CudaDraws& draws, const CudaWatch& watch) {
    group_.join();
    states_.send_out(out);
    const std::vector<int> asked = draws.asked();
    std::size_t first = 0;
    do {
        const std::span<const int> group = head_group(asked, first);
        if (first > 0) heads_.send_draws(draws, group);
        if (!group.empty()) heads_.launch_draws(draws, group);
        const Waited waited = wait(watch);
        if (waited != Waited::Done)
            return waited == Waited::Dead ? RunOutcome::Done : RunOutcome::Cancelled;
        heads_.take_drawn(draws, group);
        first += group.size();
    } while (first < asked.size());
    states_.take_out(out);
    return RunOutcome::Done;
}

/// Each device those tokens whose rows it has, for all devices.
void CudaForward::embed() {
    group_.on_each([&](CudaRank& rank) {
        const TablePlaces tables = tables_.on(rank.index());
        cuda::EmbedArgs args{rank.weights->embedding(), tables.tokens, tables.rows, rank.at.hidden};
        if (args.table.outputs == 0) return;
        args.first_token = rank.weights->first_token();
        group_.on_others(rank, &CudaWorkspace::hidden,
                         [&](float* hidden) { args.other_hidden[args.others++] = hidden; });
        cuda::launch_embed(rank.stream, args, launches_.now().rows);
    });
    group_.barrier();
    group_.on_each([&](CudaRank& rank) {
        CudaTakenRows rows = launches_.taken_rows(rank);
        rows.tokens = tables_.on(rank.index()).tokens;
        group_.take(rank, &CudaWorkspace::hidden, {config_.dim, {}, sizeof(float)}, rows);
    });
}

/// The first device's states, behind a join().
void CudaForward::gather_states() {
    CudaRank& first = group_.first();
    CudaTakenRows rows = launches_.taken_rows(first);
    rows.index = tables_.on(first.index()).row_index;
    group_.take(first, &CudaWorkspace::hidden,
                {config_.dim, first.weights->columns(), sizeof(float)}, rows);
}

void CudaForward::replay(const Stretch& stretch, bool embeds) {
    const bool whole = stretch.first == 2 * segment_.first && stretch.last == 2 * segment_.last;
    const bool recordable = recorded_ && whole && launches_.now().rows <= cuda::kBatchRows;
    group_.join();  // the tables are there
    if (!recordable || embeds != (stretch.first == 0 && !eagle_))
        return launch_stretch(stretch, embeds);
    Recorded& batch = (*recorded_)[{launches_.now().rows, launches_.now().one_split,
                                    launches_.now().attention_tiles}];
    // A kernel's first launch loads its code, which a recording may not: so the second is recorded.
    if (!batch.ran) {
        batch.ran = true;
        return launch_stretch(stretch, embeds);
    }
    if (batch.graph.empty())
        batch.graph = group_.first().stream.record([&] { launch_stretch(stretch, embeds); });
    batch.graph.launch(group_.first().stream);
}

/// The sub-layers up to the next one that rows want to keep the states of, and these; and so on.
void CudaForward::run_and_keep(std::span<const Row> rows,
                               const Stretch& stretch,
                               bool embeds,
                               const CancelToken* cancel) {
    group_.join();  // the tables are there
    for (int first = stretch.first; first < stretch.last;) {
        if (cancel != nullptr && cancel->cancelled()) return;
        int kept = first;  // the next one
        while (kept + 1 < stretch.last && !are_kept(rows, stretch.rows, kept)) ++kept;
        const auto runs_here = [&](int s) { return !segment_.skipped.skips(s); };
        int begin = first;
        while (begin <= kept && !runs_here(begin)) ++begin;
        if (begin <= kept)
            launch_stretch({begin, kept + 1, stretch.rows}, embeds && first == stretch.first);
        keep_stacks(rows, stretch.rows, kept, static_cast<std::size_t>(config_.dim),
                    group_.first());
        first = kept + 1;
    }
}

void CudaForward::launch_stretch(const Stretch& stretch, bool embeds) {
    group_.fork();
    if (embeds) embed();
    group_.on_each([&](CudaRank& rank) {
        const TablePlaces tables = tables_.on(rank.index());
        launches_.ready(rank, tables.row_index, tables.rows,
                        launches_.input_of_sublayer(rank, stretch.first), launches_.now().rows);
    });
    const auto next_after = [&](int sublayer) {
        int next = sublayer + 1;
        while (next < 2 * segment_.last && segment_.skipped.skips(next)) ++next;
        return next;
    };
    for (int sublayer = stretch.first; sublayer < stretch.last;) {
        const int next = next_after(sublayer);
        launches_.now().gathers = next >= stretch.last;
        // After the last one it is not needed; it costs less than another kind of finish.
        launch_sublayer(sublayer, next < 2 * segment_.last ? next : sublayer);
        sublayer = next;
    }
    group_.join();
    gather_states();
}

/// `following` is the sub-layer whose input is made.
void CudaForward::launch_sublayer(int sublayer, int following) {
    const int layer = sublayer / 2;
    const auto next = [&](const CudaRank& rank) {
        NextInput input = launches_.input_of_sublayer(rank, following);
        if (launches_.now().gathers)
            input.others = 0;  // a stretch begins with rows that are made ready anew
        return input;
    };
    group_.barrier();
    group_.on_each([&](CudaRank& rank) { launches_.take_input_of_sublayer(rank, sublayer); });
    if (sublayer % 2 == 0) {
        group_.on_each([&](CudaRank& rank) {
            launches_.mix(rank, rank.weights->layer(layer).attention, rank.cache,
                          segment_.kv.place(layer - segment_.first));
        });
        group_.barrier();
        group_.on_each([&](CudaRank& rank) {
            launches_.take_mixed(rank, rank.weights->layer(layer).attention);
            launches_.residual(rank, rank.weights->layer(layer).attention.out, rank.at.mixed,
                               next(rank));
        });
        return;
    }
    group_.on_each([&](CudaRank& rank) { launches_.gates(rank, rank.weights->layer(layer)); });
    group_.barrier();
    group_.on_each([&](CudaRank& rank) {
        launches_.take_gated(rank, rank.weights->layer(layer));
        launches_.residual(rank, rank.weights->layer(layer).down, rank.at.gated, next(rank));
    });
}

/// Waits for the stream. A batch that is no longer needed is stopped: a cancelled one, and one all
/// of whose rows have died. Single rows go on with the others: a recording has its rows by number,
/// and what a row costs beside the weights is little.
CudaForward::Waited CudaForward::wait(const CudaWatch& watch) {
    Waited outcome = Waited::Done;
    while (watch.cancel != nullptr && !group_.idle()) {
        if (outcome == Waited::Done) {
            if (watch.all_stale()) outcome = Waited::Dead;
            if (watch.cancelled()) outcome = Waited::Cancelled;
        }
        if (outcome == Waited::Done) continue;
        // Again and again: the tables may be on their way still, and write over it.
        group_.on_each([&](CudaRank& rank) {
            tables_.stop(rank.index(), rank.urgent);
            heads_.stop(rank);
        });
        if (group_.ranks().size() > 1) cuda::set_device(group_.first().device);
    }
    group_.finish_joined();
    return outcome;
}

RunOutcome CudaForward::run_adapter(std::span<const Row> rows,
                                    const CudaStates& states,
                                    const CancelToken* cancel) {
    if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
    const CudaAttention& adapter = group_.first().weights->adapter();
    states_.give(states.in);
    // Those of the whole adapter: a device may have none of its heads.
    send(rows, all_of(rows.size()), adapter.all_heads, adapter.all_kv_heads);
    const auto input = [&](const CudaRank& rank) {
        const CudaAttention& own = rank.weights->adapter();
        return launches_.input_for(rank, own.norm, own.qkv.front());
    };
    launches_.now().gathers = true;
    group_.join();
    group_.fork();
    group_.on_each([&](CudaRank& rank) {
        const TablePlaces tables = tables_.on(rank.index());
        launches_.ready(rank, tables.row_index, tables.rows, input(rank), launches_.now().rows);
    });
    group_.barrier();
    group_.on_each([&](CudaRank& rank) {
        launches_.take_input(rank, rank.weights->adapter().qkv.front());
        launches_.mix(rank, rank.weights->adapter(), rank.adapter_cache, 0);
    });
    group_.barrier();
    group_.on_each([&](CudaRank& rank) {
        launches_.take_mixed(rank, rank.weights->adapter());
        NextInput next = input(rank);
        next.others = 0;  // nothing follows
        launches_.residual(rank, rank.weights->adapter().out, rank.at.mixed, next);
    });
    group_.join();
    gather_states();
    return finish_run(states.out, {}, {.cancel = cancel});
}

void CudaForward::head(const CudaHead& head, ConstHiddenRows hidden, int rows, float* logits) {
    const auto states = static_cast<std::size_t>(rows);
    CudaRank& first = group_.first();
    states_.give(hidden);
    heads_.send_rows(all_of(states));
    heads_.launch(head, rows);
    const std::size_t bytes = states * static_cast<std::size_t>(head.outputs) * sizeof(float);
    first.stream.to_host(states_.pinned().data(), first.at.logits, bytes);
    group_.finish_joined();
    std::memcpy(logits, states_.pinned().data(), bytes);
}

void CudaForward::draw(ConstHiddenRows hidden, const CudaDraws& draws) {
    const std::vector<int> rows = all_of(draws.jobs.size());
    states_.give(hidden);
    heads_.send_draws(draws, rows);
    heads_.launch_draws(draws, rows);
    group_.finish_joined();
    heads_.take_drawn(draws, rows);
}

}  // namespace paceline
