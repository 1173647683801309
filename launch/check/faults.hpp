// StageFaults: the faults that `paceline check` injects into a running pipeline: kill -9, stops and
// continuations, and stages that are slowed down all the time.
//
// The token and answer at which a fault happens are drawn from the seed, so that a run can be
// repeated as far as processes allow. Stalls and slow stages have a helper thread
// (stopped_stages.hpp). tick() and the destructor are called by the session's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/check/stopped_stages.hpp"
#include "launch/session/pipeline_session.hpp"

namespace paceline {

/// "NAME:PERCENT". Errors: BadArgument quoting the word.
[[nodiscard]] Result<SlowStage> parse_slow_stage(const std::string& word);

struct FaultPlan {
    int kills = 0;
    int stalls = 0;
    std::vector<SlowStage> slow;
    std::uint64_t seed = 1;
};

enum class FaultKind : std::uint8_t { Kill, Stall };

/// When something happens: at the token-th token of the prompt-th answer, or at the first one
/// after it.
struct StageFault {
    std::size_t prompt = 0;
    std::size_t token = 0;
    FaultKind kind = FaultKind::Kill;
    friend bool operator==(const StageFault&, const StageFault&) = default;
};

/// The kills and stalls of a plan over `prompts` answers of at most `tokens` tokens, in order;
/// spread evenly over the answers.
[[nodiscard]] std::vector<StageFault> draw_faults(const FaultPlan& plan,
                                                  std::size_t prompts,
                                                  std::size_t tokens);

class StageFaults {
public:
    StageFaults(const FaultPlan& plan, std::size_t prompts, std::size_t tokens);

    /// A token of an answer has come. Only looks at its plan, and at the stages where it must.
    /// What is due happens one by one, each when the pipeline is whole again.
    void tick(std::size_t prompt, std::size_t token, const PipelineSession& session);

    [[nodiscard]] int kills() const { return kills_; }
    [[nodiscard]] int stalls() const { return stalls_; }

private:
    void happen(FaultKind kind, std::vector<SessionProcess> alive);

    std::vector<StageFault> due_;
    std::size_t next_ = 0;
    std::uint64_t ticks_ = 0;
    std::mt19937_64 random_;
    std::chrono::steady_clock::time_point last_{};  // fault
    int kills_ = 0;
    int stalls_ = 0;
    StoppedStages stopped_;
};

}  // namespace paceline
