// Counters: what a process counts where others can see it (stage_page.hpp), each with its meaning.
//
// acceptance rate        = TokensAccepted / TokensProposed
// mean acceptance length = 1 + TokensAccepted / Verdicts      (the target's own token is the 1)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace paceline {

enum class Counter : std::uint8_t {
    FramesIn,         // hot messages handled
    FramesOut,        // hot messages sent to other processes
    FramesStale,      // dropped: of an old epoch, or for a peer that is gone
    ChannelFull,      // sends and tensor requests that found no room
    Jobs,             // jobs run
    JobMicros,        // time in them
    WaitMicros,       // time without anything to do
    Sleeps,           // waits that ended in the kernel
    Waves,            // waves formed (first segment) or run (others)
    WaveRows,         // rows of them
    PrefillRows,      // rows of prefill waves
    Verdicts,         // waves judged
    TokensProposed,   // guesses that were judged
    TokensAccepted,   // of them, right
    TokensCommitted,  // taken by the commit log (conductor)
    Fenced,           // messages and commits of an old attempt or epoch that changed nothing
    Replays,          // requests begun anew after a loss (conductor)
    Restarts,         // stages restarted (conductor)
    // What a verdict found prepared for its new root (first segment): whose guess it was.
    OutcomeTrunk,
    OutcomeRunnerUp,
    OutcomeExit,
    OutcomeLookup,
    OutcomeHeads,
    OutcomeNone,    // nobody had guessed it: the next wave holds the root alone, or waits
    RowsWasted,     // rows of verify waves that were not committed (first segment)
    RootAlone,      // verify waves of one row (first segment): PEARL's pre-verify, C_pre
    DraftForwards,  // passes through a draft's model
    DraftRows,      // rows of them
    ExitRows,       // rows for which an exit's head was computed
    EarlyProposed,  // rows whose token an exit was the first to guess, and that hung below
                    // committed ones when a verdict came (first segment)
    EarlyRight,     // of them, those that were committed (first segment)
    Count_,
};
inline constexpr std::size_t kCounters = static_cast<std::size_t>(Counter::Count_);

enum class Gauge : std::uint8_t {
    QueueDepth,  // waves or proposals that wait here
    Requests,    // requests that are open here
    Count_,
};
inline constexpr std::size_t kGauges = static_cast<std::size_t>(Gauge::Count_);

[[nodiscard]] const char* name_of(Counter counter);
[[nodiscard]] const char* name_of(Gauge gauge);

}  // namespace paceline
