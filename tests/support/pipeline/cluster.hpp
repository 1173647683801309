// Cluster: the real conductor, a draft and 1..4 segments in a ShuffledWorld whose stages can be
// killed and started anew, and a record of everything that the conductor's callers receive.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "tests/support/pipeline/pipeline.hpp"

namespace paceline::testing {

/// What the caller of one answer received.
struct ReceivedAnswer {
    std::vector<TokenId> tokens;
    std::vector<TokenScores> scores;  // each before its token
    std::vector<TokenScores> prompt_scores;
    int ends = 0;
    AnswerStats stats;
    Status status;
};

class Cluster {
public:
    explicit Cluster(PipelineOptions options, ConductorPlan plan = {});
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    /// The draft's oracle knows what follows.
    void teach(std::vector<TokenId> text);

    /// Answers are kept in `answers` in the order of the orders.
    Result<RequestId> submit(const Request& request, std::size_t stop_after = 0);

    void lose(StageId id);
    /// A fresh process: an empty actor, a cache full of garbage.
    void rejoin(StageId id);

    [[nodiscard]] bool all_ended() const;
    void run_until_ended();
    /// As a supervisor does: whom a stage reports is replaced.
    void replace_faulty();
    /// Until the last answer that was ordered has ended.
    void run_until_last_ended();
    void run_dry();
    void run_steps(int steps);
    [[nodiscard]] const SegmentActor& segment(int index) const;
    [[nodiscard]] const BatchScheduler& scheduler() const;

    ShuffledWorld world;
    ConductorActor conductor;
    std::vector<std::unique_ptr<ReceivedAnswer>> answers;
    std::function<bool()> cancelled;  // of the orders that follow

private:
    struct Segment {
        std::unique_ptr<FakeBackend> backend;
        std::unique_ptr<SegmentActor> actor;
    };
    static std::size_t place(int index);
    [[nodiscard]] bool drafts() const;

    static ConductorPlan complete(ConductorPlan plan, const PipelineOptions& options);
    void make_segment(int index);
    void make_draft();
    void connect();

    PipelineOptions options_;
    std::vector<Segment> segments_;
    std::unique_ptr<Actor> draft_;
    std::shared_ptr<Texts> texts_ = std::make_shared<Texts>();
    std::uint64_t sources_ = 0;
    bool conductor_is_over_ = false;
    std::size_t faults_seen_ = 0;
};

}  // namespace paceline::testing
