#include "launch/load/exit_heads.hpp"

#include <cmath>
#include <fmt/core.h>
#include <random>

#include "launch/load/draft_backend.hpp"

namespace paceline {

namespace {

constexpr std::uint64_t kNoiseSeed = 1;

/// A T that keeps a vector's length on average and points anywhere.
std::vector<float> random_transform(int dim, std::uint64_t seed) {
    const auto n = static_cast<std::size_t>(dim);
    std::mt19937_64 bits{seed};
    const double bound = std::sqrt(3.0 / dim);  // of a uniform number with variance 1 / dim
    std::vector<float> transform(n * n);
    for (float& entry : transform) {
        const double unit = static_cast<double>(bits() >> 11U) * 0x1p-53;  // [0, 1)
        entry = static_cast<float>((2.0 * unit - 1.0) * bound);
    }
    return transform;
}

HeadId next_head(const ExitHeads& heads) {
    return HeadId{static_cast<std::uint8_t>(heads.heads.size() + 1)};
}

void add_head(HeadSpec spec, ExitHeads& out) {
    if (spec.transform.empty() && spec.tokens.empty()) {
        out.final_head = true;
        out.options->head = HeadId::Final;
        return;
    }
    out.options->head = next_head(out);
    out.heads.push_back(std::move(spec));
}

HeadSpec trained_head(const HeadsPart& part, const std::vector<float>& transform) {
    return {.transform = transform, .tokens = part.tokens, .norm_first = part.norm_first};
}

void choose_head(const ExitConfig& exit,
                 const ModelConfig& model,
                 const ExitParts& parts,
                 int layer,
                 ExitHeads& out) {
    switch (head_behind(layer, exit, parts)) {
        case ExitHead::Adapter:
            out.adapter = parts.adapter->adapters.at(layer);
            out.options->head = HeadId::Adapter;
            return;
        case ExitHead::Trained:
            return add_head(trained_head(*parts.heads, parts.heads->exits.at(layer)), out);
        case ExitHead::Random:
            return add_head({.transform = random_transform(model.dim, kNoiseSeed),
                             .tokens = short_list(exit.short_list, model.vocab_size)},
                            out);
        case ExitHead::LogitLens:
            return add_head({.tokens = short_list(exit.short_list, model.vocab_size)}, out);
    }
}

/// The part's metadata must say what `exit` asks for.
Status check_look_ahead(const ExitConfig& exit, const HeadsPart& part, const std::string& file) {
    const bool residual = part.ahead_block == HeadBlock::Residual;
    const bool wanted = exit.ahead_block == AheadBlock::Residual;
    if (residual != wanted) {
        const auto name = [](bool block) { return block ? "residual" : "transform"; };
        return Error{Errc::BadArgument,
                     fmt::format("{}: metadata \"ahead_block\" is \"{}\", [exit] ahead_block = "
                                 "\"{}\" needs a part with that block",
                                 file, name(residual), name(wanted))};
    }
    if (wanted && part.ahead.empty()) {
        return Error{Errc::BadArgument,
                     file +
                         ": has no tensor \"ahead.1.transform\", [exit] ahead_block = "
                         "\"residual\" needs look-ahead heads"};
    }
    if (exit.ahead_tree == AheadTree::Fixed && part.ahead_tree.empty()) {
        return Error{Errc::BadArgument,
                     file +
                         ": has no metadata \"ahead_tree\", which [exit] ahead_tree = \"fixed\" "
                         "needs; \"product\" has no need of it"};
    }
    return {};
}

}  // namespace

const std::string& look_ahead_file(const ExitConfig& exit, const PartFiles& files) {
    static const std::string kNone;
    switch (exit.ahead_block) {
        case AheadBlock::Residual:
            return files.ahead;
        case AheadBlock::Transform:
            return exit.head == ExitHead::Random ? kNone : files.heads;
        case AheadBlock::Random:
            break;
    }
    return kNone;
}

const HeadsPart* ExitParts::looking_ahead(const ExitConfig& exit) const {
    if (exit.ahead == 0 || exit.ahead_block == AheadBlock::Random) return nullptr;
    if (exit.ahead_block == AheadBlock::Residual) return residual ? &*residual : nullptr;
    return exit.head != ExitHead::Random && heads ? &*heads : nullptr;
}

std::vector<AheadNode> ahead_tree_of(const ExitConfig& exit, const HeadsPart& part) {
    std::vector<AheadNode> tree;
    std::vector<std::int16_t> places;  // of the part's nodes; kOut: deeper than the heads
    std::vector<int> depths;
    constexpr std::int16_t kOut = -2;
    for (const AheadNode& node : part.ahead_tree) {
        const auto parent = static_cast<std::size_t>(node.parent);
        depths.push_back(node.parent < 0 ? 1 : depths[parent] + 1);
        const bool kept = depths.back() <= exit.ahead;
        places.push_back(kept ? static_cast<std::int16_t>(tree.size()) : kOut);
        if (!kept) continue;
        tree.push_back({node.parent < 0 ? std::int16_t{-1} : places[parent], node.rank});
    }
    return tree;
}

Result<ExitParts> open_exit_parts(const ExitConfig& exit,
                                  const PartFiles& files,
                                  const ModelFile& target) {
    ExitParts parts;
    const bool wants_heads = exit.head == ExitHead::Trained || exit.head == ExitHead::Adapter;
    if (!files.heads.empty() && (wants_heads || exit.ahead > 0)) {
        Result<HeadsPart> heads = open_heads_part(files.heads, target);
        if (!heads) return heads.error();
        parts.heads = std::move(heads).value();
    }
    if (exit.ahead > 0 && exit.ahead_block == AheadBlock::Residual && !files.ahead.empty()) {
        Result<HeadsPart> residual = open_heads_part(files.ahead, target);
        if (!residual) return residual.error();
        parts.residual = std::move(residual).value();
    }
    if (const HeadsPart* ahead = parts.looking_ahead(exit)) {
        if (Status s = check_look_ahead(exit, *ahead, look_ahead_file(exit, files)); !s)
            return s.error();
    }
    if (!files.adapter.empty() && exit.head == ExitHead::Adapter) {
        Result<AdapterPart> adapter = open_adapter_part(files.adapter, target);
        if (!adapter) return adapter.error();
        parts.adapter = std::move(adapter).value();
    }
    return parts;
}

ExitHead head_behind(int layer, const ExitConfig& exit, const ExitParts& parts) {
    return resolved_head(exit.head, parts.adapter && parts.adapter->adapters.contains(layer),
                         parts.heads && parts.heads->exits.contains(layer));
}

ExitHeads exit_heads(const ExitConfig& exit,
                     const ModelConfig& model,
                     const ExitParts& parts,
                     const ExitPlace& place,
                     const std::vector<StageId>& candidates_to) {
    ExitHeads out;
    const bool looks_ahead = place.last && exit.ahead > 0;
    if (!place.at_exit && !looks_ahead) return out;
    if (place.at_exit) {
        out.options = exit.options;
        if (exit.options.sends_candidates) out.options->candidates_to = candidates_to;
        choose_head(exit, model, parts, place.last_layer, out);
    } else {
        out.options =
            ExitOptions{.ahead_top = exit.options.ahead_top, .always_on = exit.options.always_on};
    }
    if (!looks_ahead) return out;
    const HeadsPart* ahead = parts.looking_ahead(exit);
    if (ahead != nullptr && exit.ahead_tree == AheadTree::Fixed)
        out.options->ahead_tree = ahead_tree_of(exit, *ahead);
    for (int i = 0; i < exit.ahead; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out.options->ahead.push_back(next_head(out));
        if (ahead != nullptr && at < ahead->ahead.size()) {
            out.heads.push_back(trained_head(*ahead, ahead->ahead[at]));
            out.heads.back().block = ahead->ahead_block;
            continue;
        }
        const std::uint64_t seed = kNoiseSeed + 1 + static_cast<std::uint64_t>(i);
        out.heads.push_back({.transform = random_transform(model.dim, seed),
                             .tokens = short_list(exit.short_list, model.vocab_size)});
    }
    return out;
}

}  // namespace paceline
