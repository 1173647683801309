// Placement: a PipelineConfig made concrete for one model on one machine: which stage has which
// layers, which process hosts which stages, and on which cores.
//
// Stage ids: the conductor is 0, segments are 1 .. segments() in the order of their layers, then
// come the draft and correct. A process is known by its first stage. Plain values, any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

struct PlacedStage {
    StageId id;
    std::string name;
    StageRole role = StageRole::Segment;
    LayerRange layers;  // of a segment; empty for others
    bool exit = false;  // of a segment
    Device device;
    OnDeath on_death = OnDeath::RebuildChain;
    std::uint32_t rows_max = kVerifyRowsMax;  // of a segment's largest batch, of a draft's pass
    std::int32_t retain_mb = 0;               // of a segment with another behind it
};

/// Another machine of a run.
struct OtherMachine {
    std::string name;
    int cores = 1;  // that stages may use there
};

struct PlacedProcess {
    std::string name;             // of its only stage, or as `process` in the file names it
    std::size_t machine = 0;      // 0: the conductor's; else the number of the other one, from 1
    std::string node;             // its name; empty: the conductor's
    std::vector<StageId> stages;  // in the order of their ids, never empty
    /// Never empty, in the order in which threads take them. Of another machine: places in its own
    /// order of the cores that stages may use.
    std::vector<int> cores;
    int threads = 1;        // 1 .. cores.size()
    bool may_spin = false;  // no other process computes on its cores: its threads may spin there
    OnDeath on_death = OnDeath::RebuildChain;  // the gravest of its stages' settings

    [[nodiscard]] StageId id() const { return stages.front(); }
    [[nodiscard]] bool hosts(StageId stage) const;
};

struct Placement {
    std::vector<PlacedStage> stages;  // by id: stages[i] is stage i + 1
    std::vector<PlacedProcess> processes;
    std::uint32_t prefill_rows = kVerifyRowsMax;  // of one request's prefill in a batch

    [[nodiscard]] const PlacedStage& stage(StageId id) const;
    [[nodiscard]] const PlacedProcess& process_of(StageId id) const;
    [[nodiscard]] int segments() const;
    [[nodiscard]] StageId verifier() const;              // the last segment
    [[nodiscard]] std::optional<StageId> draft() const;  // nothing: no draft
    [[nodiscard]] std::optional<StageId> correct() const;
    [[nodiscard]] std::vector<StageId> exits() const;
    /// "segment", "early-verify", "final-verify", "draft", "correct": for printing.
    [[nodiscard]] const char* role_text(StageId id) const;
};

/// Makes `config` concrete for a model of `layers` layers on a machine where this process may
/// use `usable_cores`. Of stages that share a process, cores and threads are those of the first
/// one that names them. Cores that no stage names are assigned by core_shares.hpp: segments run one
/// after the other unless several batches are in flight; so does a draft with a model if both
/// wait for each other and no exit sends candidates; processes that compute at the same time get
/// cores of their own, if there are enough. Batches of prefill have as many rows as [schedule]
/// says; else kBatchRowsMax where all segments are on GPUs, kVerifyRowsMax where they are not. A
/// draft's passes follow the same rule by its own device.
/// Errors: BadArgument when the segments leave a gap, overlap or are empty, when a core does not
/// exist, when a process has more threads than cores, is told two different things or hosts too
/// many stages.
/// `others`: stages whose `node` names one of them run there. Errors too: a node that is not there.
[[nodiscard]] Result<Placement> place(const PipelineConfig& config,
                                      int layers,
                                      const std::vector<int>& usable_cores,
                                      const std::vector<OtherMachine>& others = {});

/// A message if more processes compute than there are cores, so that they compete for
/// them; else empty.
[[nodiscard]] std::string too_few_cores_text(const PipelineConfig& config,
                                             const Placement& placement,
                                             int cores);

}  // namespace paceline
