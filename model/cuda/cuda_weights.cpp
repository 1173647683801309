#include "model/cuda/cuda_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <thread>
#include <utility>

#include "model/kernels/cuda/random.hpp"
#include "model/weights/synthetic/synthetic_rows.hpp"

namespace paceline {
namespace {

using cuda::DeviceMatrix;
using cuda::WeightType;

constexpr std::uint64_t kAlignment = 256;
constexpr std::size_t kStagingBytes = std::size_t{16} << 20U;
constexpr unsigned kFillersMax = 8;

/// A matrix of floats in memory as a tensor.
TensorView tensor_of(const std::vector<float>& values, int rows, int cols) {
    TensorView tensor{"given", StoredType::F32, rows, cols};
    tensor.data = std::as_bytes(std::span{values}).data();
    tensor.bytes = values.size() * sizeof(float);
    return tensor;
}

/// The tensors of a matrix that is synthetic: their numbers are those of any other backend. A list
/// has the numbers of the first rows, as many as it has entries.
std::vector<cuda::RandomPart> parts_of(const WeightUploader& feed, std::uint64_t seed) {
    std::vector<cuda::RandomPart> parts;
    for (std::size_t i = 0; i < feed.tensors().size(); ++i) {
        const CudaShare& rows = feed.rows()[i];
        parts.push_back({random_seed(seed, feed.tensors()[i].name), rows.count, rows.first});
    }
    return parts;
}

/// Fills pieces [first, last), the threads of the host side by side. As WeightUploader::fill().
std::string fill(const WeightUploader& feed, int first, int last, std::byte* out) {
    const unsigned hardware = std::max(1U, std::thread::hardware_concurrency());
    const int threads = static_cast<int>(std::min(hardware, kFillersMax));
    const int count = last - first;
    if (threads == 1 || count <= threads) return feed.fill(first, last, out);
    std::vector<std::string> wrong(static_cast<std::size_t>(threads));
    const auto part = [&](int t) {
        const int begin = first + count * t / threads;
        wrong[static_cast<std::size_t>(t)] =
            feed.fill(begin, first + count * (t + 1) / threads,
                      out + static_cast<std::size_t>(begin - first) * feed.piece_bytes());
    };
    {
        std::vector<std::jthread> others;
        for (int t = 1; t < threads; ++t) others.emplace_back(part, t);
        part(0);
    }
    const auto found = std::find_if(wrong.begin(), wrong.end(),
                                    [](const std::string& one) { return !one.empty(); });
    return found == wrong.end() ? std::string{} : *found;
}

}  // namespace

CudaWeights::Item& CudaWeights::add(WeightUploader feed, DeviceMatrix& to) {
    Item& item = items_.emplace_back();
    item.feed = std::make_unique<WeightUploader>(std::move(feed));
    item.matrices.push_back(&to);
    item.offset = bytes_;
    bytes_ += (item.feed->bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return item;
}

void CudaWeights::add(std::vector<float> values, const float*& to) {
    Item& item = items_.emplace_back();
    item.values = std::move(values);
    item.vectors.push_back(&to);
    item.offset = bytes_;
    bytes_ += (item.values.size() * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
}

void CudaWeights::add(std::vector<std::int32_t> words, const std::int32_t*& to) {
    Item& item = items_.emplace_back();
    item.words = std::move(words);
    item.list = &to;
    item.offset = bytes_;
    bytes_ += (item.words.size() * sizeof(std::int32_t) + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<float> CudaWeights::vector_of(const ModelFile& file, const TensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
    dequantize_row(tensor, 0, values);
    for (std::size_t i = 0; i < values.size() && wrong_.empty(); ++i) {
        if (!std::isfinite(values[i]))
            wrong_ = fmt::format("{}: tensor {} element {} is not a finite number", file.path(),
                                 tensor.name, i);
    }
    return values;
}

void CudaWeights::add_vector(const ModelFile& file, const TensorView& tensor, const float*& to) {
    add(vector_of(file, tensor), to);
}

/// Rows are floats in front of every product or of none: their buffers are shared, and zeros after
/// a row stay zeros only if it is never written wider. So floats_ is about the whole file, whatever
/// part of it this segment has.
WeightType CudaWeights::type_of(const TensorView& tensor, Dtype dtype, MatrixUse use) const {
    return gpu_type(packed_type(tensor, dtype, use), floats_);
}

/// This device's outputs of a matrix whose outputs are shared by tiles.
void CudaWeights::add_outputs(WeightType type, const TensorView& tensor, DeviceMatrix& to) {
    const CudaShare rows = part_.of_outputs(static_cast<int>(tensor.rows));
    add(WeightUploader{type, {tensor}, {rows}}, to);
}

/// Which of all heads are this device's.
void CudaWeights::share_heads(int heads, int kv_heads, int head_dim, CudaAttention& to) const {
    const CudaShare own = part_.of_kv_heads(kv_heads);
    const int group = heads / kv_heads;
    to.all_heads = heads;
    to.all_kv_heads = kv_heads;
    to.heads = own.count * group;
    to.first_head = own.first * group;
    to.kv_heads = own.count;
    to.first_kv_head = own.first;
    to.head_dim = head_dim;
}

/// Rows of q (0), k or v for the heads of `of`.
CudaShare CudaWeights::share_of_qkv(std::size_t which, const CudaAttention& of) const {
    if (which == 0) return {of.first_head * of.head_dim, of.heads * of.head_dim};
    return {of.first_kv_head * of.head_dim, of.kv_heads * of.head_dim};
}

void CudaWeights::plan_qkv(const std::vector<TensorView>& tensors,
                           const std::vector<WeightType>& types,
                           CudaAttention& to) {
    struct Run {
        WeightType type;
        std::vector<TensorView> tensors;
        std::vector<CudaShare> rows;
    };
    std::vector<Run> runs;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (i == 0 || types[i] != types[i - 1]) runs.push_back({types[i], {}, {}});
        runs.back().tensors.push_back(tensors[i]);
        runs.back().rows.push_back(share_of_qkv(i, to));
    }
    to.qkv.resize(runs.size());  // their places are kept
    for (std::size_t i = 0; i < runs.size(); ++i)
        add(WeightUploader{runs[i].type, std::move(runs[i].tensors), std::move(runs[i].rows)},
            to.qkv[i]);
}

void CudaWeights::plan_attention(const ModelFile& file,
                                 const LayerTensors& from,
                                 CudaAttention& to,
                                 Dtype dtype) {
    const ModelConfig& config = file.config();
    const auto type = [&](const TensorView& tensor) {
        return type_of(tensor, dtype, MatrixUse::Layer);
    };
    add_vector(file, from.attn_norm, to.norm);
    share_heads(config.heads, config.kv_heads, config.head_dim, to);
    plan_qkv({from.q, from.k, from.v}, {type(from.q), type(from.k), type(from.v)}, to);
    add_outputs(type(from.attn_out), from.attn_out, to.out);
    if (config.qkv_bias) {
        std::vector<float> bias;
        std::size_t which = 0;
        for (const auto& one : {from.q_bias, from.k_bias, from.v_bias}) {
            const std::vector<float> values = vector_of(file, *one);
            const CudaShare own = share_of_qkv(which++, to);
            bias.insert(bias.end(), values.begin() + own.first,
                        values.begin() + own.first + own.count);
        }
        add(std::move(bias), to.bias);
    }
    if (config.qk_norm) {
        add_vector(file, *from.q_norm, to.q_norm);
        add_vector(file, *from.k_norm, to.k_norm);
    }
}

void CudaWeights::plan_layer(const ModelFile& file, int index, const CudaOptions& options) {
    const LayerTensors& from = file.layer(index);
    CudaLayer& to = layers_[static_cast<std::size_t>(index - first_layer_)];
    const auto type = [&](const TensorView& tensor) {
        return type_of(tensor, options.dtype, MatrixUse::Layer);
    };
    if (!options.skipped.skips(2 * index)) plan_attention(file, from, to.attention, options.dtype);
    if (options.skipped.skips(2 * index + 1)) return;
    add_vector(file, from.ffn_norm, to.ffn_norm);
    if (type(from.gate) == type(from.up)) {
        add(WeightUploader::paired(type(from.gate), from.gate, from.up, inner_), to.gate_up);
    } else {
        splits_gates_ = true;
        add_outputs(type(from.gate), from.gate, to.gate_up);
        add_outputs(type(from.up), from.up, to.up);
    }
    add_outputs(type(from.down), from.down, to.down);
}

void CudaWeights::plan_vocabulary(const ModelFile& file, const CudaOptions& options) {
    const bool ends = options.final_head || options.last_layer == file.config().layers;
    bool whole = ends || (options.adapter && options.adapter->tokens.empty());
    for (const HeadSpec& spec : options.heads) whole = whole || spec.tokens.empty();
    const auto type = [&](const TensorView& tensor) {
        return type_of(tensor, options.dtype, MatrixUse::Vocabulary);
    };
    head_type_ = type(file.output_head());
    const CudaShare share = part_.of_outputs(file.config().vocab_size);
    final_.outputs = file.config().vocab_size;
    final_.share = share;
    first_token_ = share.first;
    if (whole) {
        head_item_ = &add(WeightUploader{head_type_, {file.output_head()}, {share}}, final_.output);
        final_.turns = false;
    }
    if (whole || !options.heads.empty()) add_vector(file, file.output_norm(), final_.norm);
    if (!has_embedding_) return;
    if (head_item_ != nullptr && file.config().tied_embeddings) {
        head_item_->matrices.push_back(&embedding_);
    } else {
        add(WeightUploader{type(file.embedding()), {file.embedding()}, {share}}, embedding_);
    }
}

/// Of trained matrices. A transform is the identity and small numbers: quantised, those would
/// drown.
WeightType CudaWeights::trained_type() const {
    return head_type_ == WeightType::F32 ? WeightType::F32 : WeightType::BF16;
}

void CudaWeights::plan_head(const ModelFile& file, const HeadSpec& spec, CudaHead& head) {
    head.tokens = spec.tokens;
    head.norm_first = spec.norm_first;
    head.block = spec.block;
    head.turns = !spec.transform.empty();
    const int dim = file.config().dim;
    if (head.turns)
        add_outputs(trained_type(), tensor_of(spec.transform, dim, dim), head.transform);
    if (head.tokens.empty()) {
        head.outputs = final_.outputs;
        head.share = final_.share;
        head_item_->matrices.push_back(&head.output);
    } else {
        head.outputs = static_cast<int>(head.tokens.size());
        head.share = part_.of_outputs(head.outputs);
        const auto first = head.tokens.begin() + head.share.first;
        add(WeightUploader{head_type_, file.output_head(),
                           std::vector<std::int64_t>{first, first + head.share.count},
                           head.share.first},
            head.output);
        if (part_.is_first()) plan_list(file.config().vocab_size, head);
    }
}

/// The short list as the device draws from it: tokens, and where each of the vocabulary stands.
void CudaWeights::plan_list(int vocab_size, CudaHead& head) {
    std::vector<std::int32_t> places(static_cast<std::size_t>(vocab_size), -1);
    for (std::size_t i = 0; i < head.tokens.size(); ++i)
        places[static_cast<std::size_t>(head.tokens[i])] = static_cast<std::int32_t>(i);
    head.list.count = static_cast<int>(head.tokens.size());
    add(std::vector<std::int32_t>{head.tokens.begin(), head.tokens.end()}, head.list.tokens);
    add(std::move(places), head.list.places);
}

void CudaWeights::plan_adapter(const ModelFile& file, const AdapterSpec& spec) {
    has_adapter_ = true;
    const int dim = file.config().dim;
    const WeightType type = trained_type();
    const int q_dim = spec.heads * spec.head_dim;
    const int kv_dim = spec.kv_heads * spec.head_dim;
    share_heads(spec.heads, spec.kv_heads, spec.head_dim, adapter_);
    plan_qkv({tensor_of(spec.q, q_dim, dim), tensor_of(spec.k, kv_dim, dim),
              tensor_of(spec.v, kv_dim, dim)},
             {type, type, type}, adapter_);
    add_outputs(type, tensor_of(spec.attn_out, dim, q_dim), adapter_.out);
    add(spec.attn_norm, adapter_.norm);
    adapter_head_.id = HeadId::Adapter;
    plan_head(file, HeadSpec{.transform = {}, .tokens = spec.tokens}, adapter_head_);
    add(spec.out_norm, adapter_head_.norm);
}

void CudaWeights::plan_eagle(const ModelFile& file, const EagleSpec& spec) {
    const int dim = file.config().dim;
    add_outputs(trained_type(), tensor_of(spec.fuse, dim, 2 * dim), fuse_);
    if (spec.join.empty()) return;
    const int states = static_cast<int>(spec.states()) * dim;
    add_outputs(trained_type(), tensor_of(spec.join, dim, states), join_);
}

const CudaHead& CudaWeights::head(HeadId id) const {
    if (id == HeadId::Final) return final_;
    if (id == HeadId::Adapter) return adapter_head_;
    return heads_[static_cast<std::size_t>(id) - 1];
}

std::unique_ptr<CudaWeights> CudaWeights::plan(const ModelFile& file,
                                               const CudaOptions& options,
                                               const CudaPart& part) {
    std::unique_ptr<CudaWeights> made{new CudaWeights};
    CudaWeights& weights = *made;
    weights.part_ = part;
    weights.columns_ = part.of_outputs(file.config().dim);
    weights.inner_ = part.of_outputs(file.config().ffn_dim);
    weights.first_layer_ = options.first_layer;
    weights.has_embedding_ = options.first_layer == 0;
    weights.floats_ = all_floats(file, options.dtype);
    // All places are assigned before pointers to them are made.
    weights.layers_.resize(static_cast<std::size_t>(options.last_layer - options.first_layer));
    weights.heads_.resize(options.heads.size());
    weights.items_.reserve(15 * weights.layers_.size() + 5 * weights.heads_.size() + 16);
    for (int l = options.first_layer; l < options.last_layer; ++l)
        weights.plan_layer(file, l, options);
    weights.plan_vocabulary(file, options);
    for (std::size_t h = 0; h < options.heads.size(); ++h) {
        weights.heads_[h].id = static_cast<HeadId>(h + 1);
        weights.plan_head(file, options.heads[h], weights.heads_[h]);
    }
    if (options.adapter) weights.plan_adapter(file, *options.adapter);
    if (options.eagle) weights.plan_eagle(file, *options.eagle);
    return made;
}

/// Two pinned buffers, each with the point at which its last copy was done.
struct CudaWeights::Staging {
    cuda::PinnedMemory buffers[2];
    cuda::Event copied[2];
    bool used[2] = {false, false};

    /// Buffer `turn`, once it is free.
    std::byte* wait(int turn) {
        while (used[turn] && !copied[turn].reached()) std::this_thread::yield();
        used[turn] = true;
        return buffers[turn].data();
    }
};

void CudaWeights::copy(const Item& item,
                       Staging& staging,
                       cuda::Stream& stream,
                       const std::function<void(std::uint64_t)>& done) {
    std::byte* to = memory_.data() + item.offset;
    if (item.feed == nullptr) {
        if (!item.words.empty()) {
            stream.to_device(to, item.words.data(), item.words.size() * sizeof(std::int32_t));
            done(item.words.size() * sizeof(std::int32_t));
            return;
        }
        stream.to_device(to, item.values.data(), item.values.size() * sizeof(float));
        done(item.values.size() * sizeof(float));
        return;
    }
    const WeightUploader& feed = *item.feed;
    const auto at_once = static_cast<int>(kStagingBytes / feed.piece_bytes());
    int turn = 0;
    for (int first = 0; first < feed.pieces(); first += at_once, turn = 1 - turn) {
        const int last = std::min(feed.pieces(), first + at_once);
        std::byte* from = staging.wait(turn);
        if (std::string wrong = fill(feed, first, last, from); wrong_.empty())
            wrong_ = std::move(wrong);
        const std::size_t bytes = static_cast<std::size_t>(last - first) * feed.piece_bytes();
        stream.to_device(to + static_cast<std::size_t>(first) * feed.piece_bytes(), from, bytes);
        staging.copied[turn].record(stream);
        done(bytes);
    }
}

Status CudaWeights::load(const ModelFile& file, const CudaOptions& options, cuda::Stream& stream) {
    if (!wrong_.empty()) return Error{Errc::BadFile, wrong_};
    if (!cuda::DeviceMemory::allocate(bytes_, memory_))
        return Error{Errc::OutOfMemory, fmt::format("cuda:{}: no room for {} MiB of weights",
                                                    options.device, bytes_ >> 20U)};
    Staging staging;
    for (cuda::PinnedMemory& buffer : staging.buffers) {
        if (!cuda::PinnedMemory::allocate(kStagingBytes, buffer))
            return Error{Errc::OutOfMemory, "no pinned host memory to load weights through"};
    }
    std::uint64_t loaded = 0;
    const auto done = [&](std::uint64_t bytes) {
        loaded += bytes;
        if (options.progress)
            options.progress(
                std::min(1.0, static_cast<double>(loaded) / static_cast<double>(bytes_)));
    };
    for (const Item& item : items_) {
        const bool synthetic = item.feed != nullptr && item.feed->tensors().front().data == nullptr;
        const bool on_host = synthetic && is_block_type(item.feed->shape().type) && options.random;
        if (on_host) item.feed->use_synthetic_rows(*options.random);
        if (!synthetic || on_host) {
            copy(item, staging, stream, done);
        } else if (options.random) {
            cuda::launch_random(stream, item.feed->at(memory_.data() + item.offset),
                                parts_of(*item.feed, *options.random));
            done(item.feed->bytes());
        } else {
            return Error{Errc::BadFile, file.path() + " is a shape without weights"};
        }
        const std::byte* base = memory_.data() + item.offset;
        for (DeviceMatrix* matrix : item.matrices) *matrix = item.feed->at(base);
        if (item.list != nullptr) *item.list = reinterpret_cast<const std::int32_t*>(base);
        for (const float** vector : item.vectors) *vector = reinterpret_cast<const float*>(base);
        if (item.feed == nullptr || synthetic) continue;
        for (const TensorView& tensor : item.feed->tensors()) {
            if (tensor.name != "given") file.release(tensor);
        }
    }
    stream.finish();
    if (!wrong_.empty())
        return Error{Errc::BadFile,
                     file.path() + ": " + wrong_ + "; a new copy of the file is needed"};
    for (CudaHead& head : heads_) head.norm = final_.norm;
    items_.clear();
    return file.check_unchanged();
}

}  // namespace paceline
