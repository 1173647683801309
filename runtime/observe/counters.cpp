#include "runtime/observe/counters.hpp"

namespace paceline {

const char* name_of(Counter counter) {
    static constexpr std::array kNames = {
        "frames-in",    "frames-out",     "frames-stale",    "channel-full",    "jobs",
        "job-us",       "wait-us",        "sleeps",          "waves",           "wave-rows",
        "prefill-rows", "verdicts",       "tokens-proposed", "tokens-accepted", "tokens-committed",
        "fenced",       "replays",        "restarts",        "outcome-trunk",   "outcome-runner-up",
        "outcome-exit", "outcome-lookup", "outcome-heads",   "outcome-none",    "rows-wasted",
        "root-alone",   "draft-forwards", "draft-rows",      "exit-rows",       "early-proposed",
        "early-right"};
    static_assert(kNames.size() == kCounters);
    return kNames[static_cast<std::size_t>(counter)];
}

const char* name_of(Gauge gauge) {
    static constexpr std::array kNames = {"queue-depth", "requests"};
    static_assert(kNames.size() == kGauges);
    return kNames[static_cast<std::size_t>(gauge)];
}

}  // namespace paceline
