// ConductorPlan: the stages of the pipeline as the conductor has to know them, and the conductor's
// limits.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/conductor/draft_quarantine.hpp"
#include "actors/conductor/progress_watch.hpp"
#include "actors/decoding/acceptance.hpp"
#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

struct ConductorPlan {
    struct Stage {
        StageId id;
        bool essential = true;  // decoding is not possible without it
        bool apart = true;      // its process hosts no essential stage
        std::string name = {};  // for messages; empty: "stage <id>"
        StageId home = {};  // of its process, whose stages are lost together; 0: it is alone there
        bool proposes_alone = false;  // the only one that proposes: all candidates are its own
    };
    StageId verifier{};  // the last segment
    /// Every stage, in the order in which Begins are sent: essential stages before the others, and
    /// the one that acts first on a request last among the essential ones.
    std::vector<Stage> begin_to{};
    AcceptanceRule acceptance = AcceptanceRule::Coupled;  // of all requests
    Position context = 0;                                 // of a request that sets none
    Micros cancel_poll{20'000};                           // interval at which cancelled() is called
    /// A request that waits longer than this for a lost stage fails. Must be longer than a stage
    /// may load (RestartRules). Time in which this process or the machine is suspended does not
    /// count.
    Micros recovery_limit{180'000'000};
    std::uint32_t poison_limit = 3;
    DraftQuarantineRules draft_quarantine{};
    ProgressRules progress{};  // of a request that runs
    /// A number that changes while the stages process prompts; empty: unknown.
    std::function<std::uint64_t()> rows_done{};
};

}  // namespace paceline
