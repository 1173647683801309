// SimIncident: what happens to a whole pipeline in some scenarios, beside the faults of single
// processes.
//
//   Poison      a segment dies at each Begin of one request; nothing else goes wrong, so that
//               request alone may fail, and its error names it. Or a draft does: then none may
//               fail, and the draft is not given up
//   Drain       the conductor takes no order from some moment on; what is open ends within a limit
//   CrashLoop   a process loads for long and always dies soon after it is at work: the restart
//               intensity must end that
//   Suspension  the whole machine is suspended, once or more often, perhaps while a segment that
//               crashed is being replaced; nothing may come of it
//   SlowJobs    each row of a job takes long, so that a prefill takes longer than the hang limit; a
//               stage has timed a row, or takes over what its predecessors knew: no request may
//               fail
//
// One in four seeds has one of the first four, and some have the last; drawn from a random source
// of their own, so that the other scenarios stay what they were. Those that are not enabled are
// left out of the scenario. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline::testing {

/// The one place that says what the simulation asks of the program by default.
struct SimKinds {
    bool poison = true;
    bool drain = true;
    bool crash_loop = true;
    bool suspension = true;
    bool slow_jobs = true;
    /// The pipeline is on two or three machines, which are lost and cut off (machine_plan.hpp).
    bool machines = false;
    /// Oracle: when all is quiet no stage holds a request.
    bool held_requests = true;
};

enum class SimIncident : std::uint8_t { None, Poison, Drain, CrashLoop, Suspension, SlowJobs };
[[nodiscard]] const char* name_of(SimIncident incident);

struct SimSuspension {
    SimTime at{0};
    SimTime lasts{0};
};

/// The prompt of a poison request begins with it; no other one does.
inline constexpr TokenId kPoisonToken = 0;
/// Clients of a scenario with poison; the first of them asks the poison request.
inline constexpr std::size_t kPoisonClient = 0;
/// Incarnations of one process in a crash loop. Restart rules must have ended it by then.
inline constexpr std::uint32_t kCrashLoopMost = 12;

struct SimScenario;
/// Puts the seed's incident into a scenario that is complete otherwise.
void add_incident(std::uint64_t seed, const SimKinds& kinds, SimScenario& scenario);

}  // namespace paceline::testing
