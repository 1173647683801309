#include "launch/tools/oracle_backend.hpp"

#include <algorithm>
#include <cmath>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kTextSalt = 0x7465787400000001ULL;
constexpr std::uint64_t kDraftSalt = 0x6472616674000001ULL;
constexpr std::uint64_t kExitSalt = 0x6578697400000001ULL;
constexpr float kNever = -30.0F;  // the log-probability of all tokens without a rank

/// splitmix64 of all three.
std::uint64_t mixed(TokenId token, Position position, std::uint64_t salt) {
    std::uint64_t z = salt + (static_cast<std::uint64_t>(token) + 1) * 0x9e3779b97f4a7c15ULL +
                      (static_cast<std::uint64_t>(position) + 1) * 0xd1b54a32d192ed03ULL;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
}

/// Uniform in [0, 1).
double part_of_one(std::uint64_t drawn) {
    return static_cast<double>(drawn >> 11U) * 0x1.0p-53;
}

/// The probability that the first choice is right here: high or low, `accuracy` on average, so that
/// rules that ask how sure a model is have something to tell apart.
double sureness(double accuracy, double drawn) {
    constexpr double kSure = 0.95;
    constexpr double kUnsure = 0.40;
    if (accuracy <= kUnsure || accuracy >= kSure) return accuracy;
    const double sure = (accuracy - kUnsure) / (kSure - kUnsure);
    return drawn < sure ? kSure : kUnsure;
}

/// The probability of each rank to hold the target's token; none above the one before it.
std::array<double, 4> parts_of(double sure) {
    std::array<double, 4> parts{sure};
    for (std::size_t rank = 1; rank < 4; ++rank)
        parts[rank] = std::min((1.0 - sure) * kOracleRanks[rank - 1], parts[rank - 1]);
    return parts;
}

}  // namespace

TokenId oracle_next(TokenId token, Position position, int vocab_size) {
    const auto tokens = static_cast<std::uint64_t>(vocab_size);
    return static_cast<TokenId>(mixed(token, position, kTextSalt) % tokens);
}

OracleSaying oracle_saying(
    TokenId token, Position position, int vocab_size, double accuracy, std::uint64_t salt) {
    const TokenId right = oracle_next(token, position, vocab_size);
    const double sure = sureness(accuracy, part_of_one(mixed(token, position, salt)));
    const std::array<double, 4> parts = parts_of(sure);
    double drawn = part_of_one(mixed(token, position, salt + 1));
    OracleSaying saying{};
    bool placed = false;
    for (std::size_t rank = 0; rank < 4; ++rank) {
        const bool here = !placed && drawn < parts[rank];
        // Any tokens but the right one stand for the wrong ones.
        saying.tokens[rank] =
            here ? right
                 : static_cast<TokenId>((right + 1 + static_cast<TokenId>(rank)) % vocab_size);
        saying.log_probs[rank] =
            parts[rank] > 0 ? std::max(kNever, static_cast<float>(std::log(parts[rank]))) : kNever;
        placed = placed || here;
        drawn -= parts[rank];
    }
    return saying;
}

OracleBackend::OracleBackend(const ModelConfig& shape,
                             const CpuOptions& options,
                             Part part,
                             OracleAccuracy accuracy)
    : config_{shape},
      first_layer_{options.first_layer},
      last_layer_{options.last_layer < 0 ? shape.layers : options.last_layer},
      kv_slots_{options.kv_slots},
      final_head_{options.final_head},
      part_{part},
      accuracy_{accuracy} {
    PACE_CHECK(config_.dim >= 2 && config_.vocab_size >= 8,
               "a hidden state holds token and position, a vocabulary four wrong tokens");
}

bool OracleBackend::has_head(HeadId id) const {
    return id == HeadId::Final && (final_head_ || last_layer_ == config_.layers);
}

RunOutcome OracleBackend::run_layers(std::span<const Row> rows,
                                     HiddenRows placed,
                                     const CancelToken* cancel) {
    const std::span<float> hidden = placed.host();
    if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
    const auto dim = static_cast<std::size_t>(config_.dim);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        hidden[r * dim] = static_cast<float>(rows[r].token);
        hidden[r * dim + 1] = static_cast<float>(rows[r].position);
    }
    return RunOutcome::Done;
}

void OracleBackend::head(HeadId id, ConstHiddenRows placed, int rows, std::span<float> logits) {
    PACE_CHECK(has_head(id), "a head of this segment");
    const std::span<const float> hidden = placed.host();
    const auto dim = static_cast<std::size_t>(config_.dim);
    const auto vocab = static_cast<std::size_t>(config_.vocab_size);
    std::fill(logits.begin(), logits.end(), kNever);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        const auto token = static_cast<TokenId>(hidden[r * dim]);
        const auto position = static_cast<Position>(hidden[r * dim + 1]);
        const std::span<float> out = logits.subspan(r * vocab, vocab);
        const bool verifies = part_ == Part::Target && last_layer_ == config_.layers;
        if (verifies) {
            out[static_cast<std::size_t>(oracle_next(token, position, config_.vocab_size))] = 0.0F;
            continue;
        }
        const bool drafts = part_ == Part::Draft;
        const OracleSaying saying = oracle_saying(token, position, config_.vocab_size,
                                                  drafts ? accuracy_.draft : accuracy_.exit,
                                                  drafts ? kDraftSalt : kExitSalt);
        for (std::size_t rank = 0; rank < saying.tokens.size(); ++rank)
            out[static_cast<std::size_t>(saying.tokens[rank])] = saying.log_probs[rank];
    }
}

}  // namespace paceline
