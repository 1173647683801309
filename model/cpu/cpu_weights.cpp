#include "model/cpu/cpu_weights.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <span>
#include <string>

#include "model/cpu/synthetic_tile.hpp"
#include "model/kernels/cpu/isa.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/synthetic/synthetic_rows.hpp"

namespace paceline {
namespace {

PackedMatrix planned(const TensorView& tensor, Dtype dtype, MatrixUse use) {
    return {packed_type(tensor, dtype, use), static_cast<int>(tensor.rows),
            static_cast<int>(tensor.cols), nullptr};
}

/// A vector of the file as floats. Norms and biases decide every row: a NaN there is refused.
Status read_vector(const TensorView& tensor, const std::string& path, std::vector<float>& out) {
    out.resize(static_cast<std::size_t>(tensor.rows * tensor.cols));
    dequantize_row(tensor, 0, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (std::isfinite(out[i])) continue;
        return Error{Errc::BadFile, fmt::format("{}: tensor {} element {} is not a finite number",
                                                path, tensor.name, i)};
    }
    return {};
}

}  // namespace

CpuWeights CpuWeights::plan(const ModelFile& file, const CpuOptions& options) {
    const Dtype dtype = options.dtype;
    const int first_layer = options.first_layer;
    const int last_layer = options.last_layer < 0 ? file.config().layers : options.last_layer;
    CpuWeights weights;
    weights.first_layer_ = first_layer;
    weights.last_layer_ = last_layer;
    for (int l = first_layer; l < last_layer; ++l) {
        const LayerTensors& from = file.layer(l);
        CpuLayer& to = weights.layers_.emplace_back();
        if (!options.skipped.skips(2 * l)) {
            to.q = planned(from.q, dtype, MatrixUse::Layer);
            to.k = planned(from.k, dtype, MatrixUse::Layer);
            to.v = planned(from.v, dtype, MatrixUse::Layer);
            to.attn_out = planned(from.attn_out, dtype, MatrixUse::Layer);
        }
        if (options.skipped.skips(2 * l + 1)) continue;
        to.gate = planned(from.gate, dtype, MatrixUse::Layer);
        to.up = planned(from.up, dtype, MatrixUse::Layer);
        to.down = planned(from.down, dtype, MatrixUse::Layer);
    }
    weights.has_embedding_ = first_layer == 0;
    weights.has_head_ = options.final_head || last_layer == file.config().layers;
    for (const HeadSpec& spec : options.heads)
        weights.has_head_ = weights.has_head_ || spec.tokens.empty();
    if (options.adapter && options.adapter->tokens.empty()) weights.has_head_ = true;
    weights.has_norm_ = weights.has_head_ || !options.heads.empty();
    weights.head_is_embedding_ =
        weights.has_embedding_ && weights.has_head_ && file.config().tied_embeddings;
    weights.embedding_ = planned(file.embedding(), dtype, MatrixUse::Vocabulary);
    weights.head_ = planned(file.output_head(), dtype, MatrixUse::Vocabulary);
    weights.plan_heads(file, options);
    return weights;
}

void CpuWeights::plan_heads(const ModelFile& file, const CpuOptions& options) {
    const int dim = file.config().dim;
    // Not int8: beside the ones of its diagonal, a trained transform's small numbers would drown
    // in a group's scale, for 10 microseconds a row (dim 576).
    const PackedType type = head_.type == PackedType::F32 ? PackedType::F32 : PackedType::BF16;
    for (const HeadSpec& spec : options.heads) {
        CpuHead& head = heads_.emplace_back();
        head.tokens = spec.tokens;
        head.norm_first = spec.norm_first;
        head.block = spec.block;
        head.output = head_;
        if (!spec.tokens.empty()) head.output.rows = static_cast<int>(spec.tokens.size());
        if (!spec.transform.empty()) head.transform = {type, dim, dim, nullptr};
    }
}

std::vector<WeightSource> CpuWeights::sources(const ModelFile& file) {
    std::vector<WeightSource> list;
    if (has_embedding_ && !head_is_embedding_) list.push_back({&embedding_, &file.embedding()});
    for (int l = first_layer_; l < last_layer_; ++l) {
        const LayerTensors& from = file.layer(l);
        CpuLayer& to = layers_[static_cast<std::size_t>(l - first_layer_)];
        list.push_back({&to.q, &from.q});
        list.push_back({&to.k, &from.k});
        list.push_back({&to.v, &from.v});
        list.push_back({&to.attn_out, &from.attn_out});
        list.push_back({&to.gate, &from.gate});
        list.push_back({&to.up, &from.up});
        list.push_back({&to.down, &from.down});
    }
    if (has_head_) list.push_back({&head_, &file.output_head()});
    std::erase_if(list, [](const WeightSource& source) { return source.matrix->rows == 0; });
    return list;
}

std::uint64_t CpuWeights::packed_bytes() const {
    std::uint64_t total = 0;
    for (const CpuLayer& layer : layers_) {
        for (const PackedMatrix* m :
             {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
            total += m->bytes();
        }
    }
    if (has_embedding_ && !head_is_embedding_) total += embedding_.bytes();
    if (has_head_) total += head_.bytes();
    for (const CpuHead& head : heads_) {
        total += head.transform.bytes();
        if (!head.tokens.empty()) total += head.output.bytes();
    }
    return total;
}

/// What a pass reads: not the rows of an embedding that is no head.
std::uint64_t CpuWeights::pass_bytes() const {
    const bool embeds_only = has_embedding_ && !head_is_embedding_;
    return packed_bytes() - (embeds_only ? embedding_.bytes() : 0);
}

/// Weights that are too many to stay in the cache from one pass to the next go past it. Three
/// quarters: what else is in use there (rows, keys, a neighbour's) takes its part.
void CpuWeights::choose_cache() {
    const bool past = prefetches_past_cache() && pass_bytes() > last_level_cache() / 4 * 3;
    for (CpuLayer& layer : layers_) {
        for (PackedMatrix* m :
             {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
            m->past_cache = past;
        }
    }
    head_.past_cache = past;
    for (CpuHead& head : heads_) {
        head.transform.past_cache = past;
        head.output.past_cache = past;
    }
}

Status CpuWeights::read_vectors(const ModelFile& file) {
    for (int l = first_layer_; l < last_layer_; ++l) {
        const LayerTensors& from = file.layer(l);
        CpuLayer& to = layers_[static_cast<std::size_t>(l - first_layer_)];
        const std::pair<const TensorView*, std::vector<float>*> vectors[] = {
            {&from.attn_norm, &to.attn_norm},
            {&from.ffn_norm, &to.ffn_norm},
            {from.q_bias ? &*from.q_bias : nullptr, &to.q_bias},
            {from.k_bias ? &*from.k_bias : nullptr, &to.k_bias},
            {from.v_bias ? &*from.v_bias : nullptr, &to.v_bias},
            {from.q_norm ? &*from.q_norm : nullptr, &to.q_norm},
            {from.k_norm ? &*from.k_norm : nullptr, &to.k_norm},
        };
        for (const auto& [tensor, out] : vectors) {
            if (tensor == nullptr) continue;
            if (Status read = read_vector(*tensor, file.path(), *out); !read) return read;
        }
    }
    if (!has_norm_) return {};
    return read_vector(file.output_norm(), file.path(), output_norm_);
}

/// Packs some tiles of a matrix, which has its place in the arena, with all threads.
void CpuWeights::pack(const Stretch& stretch, ThreadTeam& team) {
    const TensorView& tensor = *stretch.source->tensor;
    const PackedMatrix& matrix = *stretch.source->matrix;
    const int tiles = stretch.last_tile - stretch.first_tile;
    // Of all that may take part: the team's size may grow as the run begins.
    std::vector<std::optional<std::int64_t>> wrong(static_cast<std::size_t>(team.capacity()));
    auto work = [&](int thread) {
        std::vector<float> scratch(static_cast<std::size_t>(matrix.groups()) * kGroup);
        wrong[static_cast<std::size_t>(thread)] =
            pack_tiles(tensor, matrix, stretch.first_tile + tiles * thread / team.size(),
                       stretch.first_tile + tiles * (thread + 1) / team.size(), scratch);
    };
    team.run(work);
    for (const std::optional<std::int64_t>& row : wrong) {
        if (row && wrong_.empty())
            wrong_ = fmt::format("tensor {} holds a number that is not finite, in row {}{}",
                                 quoted_text(tensor.name), *row,
                                 tensor.added != nullptr ? " (or, with the LoRA added, one beyond "
                                                           "float16; --dtype bf16 holds it)"
                                                         : "");
    }
}

void CpuWeights::pack(const TensorView& tensor, PackedMatrix& matrix, ThreadTeam& team) {
    matrix.data = arena_.take(matrix.bytes());
    const WeightSource source{&matrix, &tensor};
    pack(Stretch{&source, 0, matrix.tiles(), {}}, team);
}

Status CpuWeights::check_numbers(const ModelFile& file) const {
    if (wrong_.empty()) return {};
    return Error{Errc::BadFile, file.path() + ": " + wrong_ + "; a new copy of the file is needed"};
}

/// Packs a tensor without bytes, or the rows of it in `list`, from made-up numbers. The matrix has
/// its place in the arena.
void CpuWeights::make_up(const TensorView& tensor,
                         std::span<const TokenId> list,
                         PackedMatrix& matrix,
                         ThreadTeam& team) {
    const std::uint64_t seed = random_seed(random_, tensor.name);
    const int tiles = matrix.tiles();
    auto work = [&](int thread) {
        std::vector<float> scratch(static_cast<std::size_t>(matrix.groups()) * kGroup);
        SyntheticTile made{matrix, seed, list};
        const int last = tiles * (thread + 1) / team.size();
        for (int tile = tiles * thread / team.size(); tile < last; ++tile) made.pack(tile, scratch);
    };
    team.run(work);
}

void CpuWeights::pack(const std::vector<float>& values, PackedMatrix& matrix, ThreadTeam& team) {
    TensorView tensor{"given", StoredType::F32, matrix.rows, matrix.cols};
    const auto bytes = std::as_bytes(std::span(values));
    tensor.data = bytes.data();
    tensor.bytes = bytes.size();
    pack(tensor, matrix, team);
}

void CpuWeights::pack_list(const TensorView& all, CpuHead& head, ThreadTeam& team) {
    if (all.data == nullptr) {
        head.output.data = arena_.take(head.output.bytes());
        return make_up(all, head.tokens, head.output, team);
    }
    std::vector<std::byte> listed;
    listed.reserve(head.tokens.size() * all.row_bytes());
    for (const TokenId token : head.tokens)
        listed.insert(listed.end(), all.row(token), all.row(token) + all.row_bytes());
    TensorView rows = all;
    rows.rows = head.output.rows;
    rows.data = listed.data();
    rows.bytes = listed.size();
    pack(rows, head.output, team);
}

void CpuWeights::pack_heads(const ModelFile& file, const CpuOptions& options, ThreadTeam& team) {
    for (std::size_t h = 0; h < heads_.size(); ++h) {
        CpuHead& head = heads_[h];
        if (head.transform.rows > 0) pack(options.heads[h].transform, head.transform, team);
        if (head.tokens.empty()) {
            head.output = head_;
        } else {
            pack_list(file.output_head(), head, team);
        }
    }
    if (!heads_.empty()) file.release(file.output_head());
}

/// Packs the matrices of the file, a stretch at a time.
Status CpuWeights::pack_file(const ModelFile& file, const CpuOptions& options, ThreadTeam& team) {
    constexpr std::size_t kStretchBytes = std::size_t{16} << 20;
    constexpr int kTilesOfThread = 4;  // at least: fewer would leave threads idle
    const std::vector<WeightSource> list = sources(file);
    for (const WeightSource& source : list)
        source.matrix->data = arena_.take(source.matrix->bytes());
    const std::vector<Stretch> stretches =
        stretches_of(list, kStretchBytes, kTilesOfThread * team.capacity());
    const auto total = static_cast<double>(packed_bytes());
    double done = 0;
    for (const Stretch& stretch : stretches) {
        PackedMatrix& matrix = *stretch.source->matrix;
        if (stretch.bytes.empty()) {
            make_up(*stretch.source->tensor, {}, matrix, team);
        } else {
            pack(stretch, team);
            file.release(stretch.bytes);
        }
        if (Status s = check_numbers(file); !s) return s;
        const int tiles = stretch.last_tile - stretch.first_tile;
        done += static_cast<double>(matrix.tile_bytes()) * tiles;
        if (options.progress) options.progress(done / total);
    }
    return {};
}

Result<CpuWeights> CpuWeights::load(const ModelFile& file,
                                    const CpuOptions& options,
                                    ThreadTeam& team) {
    if (is_synthetic(file) && !options.random)
        return Error{Errc::BadFile, file.path() + " is a shape without weights"};
    CpuWeights weights = plan(file, options);
    weights.random_ = options.random.value_or(0);
    weights.choose_cache();
    constexpr std::size_t kOfLayer = 7;
    const std::size_t matrices = kOfLayer * weights.layers_.size() + 2 + 2 * weights.heads_.size();
    Result<HugeArena> arena =
        HugeArena::make(weights.packed_bytes() + matrices * HugeArena::kAlignment);
    if (!arena) return arena.error();
    weights.arena_ = std::move(arena).value();
    if (Status packed = weights.pack_file(file, options, team); !packed) return packed.error();
    weights.pack_heads(file, options, team);
    if (Status s = weights.check_numbers(file); !s) return s.error();
    if (options.progress && !weights.heads_.empty()) options.progress(1.0);
    if (weights.head_is_embedding_) weights.embedding_ = weights.head_;
    if (Status read = weights.read_vectors(file); !read) return read.error();
    return weights;
}

// ---- An adapter

CpuWeights CpuWeights::plan_adapter(const ModelFile& file, const CpuOptions& options) {
    const AdapterSpec& spec = *options.adapter;
    const int dim = file.config().dim;
    const int q_dim = spec.heads * spec.head_dim;
    const int kv_dim = spec.kv_heads * spec.head_dim;
    CpuWeights weights;
    weights.first_layer_ = kAdapterLayer;
    weights.last_layer_ = kAdapterLayer + 1;
    CpuHead& head = weights.heads_.emplace_back();
    head.tokens = spec.tokens;
    head.output = planned(file.output_head(), options.dtype, MatrixUse::Vocabulary);
    if (!spec.tokens.empty()) head.output.rows = static_cast<int>(spec.tokens.size());
    const PackedType of_head = head.output.type;
    // Not F16: the numbers may leave its range.
    const PackedType type = of_head == PackedType::F16 ? PackedType::BF16
                            : is_plain(of_head)        ? of_head
                                                       : PackedType::Int8;
    CpuLayer& layer = weights.layers_.emplace_back();
    layer.q = {type, q_dim, dim, nullptr};
    layer.k = {type, kv_dim, dim, nullptr};
    layer.v = {type, kv_dim, dim, nullptr};
    layer.attn_out = {type, dim, q_dim, nullptr};
    return weights;
}

Result<CpuWeights> CpuWeights::load_adapter(const ModelFile& file,
                                            const CpuOptions& options,
                                            const PackedMatrix& whole,
                                            ThreadTeam& team) {
    const AdapterSpec& spec = *options.adapter;
    CpuWeights weights = plan_adapter(file, options);
    weights.random_ = options.random.value_or(0);
    constexpr std::size_t kMatrices = 5;
    Result<HugeArena> arena =
        HugeArena::make(weights.packed_bytes() + kMatrices * HugeArena::kAlignment);
    if (!arena) return arena.error();
    weights.arena_ = std::move(arena).value();
    CpuLayer& layer = weights.layers_.front();
    weights.pack(spec.q, layer.q, team);
    weights.pack(spec.k, layer.k, team);
    weights.pack(spec.v, layer.v, team);
    weights.pack(spec.attn_out, layer.attn_out, team);
    layer.attn_norm = spec.attn_norm;
    weights.output_norm_ = spec.out_norm;
    CpuHead& head = weights.heads_.front();
    if (head.tokens.empty()) {
        head.output = whole;
    } else {
        weights.pack_list(file.output_head(), head, team);
        file.release(file.output_head());
    }
    if (Status s = weights.check_numbers(file); !s) return s.error();
    return weights;
}

}  // namespace paceline
