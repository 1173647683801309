#include "bench/cuda/products.hpp"

#include <algorithm>
#include <numeric>

#include "model/kernels/cuda/rows.hpp"

namespace paceline::bench {
namespace {

using cuda::DeviceMemory;
using cuda::padded_inputs;

constexpr int kCopiesMax = 64;

std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

int widest_input(const ModelConfig& config) {
    return padded_inputs(std::max({config.dim, config.q_dim(), config.ffn_dim}));
}

cuda::WeightType type_of(const Bench& bench, const TensorView& tensor, MatrixUse use) {
    const Dtype dtype = *parse_dtype(bench.settings.dtype);
    return gpu_type(packed_type(tensor, dtype, use), all_floats(bench.file, dtype));
}

/// A matrix of synthetic blocks, generated on the host.
std::vector<std::byte> synthetic_blocks(WeightUploader& feed, std::uint64_t seed) {
    feed.use_synthetic_rows(seed);
    std::vector<std::byte> bytes(feed.bytes());
    (void)feed.fill(0, feed.pieces(), bytes.data());
    return bytes;
}

/// `tensor` with the stored type of `other`: q, k and v are timed as one product, also in a mix of
/// types.
TensorView stored_as(TensorView tensor, const TensorView& other) {
    const TypeTraits of = traits(other.type);
    tensor.type = other.type;
    tensor.bytes =
        static_cast<std::size_t>(tensor.rows * tensor.cols) / of.block_elements * of.block_bytes;
    return tensor;
}

}  // namespace

Product::Product(const Bench& bench, const char* name, WeightUploader feed, cuda::FinishKind kind)
    : name_{name}, kind_{kind}, bytes_{feed.bytes()} {
    const std::size_t wanted = (bench.settings.spread_bytes + bytes_ - 1) / bytes_;
    const std::size_t copies = std::clamp<std::size_t>(wanted, 1, size_of(kCopiesMax));
    const std::size_t step = (bytes_ + 255) / 256 * 256;
    memory_ = take(copies * step);
    cuda::Stream stream;
    // All copies of a block type have the same numbers: the time depends on where they lie, not on
    // the values.
    std::vector<std::byte> blocks;
    if (is_block_type(feed.shape().type)) blocks = synthetic_blocks(feed, bench.settings.seed);
    for (std::size_t i = 0; i < copies; ++i) {
        std::byte* to = memory_.data() + i * step;
        matrices_.push_back(feed.at(to));
        if (!blocks.empty()) {
            stream.to_device(to, blocks.data(), blocks.size());
        } else {
            cuda::launch_random(stream, matrices_.back(), bench.settings.seed + i);
        }
    }
    stream.finish();
}

double Product::operations(int rows) const {
    const cuda::DeviceMatrix& one = matrices_.front();
    return 2.0 * rows * one.outputs * (one.paired ? 2.0 : 1.0) * one.inputs;
}

std::vector<Product> layer_products(const Bench& bench) {
    const LayerTensors& layer = bench.file.layer(0);
    const auto type = [&](const TensorView& tensor) {
        return type_of(bench, tensor, MatrixUse::Layer);
    };
    const std::vector<TensorView> qkv{layer.q, stored_as(layer.k, layer.q),
                                      stored_as(layer.v, layer.q)};
    std::vector<Product> products;
    products.emplace_back(bench, "q k v", WeightUploader{type(layer.q), qkv},
                          cuda::FinishKind::Store);
    products.emplace_back(bench, "attention out",
                          WeightUploader{type(layer.attn_out), {layer.attn_out}},
                          cuda::FinishKind::Residual);
    products.emplace_back(bench, "gate up",
                          WeightUploader::paired(type(layer.gate), layer.gate, layer.up),
                          cuda::FinishKind::Gated);
    products.emplace_back(bench, "down", WeightUploader{type(layer.down), {layer.down}},
                          cuda::FinishKind::Residual);
    return products;
}

Product head_product(const Bench& bench) {
    const TensorView& head = bench.file.output_head();
    return {bench, "head", WeightUploader{type_of(bench, head, MatrixUse::Vocabulary), {head}},
            cuda::FinishKind::Store};
}

ProductDesk::ProductDesk(const Bench& bench, int rows_max, int outputs_max)
    : bench_{bench},
      config_{bench.file.config()},
      rows_max_{rows_max},
      processors_{cuda::use_device(bench.settings.device).processors},
      wgmma_{cuda::has_wgmma(cuda::use_device(bench.settings.device))} {
    const std::size_t rows = size_of(rows_max);
    const int width = widest_input(config_);
    // Floats or bf16: bf16 numbers at random are finite floats as well.
    input_ = random_bf16(rows_max, 2 * width);
    next_ = take(rows * size_of(width) * 4);
    hidden_ = take(rows * size_of(config_.dim) * 4);
    out_ = take(rows * size_of(outputs_max) * 4);
    const std::vector<float> squares(rows * size_of(cuda::tiles_of(width)), 16.0f);
    squares_ = on_device(squares);
    next_squares_ = on_device(squares);
    factors_ = take(rows * 4);
    norm_ = on_device(std::vector<float>(size_of(config_.dim), 0.5f));
    std::vector<std::int32_t> places(rows);
    std::iota(places.begin(), places.end(), 0);
    places_ = on_device(places);
    count_ = take(sizeof(std::int32_t));
}

void ProductDesk::set_rows(int rows) {
    stream_.to_device(count_.data(), &rows, sizeof rows);
    const cuda::RowNorm norm{squares_.as<float>(), cuda::tiles_of(padded_inputs(config_.dim)),
                             config_.dim, config_.norm_epsilon};
    cuda::launch_norm_factors(stream_, {norm, count(), factors_.as<float>()}, rows);
    stream_.finish();
    rows_ = rows;
}

cuda::GemmArgs ProductDesk::with_factors(cuda::GemmArgs call) const {
    // As launch_gemm() has it; here they are there already.
    if (rows_ <= cuda::kFusedNormRows) call.finish.norm.factors = nullptr;
    return call;
}

cuda::GemmArgs ProductDesk::args(const Product& product, int i) const {
    cuda::GemmArgs args;
    args.weights = product.at(i);
    args.x = input_.data();
    args.x_stride = padded_inputs(args.weights.inputs);
    args.rows = count();
    args.finish.kind = product.kind();
    const bool residual = product.kind() == cuda::FinishKind::Residual;
    if (!residual)
        args.finish.norm = {squares_.as<float>(), cuda::tiles_of(padded_inputs(config_.dim)),
                            config_.dim, config_.norm_epsilon, factors_.as<float>()};
    args.finish.out = residual ? hidden_.as<float>() : out_.as<float>();
    args.finish.out_stride = residual ? config_.dim : args.weights.outputs;
    args.finish.row_index = places_.as<std::int32_t>();
    args.finish.next.x = next_.data();
    args.finish.next.stride = padded_inputs(args.weights.outputs);
    args.finish.next.wide = args.weights.type == cuda::WeightType::F32;
    if (residual) {
        args.finish.next.squares = next_squares_.as<float>();
        args.finish.next.weights = norm_.as<float>();
    }
    return args;
}

double ProductDesk::seconds(const Product& product) {
    return device_seconds(stream_, 4 * bench_.settings.times, [&](int i) {
        cuda::launch_gemm(stream_, args(product, i), {rows_, processors_, wgmma_});
    });
}

double ProductDesk::seconds(const Product& product, const cuda::GemmChoice& choice) {
    return device_seconds(stream_, 4 * bench_.settings.times, [&](int i) {
        cuda::launch_gemm_as(stream_, with_factors(args(product, i)), choice, rows_);
    });
}

Rung ProductDesk::result(const Product& product, const cuda::GemmChoice& choice) {
    const DeviceMemory* const left[] = {&next_, &hidden_, &out_, &next_squares_};
    // Bytes that are small floats and small bf16 numbers: hidden states are added to.
    for (const DeviceMemory* memory : left) stream_.fill(memory->data(), 0x3C, memory->bytes());
    cuda::launch_gemm_as(stream_, with_factors(args(product, 0)), choice, rows_);
    // What comes next takes the type of the weights (args()); all else is floats.
    const bool narrow_next = product.at(0).type != cuda::WeightType::F32;
    Rung rung;
    rung.checksum = kChecksumBegin;
    for (const DeviceMemory* memory : left) {
        std::vector<std::byte> bytes(memory->bytes() / size_of(rows_max_) * size_of(rows_));
        stream_.to_host(bytes.data(), memory->data(), bytes.size());
        stream_.finish();
        rung.checksum = mixed(rung.checksum, bytes);
        rung.nans +=
            memory == &next_ && narrow_next ? count_nan_bf16(bytes) : count_nan_floats(bytes);
    }
    return rung;
}

}  // namespace paceline::bench
