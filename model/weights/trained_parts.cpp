#include "model/weights/trained_parts.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/weights/fingerprint.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"
#include "model/weights/sha256.hpp"

namespace paceline {
namespace {

constexpr int kLayersMax = 1024;
constexpr int kHeadsMax = 4096;
constexpr int kFfnMax = 1 << 20;
constexpr int kAheadMax = 64;

/// The heads of an attention that is rotated like the target's; Out: ModelConfig or AdapterSpec.
template <class Out>
void read_attention_shape(PartReader& reader, const ModelConfig& target, Out& out) {
    out.heads = reader.number("heads", 1, kHeadsMax);
    out.kv_heads = reader.number("kv_heads", 1, kHeadsMax);
    reader.same("head_dim", target.head_dim);
    out.head_dim = target.head_dim;
    if (out.heads % out.kv_heads != 0) {
        reader.fail(fmt::format("metadata \"heads\" is {}, no multiple of kv_heads {}", out.heads,
                                out.kv_heads));
    }
}

ModelConfig draft_config(PartReader& reader, const PartCard& card, const ModelConfig& target) {
    ModelConfig config = target;
    config.name = card.name;
    config.layers = reader.number("layers", 1, kLayersMax);
    reader.same("dim", target.dim);
    read_attention_shape(reader, target, config);
    config.ffn_dim = reader.number("ffn_dim", 1, kFfnMax);
    config.qkv_bias = false;
    config.qk_norm = false;
    return config;
}

LayerTensors read_layer(PartReader& reader, const ModelConfig& config, int index) {
    const std::string at = fmt::format("layers.{}.", index);
    LayerTensors layer;
    layer.attn_norm = reader.vector(at + "attn_norm", config.dim);
    layer.q = reader.matrix(at + "q", config.q_dim(), config.dim);
    layer.k = reader.matrix(at + "k", config.kv_dim(), config.dim);
    layer.v = reader.matrix(at + "v", config.kv_dim(), config.dim);
    layer.attn_out = reader.matrix(at + "attn_out", config.dim, config.q_dim());
    layer.ffn_norm = reader.vector(at + "ffn_norm", config.dim);
    layer.gate = reader.matrix(at + "gate", config.ffn_dim, config.dim);
    layer.up = reader.matrix(at + "up", config.ffn_dim, config.dim);
    layer.down = reader.matrix(at + "down", config.dim, config.ffn_dim);
    return layer;
}

void list_layer(const LayerTensors& layer, std::vector<TensorView>& out) {
    for (const TensorView* tensor :
         {&layer.attn_norm, &layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.ffn_norm,
          &layer.gate, &layer.up, &layer.down}) {
        out.push_back(*tensor);
    }
}

AdapterSpec read_adapter(PartReader& reader, const ModelConfig& target, int layer) {
    const std::string at = fmt::format("adapter.{}.", layer);
    AdapterSpec spec;
    read_attention_shape(reader, target, spec);
    const std::int64_t q_dim = std::int64_t{spec.heads} * spec.head_dim;
    const std::int64_t kv_dim = std::int64_t{spec.kv_heads} * spec.head_dim;
    spec.attn_norm = reader.vector_values(at + "attn_norm", target.dim);
    spec.q = reader.matrix_values(at + "q", q_dim, target.dim);
    spec.k = reader.matrix_values(at + "k", kv_dim, target.dim);
    spec.v = reader.matrix_values(at + "v", kv_dim, target.dim);
    spec.attn_out = reader.matrix_values(at + "attn_out", target.dim, q_dim);
    spec.out_norm = reader.vector_values(at + "out_norm", target.dim);
    return spec;
}

constexpr const char* kBlockKey = "ahead_block";
constexpr const char* kTreeKey = "ahead_tree";

HeadBlock read_block(PartReader& reader, const SafetensorsFile& file) {
    const std::string said = file.metadata(kBlockKey).value_or("transform");
    if (said == "residual") return HeadBlock::Residual;
    if (said != "transform") {
        reader.fail(fmt::format("metadata \"{}\" is {}, known are \"transform\" and \"residual\"",
                                kBlockKey, quoted_text(said)));
    }
    return HeadBlock::Linear;
}

/// "0.2.1": of head 1 the best token, below it the third of head 2, below it the second of head 3.
/// Empty: the text is no path.
std::vector<int> ranks_of(std::string_view text) {
    std::vector<int> ranks;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        int rank = 0;
        const auto [behind, error] = std::from_chars(at, end, rank);
        if (error != std::errc{} || rank < 0 || rank > kAheadRankMax) return {};
        ranks.push_back(rank);
        if (behind == end) return ranks;
        if (*behind != '.') return {};
        at = behind + 1;
    }
}

/// Paths of ranks with blanks between them, each after the one that it continues.
std::vector<AheadNode> read_tree(PartReader& reader, const SafetensorsFile& file, int heads) {
    const std::string text = file.metadata(kTreeKey).value_or("");
    std::vector<AheadNode> tree;
    std::map<std::vector<int>, std::int16_t> places;
    places.emplace(std::vector<int>{}, std::int16_t{-1});
    std::string_view rest = text;
    const auto refuse = [&](std::string_view path, const std::string& what) {
        reader.fail(fmt::format("metadata \"{}\" has {}, {}", kTreeKey, quoted_text(path), what));
        return std::vector<AheadNode>{};
    };
    while (!rest.empty()) {
        const std::string_view path = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(path.size() + 1, rest.size()));
        std::vector<int> ranks = ranks_of(path);
        if (ranks.empty()) {
            return refuse(path, fmt::format("must be ranks of 0 to {} with dots between them",
                                            kAheadRankMax));
        }
        if (static_cast<int>(ranks.size()) > heads)
            return refuse(path, fmt::format("the file has {} look-ahead heads", heads));
        if (tree.size() == kAheadNodesMax)
            return refuse(path, fmt::format("more than {} nodes", kAheadNodesMax));
        if (places.contains(ranks)) return refuse(path, "which is there already");
        const auto parent = places.find(std::vector<int>(ranks.begin(), ranks.end() - 1));
        if (parent == places.end())
            return refuse(path, "must come after the path that it continues");
        tree.push_back({parent->second, static_cast<std::uint8_t>(ranks.back())});
        places.emplace(std::move(ranks), static_cast<std::int16_t>(tree.size() - 1));
    }
    return tree;
}

}  // namespace

Result<PartCard> open_card(const std::string& path) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    return read_card(file.value());
}

Status check_target(const PartCard& card, const std::string& path, const ModelFile& target) {
    const std::uint64_t fingerprint = target.fingerprint();
    if (card.target == fingerprint) return {};
    return Error{Errc::BadArgument, path + " was made for the model with the fingerprint " +
                                        fingerprint_text(card.target) + ", " + target.path() +
                                        " has " + fingerprint_text(fingerprint)};
}

namespace {

/// Whatever target it is for.
Result<OpenedPart> open_kind(const std::string& path, PartKind kind) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    Result<PartCard> card = read_card(file.value());
    if (!card) return card.error();
    if (card.value().kind != kind) {
        return Error{Errc::BadArgument, path + ": paceline.part is \"" +
                                            name_of(card.value().kind) + "\", wanted is \"" +
                                            name_of(kind) + "\""};
    }
    return OpenedPart{std::move(file).value(), std::move(card).value()};
}

}  // namespace

Result<OpenedPart> open_part(const std::string& path, PartKind kind, const ModelFile& target) {
    Result<OpenedPart> part = open_kind(path, kind);
    if (!part) return part;
    if (Status s = check_target(part.value().card, path, target); !s) return s.error();
    return part;
}

namespace {

/// Layers and final norm of a draft.
ModelParts read_draft_parts(PartReader& reader, const PartCard& card, const ModelFile& target) {
    ModelParts parts;
    parts.format = "trained part";
    parts.config = draft_config(reader, card, target.config());
    for (int i = 0; i < parts.config.layers && reader.status().ok(); ++i) {
        parts.layers.push_back(read_layer(reader, parts.config, i));
        list_layer(parts.layers.back(), parts.tensors);
    }
    parts.output_norm = reader.vector("output_norm", target.config().dim);
    parts.tensors.push_back(parts.output_norm);
    return parts;
}

/// A model of these parts that borrows the rest from `target`.
ModelFile borrowing(ModelParts parts, SafetensorsFile file, const ModelFile& target) {
    parts.embedding = target.embedding();
    parts.output_head = target.output_head();
    parts.data_start = file.contents().data_start;
    return ModelFile{std::make_unique<ModelFile::Contents>(
        ModelFile::Contents{std::move(file).take_file(), std::move(parts), &target.contents()})};
}

}  // namespace

Result<DraftPart> open_draft_part(const std::string& path, const ModelFile& target) {
    Result<OpenedPart> part = open_part(path, PartKind::Draft, target);
    if (!part) return part.error();
    SafetensorsFile& file = part.value().file;
    PartReader reader{file, target.config()};
    ModelParts parts = read_draft_parts(reader, part.value().card, target);
    std::vector<TokenId> tokens = reader.tokens();
    std::vector<float> transform;
    if (reader.has("transform")) {
        const int dim = target.config().dim;
        parts.tensors.push_back(reader.matrix("transform", dim, dim));
        transform = reader.matrix_values("transform", dim, dim);
    }
    reader.refuse_leftovers();
    if (!reader.status().ok()) return reader.status().error();
    PartCard card = std::move(part.value().card);
    return DraftPart{std::move(card), borrowing(std::move(parts), std::move(file), target),
                     std::move(tokens), std::move(transform)};
}

Result<EaglePart> open_eagle_part(const std::string& path, const ModelFile& target) {
    Result<OpenedPart> part = open_part(path, PartKind::Eagle, target);
    if (!part) return part.error();
    SafetensorsFile& file = part.value().file;
    PartReader reader{file, target.config()};
    ModelParts parts = read_draft_parts(reader, part.value().card, target);
    if (parts.config.layers != 1)
        reader.fail(
            fmt::format("metadata \"layers\" is {}, an EAGLE draft has 1", parts.config.layers));
    const int dim = target.config().dim;
    EagleSpec spec;
    parts.tensors.push_back(reader.matrix("fuse", dim, 2 * std::int64_t{dim}));
    spec.fuse = reader.matrix_values("fuse", dim, 2 * std::int64_t{dim});
    if (file.metadata("feature_layers")) {
        spec.layers = reader.layers("feature_layers");
        const auto states = static_cast<std::int64_t>(spec.layers.size());
        if (spec.layers.empty()) reader.fail("metadata \"feature_layers\" names none");
        if (spec.layers.size() > kFeatureLayersMax) {
            reader.fail(fmt::format("metadata \"feature_layers\" is \"{}\", may name {} layers",
                                    *file.metadata("feature_layers"), kFeatureLayersMax));
        }
        parts.tensors.push_back(reader.matrix("join", dim, states * dim));
        spec.join = reader.matrix_values("join", dim, states * dim);
    }
    std::vector<TokenId> tokens = reader.tokens();
    reader.refuse_leftovers();
    if (!reader.status().ok()) return reader.status().error();
    PartCard card = std::move(part.value().card);
    return EaglePart{std::move(card), borrowing(std::move(parts), std::move(file), target),
                     std::move(tokens), std::move(spec)};
}

Result<HeadsPart> open_heads_part(const std::string& path, const ModelFile& target) {
    Result<OpenedPart> part = open_part(path, PartKind::Heads, target);
    if (!part) return part.error();
    const ModelConfig& config = target.config();
    PartReader reader{part.value().file, config};
    HeadsPart heads;
    heads.norm_first = reader.flag("norm_first");
    const auto transform = [&](const std::string& name) {
        return reader.matrix_values(name + ".transform", config.dim, config.dim);
    };
    for (int layer = 1; layer <= config.layers; ++layer) {
        const std::string name = fmt::format("exit.{}", layer);
        const bool said = part.value().file.metadata(name) && reader.flag(name);
        if (said || reader.has(name + ".transform")) heads.exits.emplace(layer, transform(name));
    }
    for (int j = 1; j <= kAheadMax && reader.has(fmt::format("ahead.{}.transform", j)); ++j)
        heads.ahead.push_back(transform(fmt::format("ahead.{}", j)));
    heads.ahead_block = read_block(reader, part.value().file);
    if (heads.ahead_block == HeadBlock::Residual && !heads.norm_first)
        reader.fail(
            "metadata \"norm_first\" is \"0\", must be \"1\" with ahead_block \"residual\"");
    heads.ahead_tree = read_tree(reader, part.value().file, static_cast<int>(heads.ahead.size()));
    heads.tokens = reader.tokens();
    reader.refuse_leftovers();
    if (!reader.status().ok()) return reader.status().error();
    heads.card = std::move(part.value().card);
    return heads;
}

Result<AdapterPart> open_adapter_part(const std::string& path, const ModelFile& target) {
    Result<OpenedPart> part = open_part(path, PartKind::Adapter, target);
    if (!part) return part.error();
    const ModelConfig& config = target.config();
    PartReader reader{part.value().file, config};
    AdapterPart out;
    const std::vector<TokenId> tokens = reader.tokens();
    for (int layer = 1; layer <= config.layers && reader.status().ok(); ++layer) {
        if (!reader.has(fmt::format("adapter.{}.q", layer))) continue;
        AdapterSpec spec = read_adapter(reader, config, layer);
        spec.tokens = tokens;
        out.adapters.emplace(layer, std::move(spec));
    }
    if (out.adapters.empty()) reader.fail("has no tensor \"adapter.LAYER.q\"");
    reader.refuse_leftovers();
    if (!reader.status().ok()) return reader.status().error();
    out.card = std::move(part.value().card);
    return out;
}

const Probe* ProbePart::find(int layer, ProbeHead head, ProbeMode mode) const {
    const auto found = std::find_if(probes.begin(), probes.end(), [&](const Probe& probe) {
        return probe.layer == layer && probe.head == head && probe.mode == mode;
    });
    return found == probes.end() ? nullptr : &*found;
}

Result<std::string> file_digest(const std::string& path) {
    constexpr std::size_t kDigits = 16;
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    return sha256_text(file.value().bytes()).substr(0, kDigits);
}

namespace {

/// Which of a file's probes are for `target`; it names the plain target if it names a LoRA.
struct ProbesFor {
    bool lens = true;
    bool trained = true;
};

Result<ProbesFor> probes_for(const OpenedPart& part, const ModelFile& target) {
    const std::string path = part.file.path();
    const std::string named = part.file.metadata("lora").value_or("");
    const bool of_plain =
        target.lora() != nullptr && part.card.target == target.plain_fingerprint();
    if (!of_plain || named.empty()) {
        if (Status s = check_target(part.card, path, target); !s) return s.error();
        return ProbesFor{.lens = named.empty() || target.lora() != nullptr, .trained = true};
    }
    const Result<std::string> merged = file_digest(target.lora()->path);
    if (!merged) return merged.error();
    if (merged.value() != named) {
        return Error{Errc::BadArgument, path + " was made for the LoRA with the SHA-256 " +
                                            quoted_text(named) + "..., " + target.lora()->path +
                                            " has " + quoted_text(merged.value()) + "..."};
    }
    return ProbesFor{.lens = true, .trained = false};
}

}  // namespace

Result<ProbePart> open_probe_part(const std::string& path, const ModelFile& target) {
    Result<OpenedPart> part = open_kind(path, PartKind::Probe);
    if (!part) return part.error();
    const Result<ProbesFor> wanted = probes_for(part.value(), target);
    if (!wanted) return wanted.error();
    const ModelConfig& config = target.config();
    PartReader reader{part.value().file, config};
    ProbePart out;
    bool any = false;
    for (int layer = 1; layer <= config.layers && reader.status().ok(); ++layer) {
        for (const ProbeHead head : {ProbeHead::Lens, ProbeHead::Trained}) {
            for (const ProbeMode mode : {ProbeMode::Greedy, ProbeMode::Sampled}) {
                const std::string at =
                    fmt::format("exit.{}.{}.{}.", layer, name_of(head), name_of(mode));
                if (!reader.has(at + "v") && !reader.has(at + "b")) continue;
                Probe probe{.layer = layer, .head = head, .mode = mode};
                probe.v = reader.vector_values(at + "v", config.dim);
                const std::vector<float> b = reader.vector_values(at + "b", 1);
                if (reader.status().ok()) probe.b = b.front();
                any = true;
                if (head == ProbeHead::Lens ? wanted.value().lens : wanted.value().trained)
                    out.probes.push_back(std::move(probe));
            }
        }
    }
    if (!any) reader.fail("has no tensor \"exit.LAYER.HEAD.MODE.v\"");
    reader.refuse_leftovers();
    if (!reader.status().ok()) return reader.status().error();
    if (out.probes.empty()) {
        return Error{Errc::BadArgument,
                     path + ": its probes are for " +
                         (target.lora() == nullptr ? "the target with a LoRA merged"
                                                   : "heads of the target without a LoRA")};
    }
    out.card = std::move(part.value().card);
    return out;
}

}  // namespace paceline
