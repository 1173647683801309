#include "launch/exit_heads.hpp"

#include <cmath>
#include <random>

#include "launch/draft_backend.hpp"

namespace paceline {

namespace {

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

void add_exit(const ExitConfig& exit,
              const ModelConfig& model,
              const std::vector<StageId>& names_to,
              ExitHeads& out) {
    ExitOptions& options = *out.options;
    HeadSpec spec{.tokens = short_list(exit.short_list, model.vocab_size)};
    if (exit.head == ExitHead::Random) spec.transform = random_transform(model.dim, exit.seed);
    if (spec.transform.empty() && spec.tokens.empty()) {
        out.final_head = true;
        options.head = HeadId::Final;
    } else {
        options.head = next_head(out);
        out.heads.push_back(std::move(spec));
    }
    options.names = exit.names;
    options.top = static_cast<std::uint32_t>(exit.top);
    if (exit.names) options.names_to = names_to;
    options.lockstep = exit.lockstep;
    options.proposes = exit.proposes;
    options.gate = static_cast<float>(exit.gate);
    options.early_max = static_cast<std::uint32_t>(exit.early_max);
    options.defers = exit.defers;
    options.defer_limit = exit.defer_limit;
}

}  // namespace

ExitHeads exit_heads(const ExitConfig& exit,
                     const ModelConfig& model,
                     bool at_exit,
                     bool last,
                     const std::vector<StageId>& names_to) {
    ExitHeads out;
    const bool looks_ahead = last && exit.ahead > 0;
    if (!at_exit && !looks_ahead) return out;
    out.options.emplace();
    if (at_exit) add_exit(exit, model, names_to, out);
    if (!looks_ahead) return out;
    for (int i = 0; i < exit.ahead; ++i) {
        out.options->ahead.push_back(next_head(out));
        const std::uint64_t seed = exit.seed + 1 + static_cast<std::uint64_t>(i);
        out.heads.push_back({.transform = random_transform(model.dim, seed),
                             .tokens = short_list(exit.short_list, model.vocab_size)});
    }
    out.options->ahead_top = static_cast<std::uint32_t>(exit.ahead_top);
    return out;
}

}  // namespace paceline
