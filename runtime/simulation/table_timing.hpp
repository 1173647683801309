// TableTiming: a simulated world that takes the time of jobs and transfers from a cost table.
//
// Nothing is drawn: the same pipeline has the same time line every time. What the table does not
// know takes no time and is reported by error(), so that no projection is made of nothing.
//
//   a job       its record by rows and context, plus, for a label with heads, the model's record
//               "head" with as many rows. A table without "head" for this model is taken to mean
//               jobs with their heads; a job of heads alone (no rows) needs it.
//   a transfer  the record "FROM>TO" of its edge, by the rows of the batch or tensor
//
// Borrows the table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "runtime/simulation/cost_table.hpp"
#include "runtime/simulation/sim_timing.hpp"

namespace paceline {

/// What a process is, in the words of the table.
struct CostsOfProcess {
    std::string name;              // for its transfers: "FROM>TO"
    std::string fingerprint{"-"};  // of the model it runs
    std::uint32_t threads = 0;
    std::uint32_t neighbours = 0;
    /// The stage under which the table has the jobs of a name ("prefill", "verify", "draft",
    /// "exit", and "head" for what heads add to a job); a name that is not here is its own stage.
    std::map<std::string, std::string> jobs{};
};

class TableTiming final : public SimTiming {
public:
    /// `processes` by the address of their first actor. Edges without a record take `default_hop`.
    TableTiming(const CostTable& table,
                std::map<StageId, CostsOfProcess> processes,
                SimTime default_hop);

    [[nodiscard]] SimTime job(StageId process, const JobLabel& label, SimRandom& random) override;
    /// The quotient of the job's times with so many more neighbours and without, both with the
    /// process's share of the threads; 1 where the table has no such times.
    [[nodiscard]] double contention(StageId process,
                                    const JobLabel& label,
                                    std::uint32_t others) override;
    [[nodiscard]] SimTime hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom& random) override;
    [[nodiscard]] SimTime control_hop(SimRandom& /*random*/) override { return default_hop_; }
    [[nodiscard]] SimTime news(SimRandom& /*random*/) override { return default_hop_; }
    [[nodiscard]] SimTime load(StageId process, SimRandom& random) override;
    [[nodiscard]] SimTime kill(SimRandom& /*random*/) override { return default_hop_; }

    /// The first question to which the table had no answer.
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

private:
    [[nodiscard]] SimTime ask(const CostRecord& wanted);
    /// How a process has its device.
    struct Share {
        std::uint32_t threads;
        std::uint32_t neighbours;
    };
    [[nodiscard]] CostRecord record_of(const CostsOfProcess& costs,
                                       const char* job,
                                       const Share& share) const;
    [[nodiscard]] SimTime timed(const CostsOfProcess& costs,
                                const JobLabel& label,
                                const Share& share);

    const CostTable& table_;
    std::map<StageId, CostsOfProcess> processes_;
    std::map<std::tuple<StageId, StageId, std::uint32_t>, SimTime> hops_;  // by edge and rows
    SimTime default_hop_;
    std::optional<Error> error_;
};

}  // namespace paceline
