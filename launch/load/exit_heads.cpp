#include "launch/load/exit_heads.hpp"

#include <cmath>
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

void set_uses(const ExitConfig& exit,
              const std::vector<StageId>& candidates_to,
              ExitOptions& options) {
    options.sends_candidates = exit.sends_candidates;
    options.top = static_cast<std::uint32_t>(exit.top);
    if (exit.sends_candidates) options.candidates_to = candidates_to;
    options.lockstep = exit.lockstep;
    options.proposes = exit.proposes;
    options.gate = static_cast<float>(exit.gate);
    options.early_max = static_cast<std::uint32_t>(exit.early_max);
    options.defers = exit.defers;
    options.defer_limit = exit.defer_limit;
}

}  // namespace

Result<ExitParts> open_exit_parts(const ExitConfig& exit, const ModelFile& target) {
    ExitParts parts;
    const bool wants_heads = exit.head == ExitHead::Trained || exit.head == ExitHead::Adapter;
    if (!exit.heads_file.empty() && (wants_heads || exit.ahead > 0)) {
        Result<HeadsPart> heads = open_heads_part(exit.heads_file, target);
        if (!heads) return heads.error();
        parts.heads = std::move(heads).value();
    }
    if (!exit.adapter_file.empty() && exit.head == ExitHead::Adapter) {
        Result<AdapterPart> adapter = open_adapter_part(exit.adapter_file, target);
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
    out.options.emplace();
    out.options->always_on = exit.always_on;
    if (place.at_exit) {
        choose_head(exit, model, parts, place.last_layer, out);
        set_uses(exit, candidates_to, *out.options);
    }
    if (!looks_ahead) return out;
    const bool noise = exit.head == ExitHead::Random || !parts.heads;
    for (int i = 0; i < exit.ahead; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out.options->ahead.push_back(next_head(out));
        if (!noise && at < parts.heads->ahead.size()) {
            out.heads.push_back(trained_head(*parts.heads, parts.heads->ahead[at]));
            continue;
        }
        const std::uint64_t seed = kNoiseSeed + 1 + static_cast<std::uint64_t>(i);
        out.heads.push_back({.transform = random_transform(model.dim, seed),
                             .tokens = short_list(exit.short_list, model.vocab_size)});
    }
    out.options->ahead_top = static_cast<std::uint32_t>(exit.ahead_top);
    return out;
}

}  // namespace paceline
