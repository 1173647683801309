// Saboteur: kills and stops stages of a toy pipeline while it decodes, and measures how long the
// tokens stay away.
//
// Hosted in the conductor's loop beside the actor under test, so it acts between two handlers, on
// the supervisor's own thread. A strike is over when everything that was lost has joined again
// and a token came after that; the next one follows after a random gap.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/loop/actor.hpp"
#include "runtime/parent/supervisor.hpp"
#include "tests/support/toy/toy_pipeline.hpp"

namespace paceline::testing {

inline constexpr StageId kSaboteur{60001};

enum class Strike : std::uint8_t {
    Kill,            // SIGKILL
    KillTwo,         // and any stage, perhaps the same, within 50 ms
    KillInRecovery,  // and another stage, or the new incarnation, while the first comes back
    Pause,           // SIGSTOP, and SIGCONT after `pause`, whether it was replaced meanwhile or not
};

struct SabotagePlan {
    Strike strike = Strike::Kill;
    int signals = 0;  // at least, in all; 0: it only watches
    std::uint64_t seed = 1;
    Micros gap_max{40'000};            // between a recovery and the next strike
    Micros pause{0};                   // of Pause
    bool until_replaced = false;       // a pause goes on until the process was replaced
    std::optional<StageId> only = {};  // the process that is struck; empty: any
    // So that a run that hangs says where, instead of running into ctest's limit. No measure of
    // speed.
    Micros recovery_limit{120'000'000};  // without a token after a strike
    Micros run_limit{240'000'000};
};

class Saboteur final : public Actor {
public:
    Saboteur(const Supervisor& supervisor, const ToyPlan& toy, SabotagePlan plan);

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_peer(StageId peer, PeerChange change) override;
    /// To be told of every committed token.
    void on_token(Micros now);

    /// Everything was done and is over.
    [[nodiscard]] bool done() const;
    [[nodiscard]] int signals() const { return signals_; }
    /// Incarnations that have ended, for any reason.
    [[nodiscard]] int deaths() const;
    [[nodiscard]] int deaths_of(StageId process) const;
    /// From the first kill of a strike at an essential stage to the first token after everything
    /// had joined.
    [[nodiscard]] const std::vector<Micros>& recoveries() const { return recoveries_; }

private:
    void tick();
    void strike(Micros now);
    void follow_recovery(Micros now);
    void count_deaths();
    /// Signals a process if it is there.
    bool send(std::size_t home, int signal);
    [[nodiscard]] std::size_t any_home();
    [[nodiscard]] std::string state() const;

    const Supervisor& supervisor_;
    ToyPlan toy_;
    SabotagePlan plan_;
    std::vector<std::vector<StageId>> homes_;
    StageContext* context_ = nullptr;
    std::mt19937_64 random_;
    Micros started_{0};
    Micros due_{0};
    int signals_ = 0;
    std::map<StageId, std::uint32_t> epochs_;  // the newest that was seen
    std::set<StageId> lost_;                   // actors that are not back yet
    std::vector<Micros> recoveries_;

    // The strike that is under way.
    bool struck_ = false;
    bool essential_ = false;
    bool noticed_ = false;  // a loss was reported, or the pause is over
    Micros struck_at_{0};
    std::size_t victim_ = 0;
    pid_t victim_pid_ = 0;
    std::size_t second_home_ = 0;
    bool follows_ = false;  // the second strike waits for the first one's recovery
    std::optional<Micros> second_at_;
    std::optional<Micros> resume_at_;
};

}  // namespace paceline::testing
