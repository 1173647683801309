// OracleBackend: a model without weights whose text is a function, for projections of models that
// this machine cannot run. Which of its candidates are right is drawn, with probabilities that are
// given.
//
//   target        its next token is a hash of (token, position): the text of every run
//   draft, exit   says the target's next token with probability `accuracy`, and how sure it is of
//                 each token: a calibrated distribution over the first four ranks, equal for equal
//                 (token, position)
//   look-ahead    a head after the last layer: the same of a later token, equally accurate at each
//   head          distance, and after wrong tokens too
//   self-draft    a target's row that leaves out sub-layers or ends before its last layer: says
//                 what a draft says
//
// With a `reliability` a draft is not calibrated: its probability is high where its first choice is
// right and low where it is wrong, and the other way round in 1 - reliability of the cases. With
// `accuracy` it sets where chains end by a stop rule, so M and alpha of a paper can be reproduced.
//
// With an `overconfidence` c above 1 a draft or exit says p^(1/c) where its first choice is right
// with probability p. In bad phases (oracle_phases.hpp) both are right less often and do not know
// it.
//
// A hidden state holds the row's token and position, and whether it was drafted: what an exit after
// any layer, and the head after the last one, need. Nothing is computed; time comes from a cost
// table. Without bad phases errors of a draft and of an exit are independent of each other and of
// those before, which real ones are not.
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "launch/simulate/oracle_phases.hpp"
#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"

namespace paceline {

/// How often the parts of a pipeline are right.
struct OracleAccuracy {
    double draft = 0.8;  // the draft's first choice is the target's token; 0 .. 1
    double exit = 0.6;   // the same of an exit's head
    std::optional<double> reliability = {};  // of a draft's probability; empty: it is calibrated
    double overconfidence = 1.0;             // >= 1; 1: none; without a reliability
    std::optional<OracleBadPhases> bad_phases = {};
};

/// Of a wrong first choice, the parts in which the target's token is the second, third and fourth:
/// together one half (less where the first is hardly ever right: no rank is likelier than the one
/// before it). What is left: it is further down.
inline constexpr std::array<double, 3> kOracleRanks{0.30, 0.12, 0.08};

/// The probability of a first choice that is probably right, and of one that is probably wrong.
inline constexpr double kOracleSure = 0.95;
inline constexpr double kOracleUnsure = 0.40;

/// What the oracle's model says after one hidden state.
struct OracleSaying {
    std::array<TokenId, 4> tokens;   // by rank
    std::array<float, 4> log_probs;  // of each
};

/// A number that is drawn for a position, uniform in [0, 1).
[[nodiscard]] double oracle_part_of_one(Position position, std::uint64_t salt);

/// How what a model says differs from how often it is right.
struct OracleSlant {
    double overconfidence = 1.0;  // as OracleAccuracy
    double accuracy = 1.0;        // its first choice is right so many times as often as it thinks
};

/// The target's token after `token` at `position`.
[[nodiscard]] TokenId oracle_next(TokenId token, Position position, int vocab_size);

/// What a model of this accuracy says there; `salt` tells models apart.
[[nodiscard]] OracleSaying oracle_saying(TokenId token,
                                         Position position,
                                         int vocab_size,
                                         double accuracy,
                                         std::uint64_t salt,
                                         std::optional<double> reliability = {},
                                         const OracleSlant& slant = {});

class OracleBackend final : public Backend {
public:
    enum class Part : std::uint8_t { Target, Draft };

    /// `shape` gives layers and vocabulary, `options` the segment, slots and heads.
    OracleBackend(const ModelConfig& shape,
                  const CpuOptions& options,
                  Part part,
                  OracleAccuracy accuracy);

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] int first_layer() const override { return first_layer_; }
    [[nodiscard]] int last_layer() const override { return last_layer_; }
    [[nodiscard]] std::int32_t kv_slots() const override { return kv_slots_; }
    [[nodiscard]] bool has_head(HeadId id) const override;

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows hidden,
                          const CancelToken* cancel) override;
    /// A head of an exit says what an exit says, whatever its short list.
    void head(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) override;
    RunOutcome run_adapter(std::span<const Row> rows,
                           ConstHiddenRows hidden,
                           HiddenRows out,
                           const CancelToken* cancel) override;

    [[nodiscard]] MemoryUse memory_use() const override { return {}; }
    [[nodiscard]] std::string equality_class() const override { return "oracle"; }

private:
    [[nodiscard]] bool drafted(const Row& row) const;
    [[nodiscard]] int looks_ahead(HeadId id) const;
    [[nodiscard]] OracleSaying saying(TokenId token, Position position, bool drafts);

    ModelConfig config_;
    int first_layer_;
    int last_layer_;
    std::int32_t kv_slots_;
    bool final_head_;
    std::size_t heads_;  // of exits, or that look ahead
    bool adapter_;
    Part part_;
    OracleAccuracy accuracy_;
    std::optional<OraclePhases> phases_;
};

}  // namespace paceline
