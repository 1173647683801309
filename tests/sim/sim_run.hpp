// One seeded run of the whole protocol: the real actors on the toy model in a SimWorld, with
// faults, cancellations and further turns drawn from the seed, and the oracles that check it.
//
//   tokens      what a client is given is a prefix of plain decoding of the same request, and all
//               of it if the answer ended by itself; the log holds at least what clients have
//   ends        on_end comes exactly once, after the last token
//   liveness    once the faults have stopped every request ends within a bound of virtual time,
//               and with an error only if there was a fault
//   poison      the request that kills a segment fails with an error that names it, no other one
//               does
//   losses      no healthy stage is replaced
//   drain       no request is open at the end of its limit, and none is accepted
//   crash loop  a process that always dies soon after loading is not restarted for ever
//   leaks       when nothing is in flight no tensor slot is missing; KV slots are so few that a
//               leak of one page is met by the next request; no stage holds a request
//               (SimKinds::held_requests)
// and the checks of the world itself (sim_world.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/sim_incident.hpp"
#include "tests/support/toy/toy_features.hpp"

namespace paceline::testing {

struct SimOutcome {
    std::optional<std::string> violation;
    std::uint64_t hash = 0;
    std::uint64_t events = 0;
    std::uint64_t tokens = 0;   // given to clients
    std::uint64_t answers = 0;  // that ended by themselves, complete
    std::uint64_t stopped = 0;  // that the client ended
    std::uint64_t failed = 0;   // that ended with an error, after faults
    std::uint64_t replays = 0;  // attempts begun because of a loss
    std::uint64_t preemptions = 0;
    std::uint64_t cached_tokens = 0;  // of prompts
    std::uint64_t restarts = 0;       // incarnations
    std::uint64_t fenced = 0;         // verdicts of old attempts that the log refused
    std::uint64_t faults = 0;
    FeatureCounts features = {};  // of an EAGLE draft
    bool gave_up = false;         // the supervisor ended the run: too many deaths
};

[[nodiscard]] SimOutcome run_seed(std::uint64_t seed,
                                  const std::function<void(const std::string& line)>& on_line = {},
                                  const SimKinds& kinds = {});

}  // namespace paceline::testing
