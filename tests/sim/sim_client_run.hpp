// SimClientRun: one client of a simulated run: it asks its turns one after the other, and checks
// every token and every score against plain decoding of the same request.
//
// Borrows everything; what it finds goes to the world (violate()) and into the outcome. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "runtime/simulation/sim_world.hpp"
#include "tests/sim/sim_run.hpp"
#include "tests/sim/sim_scenario.hpp"
#include "tests/support/toy/toy_oracle.hpp"

namespace paceline::testing {

class SimClientRun {
public:
    SimClientRun(SimWorld& world,
                 ConductorActor& conductor,
                 SimTexts& texts,
                 const SimClient& script,
                 SimOutcome& outcome,
                 bool faults,
                 bool losses)
        : world_{world},
          conductor_{conductor},
          texts_{texts},
          script_{script},
          outcome_{outcome},
          faults_{faults},
          losses_{losses} {
        world_.call_at(script_.begins, [this] { ask(); });
    }
    SimClientRun(const SimClientRun&) = delete;
    SimClientRun& operator=(const SimClientRun&) = delete;

    [[nodiscard]] bool through() const { return turn_ >= script_.turns.size(); }
    /// From now on orders are refused and answers may end with an error.
    void drained() {
        drained_ = true;
        faults_ = true;
    }
    /// Of its last answer, if that ended with one.
    [[nodiscard]] const std::optional<std::string>& error() const { return error_; }
    [[nodiscard]] std::optional<RequestId> request() const { return request_; }

private:
    void ask();
    Go take(std::uint64_t number, TokenId token);
    void take(std::uint64_t number, Position position, const TokenScores& scores);
    void end(std::uint64_t number, const AnswerStats& stats, const Status& status);
    void next_turn();

    SimWorld& world_;
    ConductorActor& conductor_;
    SimTexts& texts_;
    const SimClient& script_;
    SimOutcome& outcome_;
    bool faults_;
    bool losses_;  // stages may be lost
    bool drained_ = false;
    std::optional<std::string> error_;
    std::size_t turn_ = 0;
    std::uint64_t asked_ = 0;  // orders submitted
    bool open_ = false;
    bool stopped_ = false;
    std::optional<RequestId> request_;
    std::size_t prompt_ = 0;
    std::vector<TokenId> expected_;
    Answer scored_;  // by plain decoding, and how many scores have come
    std::size_t scores_of_prompt_ = 0;
    std::size_t scores_of_answer_ = 0;
    std::size_t given_ = 0;
};

}  // namespace paceline::testing
