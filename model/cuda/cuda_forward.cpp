#include "model/cuda/cuda_forward.hpp"

#include <algorithm>
#include <numeric>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/gemm/gemm_blas.hpp"

namespace paceline {
namespace {

using cuda::DeviceMatrix;
using cuda::GemmArgs;
using cuda::NextInput;
using cuda::padded_inputs;

}  // namespace

CudaForward::CudaForward(const ModelConfig& config,
                         const CudaOptions& options,
                         const CudaWeights& weights,
                         CudaCache& cache,
                         CudaCache* adapter_cache,
                         const cuda::DeviceInfo& device)
    : config_{config},
      weights_{weights},
      cache_{cache},
      adapter_cache_{adapter_cache},
      first_layer_{options.first_layer},
      last_layer_{options.last_layer},
      skipped_{options.skipped},
      kv_layers_{options.first_layer, options.last_layer, options.skipped},
      limits_{limits_of(config, options)},
      processors_{device.processors},
      wgmma_{cuda::has_wgmma(device)},
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
    tables_.send(rows, active, unit_rows_now_, stream_);
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
        embed();
        stream_.finish();  // the tables are written anew
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
            stream_.finish();  // copies to the caller's memory may be on their way
            return RunOutcome::Cancelled;
        }
        send(rows, stretch.rows, config_.heads, config_.kv_heads);
        runs = true;
        if (wants_stacks(rows, stretch)) {
            run_and_keep(rows, stretch, embeds, watch.cancel);
            if (watch.cancelled()) {
                stream_.finish();
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

void CudaForward::embed() {
    cuda::launch_embed(
        stream_, {weights_.embedding(), tables_.tokens(), tables_.rows(), at_.hidden}, rows_now_);
}

void CudaForward::replay(const Stretch& stretch, bool embeds) {
    const bool whole = stretch.first == 2 * first_layer_ && stretch.last == 2 * last_layer_;
    const bool recordable = graphs_on_ && whole && rows_now_ <= cuda::kBatchRows;
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
    if (embeds) embed();
    cuda::launch_ready(stream_,
                       {at_.hidden, tables_.row_index(), tables_.rows(), config_.dim,
                        input_of_sublayer(stretch.first)},
                       rows_now_);
    for (int sublayer = stretch.first; sublayer < stretch.last; ++sublayer) {
        if (skipped_.skips(sublayer)) continue;
        const CudaLayer& layer = weights_.layer(sublayer / 2);
        int following = sublayer + 1;
        while (following < 2 * last_layer_ && skipped_.skips(following)) ++following;
        // After the last one it is not needed; it costs less than another kind of finish.
        const NextInput next =
            input_of_sublayer(following < 2 * last_layer_ ? following : sublayer);
        if (sublayer % 2 == 0) {
            attention(layer.attention, cache_, kv_layers_.place(sublayer / 2 - first_layer_), next);
        } else {
            mlp(layer, next);
        }
    }
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
        tables_.stop(urgent_);
        stop_head();
    }
    stream_.finish();
    return outcome;
}

NextInput CudaForward::input_for(const float* norm, const DeviceMatrix& product) const {
    return {norm, at_.input, at_.squares, padded_inputs(config_.dim), cuda::takes_floats(product)};
}

NextInput CudaForward::input_of_sublayer(int sublayer) const {
    const CudaLayer& layer = weights_.layer(sublayer / 2);
    return sublayer % 2 == 0 ? input_for(layer.attention.norm, layer.attention.qkv.front())
                             : input_for(layer.ffn_norm, layer.gate_up);
}

GemmArgs CudaForward::product(const DeviceMatrix& weights,
                              const void* x,
                              int x_stride,
                              bool normed) const {
    GemmArgs args;
    args.weights = weights;
    args.x = x;
    args.x_stride = x_stride;
    args.rows = tables_.rows();
    if (normed) {
        args.finish.norm = {at_.squares, cuda::tiles_of(padded_inputs(config_.dim)), config_.dim,
                            config_.norm_epsilon, at_.factors};
    }
    return args;
}

/// The one place where `exact = off` matters.
void CudaForward::multiply(const GemmArgs& product) {
    if (blas_ == nullptr || rows_now_ < cuda::kBlasRowsMin || !cuda::blas_takes(product.weights))
        return cuda::launch_gemm(stream_, product, {rows_now_, processors_, wgmma_});
    cuda::launch_gemm_blas(stream_, *blas_, product, rows_now_, at_.products);
}

void CudaForward::attention(const CudaAttention& of,
                            CudaCache& cache,
                            int layer,
                            const NextInput& next) {
    const int q_dim = of.heads * of.head_dim;
    const int width = q_dim + 2 * of.kv_heads * of.head_dim;
    float* columns = at_.qkv;
    for (const DeviceMatrix& part : of.qkv) {
        GemmArgs qkv = product(part, at_.input, padded_inputs(config_.dim), true);
        qkv.finish.out = columns;
        qkv.finish.out_stride = width;
        qkv.finish.norm.ready = columns != at_.qkv;
        multiply(qkv);
        columns += part.outputs;
    }

    cuda::RotateArgs rotate;
    rotate.qkv = at_.qkv;
    rotate.qkv_stride = width;
    rotate.heads = of.heads;
    rotate.kv_heads = of.kv_heads;
    rotate.head_dim = of.head_dim;
    rotate.pairs = rope_.pairs();
    rotate.pairing = config_.rope.pairing == RopePairing::Adjacent ? cuda::Pairing::Adjacent
                                                                   : cuda::Pairing::Halves;
    rotate.bias = of.bias;
    rotate.q_norm = of.q_norm;
    rotate.k_norm = of.k_norm;
    rotate.epsilon = config_.norm_epsilon;
    rotate.cosines = angles_.cosines();
    rotate.sines = angles_.sines();
    rotate.positions = tables_.positions();
    rotate.slots = tables_.slots();
    rotate.rows = tables_.rows();
    rotate.cache = cache.memory.data();
    rotate.type = cache.type;
    rotate.layers = cache.layers;
    rotate.layer = layer;
    cuda::launch_rotate(stream_, rotate, rows_now_);

    cuda::AttentionArgs attend;
    attend.plan = tables_.plan();
    attend.rows = tables_.rows();
    attend.q = at_.qkv;
    attend.q_stride = width;
    attend.heads = of.heads;
    attend.kv_heads = of.kv_heads;
    attend.head_dim = of.head_dim;
    attend.cache = cache.memory.data();
    attend.type = cache.type;
    attend.layers = cache.layers;
    attend.layer = layer;
    attend.partials = at_.partials;
    attend.out = at_.mixed;
    attend.out_stride = padded_inputs(q_dim);
    attend.wide = cuda::takes_floats(of.out);
    const bool tensor_cores =
        cuda::attention_mma_takes(cache.type, of.head_dim) && !cuda::takes_floats(of.out);
    cuda::launch_attention(
        stream_, attend,
        {tensor_cores ? cuda::AttentionKernel::Mma : cuda::AttentionKernel::Plain, unit_rows_now_,
         4 * processors_, one_split_now_});

    GemmArgs out = product(of.out, at_.mixed, padded_inputs(q_dim), false);
    out.finish.kind = cuda::FinishKind::Residual;
    out.finish.out = at_.hidden;
    out.finish.out_stride = config_.dim;
    out.finish.row_index = tables_.row_index();
    out.finish.next = next;
    multiply(out);
}

void CudaForward::mlp(const CudaLayer& layer, const NextInput& next) {
    GemmArgs gate_up = product(layer.gate_up, at_.input, padded_inputs(config_.dim), true);
    if (!layer.gate_up.paired) {
        gate_up.finish.out = at_.gates;
        gate_up.finish.out_stride = config_.ffn_dim;
        multiply(gate_up);
        gate_up.weights = layer.up;
        gate_up.finish.norm.ready = true;
    }
    gate_up.finish.kind =
        layer.gate_up.paired ? cuda::FinishKind::Gated : cuda::FinishKind::GatedBy;
    gate_up.finish.next.x = at_.gated;
    gate_up.finish.next.stride = padded_inputs(config_.ffn_dim);
    gate_up.finish.next.wide = cuda::takes_floats(layer.down);
    multiply(gate_up);

    GemmArgs down = product(layer.down, at_.gated, padded_inputs(config_.ffn_dim), false);
    down.finish.kind = cuda::FinishKind::Residual;
    down.finish.out = at_.hidden;
    down.finish.out_stride = config_.dim;
    down.finish.row_index = tables_.row_index();
    down.finish.next = next;
    multiply(down);
}

RunOutcome CudaForward::run_adapter(std::span<const Row> rows,
                                    const CudaStates& states,
                                    const CancelToken* cancel) {
    if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
    const CudaAttention& adapter = weights_.adapter();
    give_hidden(states.in);
    send(rows, all_of(rows.size()), adapter.heads, adapter.kv_heads);
    const NextInput input = input_for(adapter.norm, adapter.qkv.front());
    cuda::launch_ready(
        stream_, {at_.hidden, tables_.row_index(), tables_.rows(), config_.dim, input}, rows_now_);
    attention(adapter, *adapter_cache_, 0, input);
    return finish_run(states.out, {}, {.cancel = cancel});
}

}  // namespace paceline
