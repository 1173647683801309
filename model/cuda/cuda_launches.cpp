#include "model/cuda/cuda_launches.hpp"

#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/gemm/gemm_blas.hpp"

namespace paceline {

using cuda::DeviceMatrix;
using cuda::GemmArgs;
using cuda::NextInput;
using cuda::padded_inputs;

NextInput CudaLaunches::input_for(const CudaRank& rank,
                                  const float* norm,
                                  const DeviceMatrix& product) const {
    NextInput next{norm, rank.at.input, rank.at.squares, padded_inputs(config_.dim),
                   cuda::takes_floats(product)};
    group_.share(rank, &CudaWorkspace::input, rank.weights->columns().first, next);
    return next;
}

NextInput CudaLaunches::input_of_sublayer(const CudaRank& rank, int sublayer) const {
    const CudaLayer& layer = rank.weights->layer(sublayer / 2);
    return sublayer % 2 == 0 ? input_for(rank, layer.attention.norm, layer.attention.qkv.front())
                             : input_for(rank, layer.ffn_norm, layer.gate_up);
}

void CudaLaunches::take_input(CudaRank& rank, const DeviceMatrix& product) const {
    group_.take_input(
        rank, &CudaWorkspace::input,
        {padded_inputs(config_.dim), rank.weights->columns(), cuda::input_bytes(product.type)},
        taken_rows(rank), true);
}

void CudaLaunches::take_input_of_sublayer(CudaRank& rank, int sublayer) const {
    const CudaLayer& layer = rank.weights->layer(sublayer / 2);
    take_input(rank, sublayer % 2 == 0 ? layer.attention.qkv.front() : layer.gate_up);
}

void CudaLaunches::take_mixed(CudaRank& rank, const CudaAttention& of) const {
    const CudaShare own{of.first_head * of.head_dim, of.heads * of.head_dim};
    group_.take(rank, &CudaWorkspace::mixed,
                {padded_inputs(of.out.inputs), own, cuda::input_bytes(of.out.type)},
                taken_rows(rank));
}

void CudaLaunches::take_gated(CudaRank& rank, const CudaLayer& layer) const {
    group_.take(
        rank, &CudaWorkspace::gated,
        {padded_inputs(config_.ffn_dim), rank.weights->inner(), cuda::input_bytes(layer.down.type)},
        taken_rows(rank));
}

/// Makes this device's columns of rows ready; they are those of `row_index`, `count` of them.
void CudaLaunches::ready(CudaRank& rank,
                         const std::int32_t* row_index,
                         const std::int32_t* count,
                         const NextInput& input,
                         int rows) const {
    const CudaShare& columns = rank.weights->columns();
    if (columns.count == 0) return;
    cuda::launch_ready(
        rank.stream,
        {rank.at.hidden + columns.first, row_index, count, config_.dim, input, columns.count},
        rows);
}

GemmArgs CudaLaunches::product(const CudaRank& rank,
                               const DeviceMatrix& weights,
                               const void* x,
                               int x_stride,
                               bool normed) const {
    GemmArgs args;
    args.weights = weights;
    args.x = x;
    args.x_stride = x_stride;
    args.rows = tables_.on(rank.index()).rows;
    if (normed) {
        args.finish.norm = {rank.at.squares, cuda::tiles_of(padded_inputs(config_.dim)),
                            config_.dim, config_.norm_epsilon, rank.at.factors};
    }
    return args;
}

/// The one place where `exact = off` matters.
void CudaLaunches::multiply(CudaRank& rank, const GemmArgs& product) const {
    if (product.weights.outputs == 0) return;
    if (blas_ == nullptr || now_.rows < cuda::kBlasRowsMin || !cuda::blas_takes(product.weights))
        return cuda::launch_gemm(rank.stream, product,
                                 {now_.rows, rank.info.processors, cuda::has_wgmma(rank.info)});
    cuda::launch_gemm_blas(rank.stream, *blas_, product, now_.rows, rank.at.products);
}

/// q, k and v of this device's heads, and what they attend to: its columns of `mixed`.
void CudaLaunches::mix(CudaRank& rank,
                       const CudaAttention& of,
                       const CudaCache& cache,
                       int layer) const {
    if (of.heads == 0) return;
    const int width = (of.heads + 2 * of.kv_heads) * of.head_dim;
    float* columns = rank.at.qkv;
    for (const DeviceMatrix& part : of.qkv) {
        GemmArgs qkv = product(rank, part, rank.at.input, padded_inputs(config_.dim), true);
        qkv.finish.out = columns;
        qkv.finish.out_stride = width;
        qkv.finish.norm.ready = columns != rank.at.qkv;
        multiply(rank, qkv);
        columns += part.outputs;
    }
    rotate(rank, of, cache, layer);

    const TablePlaces tables = tables_.on(rank.index());
    cuda::AttentionArgs attend;
    attend.plan = tables.plan;
    attend.rows = tables.rows;
    attend.q = rank.at.qkv;
    attend.q_stride = width;
    attend.heads = of.heads;
    attend.kv_heads = of.kv_heads;
    attend.head_dim = of.head_dim;
    attend.cache = cache.memory.data();
    attend.type = cache.type;
    attend.layers = cache.layers;
    attend.layer = layer;
    attend.partials = rank.at.partials;
    attend.out_stride = padded_inputs(of.out.inputs);
    attend.wide = cuda::takes_floats(of.out);
    const std::size_t first =
        static_cast<std::size_t>(of.first_head * of.head_dim) * cuda::input_bytes(of.out.type);
    const auto column_of = [first](void* mixed) { return static_cast<std::byte*>(mixed) + first; };
    attend.out = column_of(rank.at.mixed);
    group_.on_others(rank, &CudaWorkspace::mixed,
                     [&](void* mixed) { attend.other_out[attend.others++] = column_of(mixed); });
    const bool tensor_cores =
        cuda::attention_mma_takes(cache.type, of.head_dim) && !cuda::takes_floats(of.out);
    cuda::launch_attention(
        rank.stream, attend,
        {tensor_cores ? cuda::AttentionKernel::Mma : cuda::AttentionKernel::Plain, now_.unit_rows,
         4 * rank.info.processors, now_.one_split});
}

void CudaLaunches::rotate(CudaRank& rank,
                          const CudaAttention& of,
                          const CudaCache& cache,
                          int layer) const {
    const TablePlaces tables = tables_.on(rank.index());
    cuda::RotateArgs args;
    args.qkv = rank.at.qkv;
    args.qkv_stride = (of.heads + 2 * of.kv_heads) * of.head_dim;
    args.heads = of.heads;
    args.kv_heads = of.kv_heads;
    args.head_dim = of.head_dim;
    args.pairs = rotated_pairs_;
    args.pairing = config_.rope.pairing == RopePairing::Adjacent ? cuda::Pairing::Adjacent
                                                                 : cuda::Pairing::Halves;
    args.bias = of.bias;
    args.q_norm = of.q_norm;
    args.k_norm = of.k_norm;
    args.epsilon = config_.norm_epsilon;
    args.cosines = rank.angles.cosines();
    args.sines = rank.angles.sines();
    args.positions = tables.positions;
    args.slots = tables.slots;
    args.rows = tables.rows;
    args.cache = cache.memory.data();
    args.type = cache.type;
    args.layers = cache.layers;
    args.layer = layer;
    cuda::launch_rotate(rank.stream, args, now_.rows);
}

/// A product that is added to this device's columns of the hidden states.
void CudaLaunches::residual(CudaRank& rank,
                            const DeviceMatrix& weights,
                            const void* x,
                            const NextInput& next) const {
    const int first = rank.weights->columns().first;
    GemmArgs out = product(rank, weights, x, padded_inputs(weights.inputs), false);
    out.finish.kind = cuda::FinishKind::Residual;
    out.finish.out = rank.at.hidden + first;
    if (now_.gathers && &rank != &group_.first())
        out.finish.out_also = group_.gathered(&CudaWorkspace::hidden) + first;
    out.finish.out_stride = config_.dim;
    out.finish.row_index = tables_.on(rank.index()).row_index;
    out.finish.next = next;
    multiply(rank, out);
}

/// This device's part of an MLP's inner states.
void CudaLaunches::gates(CudaRank& rank, const CudaLayer& layer) const {
    GemmArgs gate_up =
        product(rank, layer.gate_up, rank.at.input, padded_inputs(config_.dim), true);
    if (!layer.gate_up.paired) {
        gate_up.finish.out = rank.at.gates;
        gate_up.finish.out_stride = layer.gate_up.outputs;
        multiply(rank, gate_up);
        gate_up.weights = layer.up;
        gate_up.finish.norm.ready = true;
    }
    gate_up.finish.kind =
        layer.gate_up.paired ? cuda::FinishKind::Gated : cuda::FinishKind::GatedBy;
    NextInput& next = gate_up.finish.next;
    next.x = rank.at.gated;
    next.stride = padded_inputs(config_.ffn_dim);
    next.wide = cuda::takes_floats(layer.down);
    group_.share(rank, &CudaWorkspace::gated, rank.weights->inner().first, next);
    multiply(rank, gate_up);
}

}  // namespace paceline
