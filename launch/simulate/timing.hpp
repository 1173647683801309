// StageTiming: the clock of `paceline simulate`: a TableTiming whose questions are those of a
// placed pipeline: which process runs jobs of which models, and what a hop costs.
//
// A measured table (cost_names.hpp) has "layers", "head" and "hop"; one written by hand may have
// "verify", "prefill", "draft" and "FROM>TO" instead. What is missing is found before anything
// runs. Owns its own copy of the records that it needs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "runtime/simulation/table_timing.hpp"

namespace paceline {

/// A model as a process runs it, in the names of the table.
struct ModelCosts {
    std::string layers;  // cost_name() without a short list
    std::string head;    // the same with that of its heads
};

struct StageCosts {
    StageId process;                   // its first actor
    std::vector<StageId> actors = {};  // all that share it
    std::string name;
    ModelCosts
        target{};  // of jobs "prefill", "verify", "optimise" and "exit"; empty names: it has none
    // Of jobs "draft", and of "optimise" where there is no target; empty names: the target drafts
    // with its own layers.
    ModelCosts draft{};
};

struct StageTimingOptions {
    std::uint32_t threads = 1;               // of every device
    std::uint32_t neighbours = 0;            // busy beside every device
    std::optional<double> hop_seconds = {};  // instead of what the table says
    /// A pass of the draft over one row takes this part of a pass of the whole target over one,
    /// instead of what the table says; more rows in the table's proportion.
    std::optional<double> draft_cost = {};
    int target_layers = 1;  // of the whole target
};

class StageTiming final : public SimTiming {
public:
    /// `edges` are the pipeline's. `file` names the table in messages.
    /// Errors: BadArgument naming the first record that is missing, and what measures it.
    [[nodiscard]] static Result<std::unique_ptr<StageTiming>> make(
        const CostTable& table,
        const std::string& file,
        const std::vector<StageCosts>& stages,
        const std::vector<EdgeSpec>& edges,
        const StageTimingOptions& options);

    [[nodiscard]] SimTime job(StageId process, const JobLabel& label, SimRandom& random) override;
    [[nodiscard]] double contention(StageId process,
                                    const JobLabel& label,
                                    std::uint32_t others) override;
    [[nodiscard]] SimTime hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom& random) override;
    [[nodiscard]] SimTime control_hop(SimRandom& random) override {
        return table_timing_->control_hop(random);
    }
    [[nodiscard]] SimTime news(SimRandom& random) override { return table_timing_->news(random); }
    [[nodiscard]] SimTime load(StageId process, SimRandom& random) override;
    [[nodiscard]] SimTime kill(SimRandom& random) override { return table_timing_->kill(random); }

    [[nodiscard]] const std::optional<Error>& error() const { return table_timing_->error(); }

private:
    /// Under which the table has the costs of a job.
    [[nodiscard]] StageId costs_at(StageId process, const JobLabel& label) const;

    StageTiming(CostTable table,
                std::map<StageId, CostsOfProcess> processes,
                SimTime default_hop,
                std::map<StageId, StageId> hosts,
                StageId target,
                const StageTimingOptions& options);

    CostTable table_;  // before the timing, which borrows it
    std::unique_ptr<TableTiming> table_timing_;
    std::map<StageId, StageId> hosts_;  // the process of every actor
    StageId target_;                    // a process that runs target layers
    std::set<StageId> draft_only_;      // processes that run none
    StageTimingOptions options_;
};

}  // namespace paceline
