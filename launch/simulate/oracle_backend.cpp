#include "launch/simulate/oracle_backend.hpp"

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
    if (accuracy <= kOracleUnsure || accuracy >= kOracleSure) return accuracy;
    const double sure = (accuracy - kOracleUnsure) / (kOracleSure - kOracleUnsure);
    return drawn < sure ? kOracleSure : kOracleUnsure;
}

/// What is said where the ranks have these probabilities, by a model that is too sure.
std::array<double, 4> overconfident(std::array<double, 4> parts, double overconfidence) {
    const double first = std::pow(parts[0], 1.0 / overconfidence);
    const double others = parts[0] < 1.0 ? (1.0 - first) / (1.0 - parts[0]) : 1.0;
    for (std::size_t rank = 1; rank < 4; ++rank) parts[rank] *= others;
    parts[0] = first;
    return parts;
}

/// The probability of each rank to hold the target's token; none above the one before it.
std::array<double, 4> parts_of(double sure) {
    std::array<double, 4> parts{sure};
    for (std::size_t rank = 1; rank < 4; ++rank)
        parts[rank] = std::min((1.0 - sure) * kOracleRanks[rank - 1], parts[rank - 1]);
    return parts;
}

}  // namespace

double oracle_part_of_one(Position position, std::uint64_t salt) {
    return part_of_one(mixed(0, position, salt));
}

TokenId oracle_next(TokenId token, Position position, int vocab_size) {
    const auto tokens = static_cast<std::uint64_t>(vocab_size);
    return static_cast<TokenId>(mixed(token, position, kTextSalt) % tokens);
}

OracleSaying oracle_saying(TokenId token,
                           Position position,
                           int vocab_size,
                           double accuracy,
                           std::uint64_t salt,
                           std::optional<double> reliability,
                           const OracleSlant& slant) {
    const TokenId right = oracle_next(token, position, vocab_size);
    const double sign = part_of_one(mixed(token, position, salt));
    double drawn = part_of_one(mixed(token, position, salt + 1));
    const double thinks = reliability ? accuracy : sureness(accuracy, sign);
    const std::array<double, 4> parts = parts_of(thinks * slant.accuracy);
    std::array<double, 4> said = overconfident(parts_of(thinks), slant.overconfidence);
    if (reliability) {
        const bool sure = (drawn < parts[0]) == (sign < *reliability);
        said = parts_of(sure ? kOracleSure : kOracleUnsure);
        // All on the four ranks: the first has exactly the probability that was meant.
        const double others = said[1] + said[2] + said[3];
        for (std::size_t rank = 1; rank < 4; ++rank) said[rank] *= (1.0 - said[0]) / others;
    }
    OracleSaying saying{};
    bool placed = false;
    for (std::size_t rank = 0; rank < 4; ++rank) {
        const bool here = !placed && drawn < parts[rank];
        // Any tokens but the right one stand for the wrong ones.
        saying.tokens[rank] =
            here ? right
                 : static_cast<TokenId>((right + 1 + static_cast<TokenId>(rank)) % vocab_size);
        saying.log_probs[rank] =
            said[rank] > 0 ? std::max(kNever, static_cast<float>(std::log(said[rank]))) : kNever;
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
      heads_{options.heads.size()},
      adapter_{options.adapter.has_value()},
      part_{part},
      accuracy_{accuracy} {
    if (accuracy_.bad_phases) phases_.emplace(*accuracy_.bad_phases);
    PACE_CHECK(config_.dim >= 3 && config_.vocab_size >= 8,
               "a hidden state holds three numbers, a vocabulary four wrong tokens");
}

bool OracleBackend::has_head(HeadId id) const {
    if (id == HeadId::Adapter) return adapter_;
    if (id != HeadId::Final) return static_cast<std::size_t>(id) <= heads_;
    return final_head_ || last_layer_ == config_.layers;
}

RunOutcome OracleBackend::run_adapter(std::span<const Row> /*rows*/,
                                      ConstHiddenRows hidden,
                                      HiddenRows out,
                                      const CancelToken* cancel) {
    if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
    std::copy(hidden.host().begin(), hidden.host().end(), out.host().begin());
    return RunOutcome::Done;
}

/// Whether the row is not all of this segment's layers.
bool OracleBackend::drafted(const Row& row) const {
    if (row.last < 2 * last_layer_) return true;
    if (row.mask == nullptr) return false;
    for (std::int32_t sublayer = row.first; sublayer < row.last; ++sublayer) {
        if (row.mask->skips(sublayer)) return true;
    }
    return false;
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
        hidden[r * dim + 2] = drafted(rows[r]) ? 1.0F : 0.0F;
        if (rows[r].stack == nullptr) continue;
        // The same after each sub-layer: whatever reads residuals finds all layers alike.
        for (std::int32_t sublayer = rows[r].first; sublayer < rows[r].last; ++sublayer) {
            const auto at = static_cast<std::size_t>(sublayer - rows[r].first) * dim;
            std::copy_n(hidden.begin() + static_cast<std::ptrdiff_t>(r * dim), dim,
                        rows[r].stack + at);
        }
    }
    return RunOutcome::Done;
}

OracleSaying OracleBackend::saying(TokenId token, Position position, bool drafts) {
    const OracleSlant slant{.overconfidence = accuracy_.overconfidence,
                            .accuracy = phases_ ? phases_->accuracy(position) : 1.0};
    const int vocab = config_.vocab_size;
    if (drafts)
        return oracle_saying(token, position, vocab, accuracy_.draft, kDraftSalt,
                             accuracy_.reliability, slant);
    return oracle_saying(token, position, vocab, accuracy_.exit, kExitSalt, {}, slant);
}

/// Head i after the last layer says the token i places behind the target's own next one.
int OracleBackend::looks_ahead(HeadId id) const {
    const bool exits = id == HeadId::Final || id == HeadId::Adapter;
    return part_ == Part::Target && last_layer_ == config_.layers && !exits ? static_cast<int>(id)
                                                                            : 0;
}

void OracleBackend::head(HeadId id, ConstHiddenRows placed, int rows, std::span<float> logits) {
    PACE_CHECK(has_head(id), "a head of this segment");
    const std::span<const float> hidden = placed.host();
    const auto dim = static_cast<std::size_t>(config_.dim);
    const auto vocab = static_cast<std::size_t>(config_.vocab_size);
    std::fill(logits.begin(), logits.end(), kNever);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        auto token = static_cast<TokenId>(hidden[r * dim]);
        auto position = static_cast<Position>(hidden[r * dim + 1]);
        const std::span<float> out = logits.subspan(r * vocab, vocab);
        const bool self_drafted = part_ == Part::Target && hidden[r * dim + 2] > 0.0F;
        const bool verifies = part_ == Part::Target && id == HeadId::Final &&
                              last_layer_ == config_.layers && !self_drafted;
        if (verifies) {
            out[static_cast<std::size_t>(oracle_next(token, position, config_.vocab_size))] = 0.0F;
            continue;
        }
        for (int i = 0; !self_drafted && i < looks_ahead(id); ++i)
            token = oracle_next(token, position++, config_.vocab_size);
        const OracleSaying said = saying(token, position, part_ == Part::Draft || self_drafted);
        for (std::size_t rank = 0; rank < said.tokens.size(); ++rank)
            out[static_cast<std::size_t>(said.tokens[rank])] = said.log_probs[rank];
    }
}

}  // namespace paceline
