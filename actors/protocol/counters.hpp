// What the actors count: names for the free counters and gauges of a process (runtime/observe).
//
// Free slot n is counter 9 + n of docs/observability.md. Readers of a telemetry block identify a
// counter by its number, so numbers do not change.
//
// acceptance rate        = kTokensAccepted / kTokensProposed
// mean acceptance length = 1 + kTokensAccepted / kVerdicts      (the target's own token is the 1)
//
// Constants; any thread.
#pragma once

#include <cstddef>

#include "ipc/wire/messages.hpp"
#include "runtime/observe/counters.hpp"

namespace paceline::counters {

// Of segments.
inline constexpr Counter kBatches = free_counter(0);      // formed (first segment) or run (others)
inline constexpr Counter kBatchRows = free_counter(1);    // rows of kBatches
inline constexpr Counter kPrefillRows = free_counter(2);  // rows of prefill batches
inline constexpr Counter kVerdicts = free_counter(3);     // batches with a verdict (last segment)
inline constexpr Counter kTokensProposed = free_counter(4);  // candidates that were verified
inline constexpr Counter kTokensAccepted = free_counter(5);  // of kTokensProposed, accepted

// Of the conductor, but for kFenced, which every actor counts.
inline constexpr Counter kTokensCommitted = free_counter(6);  // taken by the commit log
inline constexpr Counter kFenced = free_counter(7);           // stale messages, without effect
inline constexpr Counter kReplays = free_counter(8);          // requests begun again after a loss

// Of the first segment: who had proposed the new root of a verdict.
inline constexpr Counter kOutcomeTrunk = free_counter(9);      // the draft, as its first choice
inline constexpr Counter kOutcomeRunnerUp = free_counter(10);  // the draft, as another choice
inline constexpr Counter kOutcomeExit = free_counter(11);      // an early exit
inline constexpr Counter kOutcomeLookup = free_counter(12);    // prompt lookup
inline constexpr Counter kOutcomeHeads = free_counter(13);     // heads that look further ahead
inline constexpr Counter kOutcomeNone = free_counter(14);      // no stage had proposed it
inline constexpr Counter kOutcomeForced = free_counter(36);    // the grammar of the answer

// Of the first segment: what its verify batches cost.
inline constexpr Counter kRowsWasted = free_counter(15);  // rows that were not committed
inline constexpr Counter kRootAlone = free_counter(16);   // batches of one row: PEARL's C_pre

// Of drafts and exits.
inline constexpr Counter kDraftForwards = free_counter(17);  // passes through a draft's model
inline constexpr Counter kDraftRows = free_counter(18);      // rows of kDraftForwards
inline constexpr Counter kExitRows = free_counter(19);       // rows whose exit head was computed

// Of the first segment: rows whose token an exit was the first to propose, each counted once, when
// a verdict committed the row above it.
inline constexpr Counter kEarlyProposed = free_counter(20);
inline constexpr Counter kEarlyRight = free_counter(21);  // of kEarlyProposed, committed

// Of segments: sub-layers of the target (two a layer) that rows ran; a cancelled row counts in
// full.
inline constexpr Counter kVerifySublayers = free_counter(22);   // rows of verify batches
inline constexpr Counter kPrefillSublayers = free_counter(23);  // rows of prefill batches

// Of a first segment that drafts for itself: sub-layers, time in jobs, and what became of chains.
inline constexpr Counter kDraftSublayers = free_counter(24);     // rows of passes
inline constexpr Counter kOptimiseSublayers = free_counter(25);  // rows of trials and programmes
inline constexpr Counter kDraftMicros = free_counter(26);        // in passes
inline constexpr Counter kVerifyMicros = free_counter(27);       // in runs with rows to verify
inline constexpr Counter kOptimiseMicros = free_counter(28);     // in trials and programmes
inline constexpr Counter kOptimiseJobs = free_counter(29);
inline constexpr Counter kChainProposed =
    free_counter(30);  // first choices, of chains with a verdict
inline constexpr Counter kChainAccepted = free_counter(31);  // of kChainProposed, committed
inline constexpr Counter kAutoOffs = free_counter(32);       // how often drafting was turned off

// Of the first segment.
inline constexpr Counter kCachedRows = free_counter(34);  // rows of prompts found in the cache
inline constexpr Counter kPrefixesBroken =
    free_counter(35);  // texts of which the rest is not shared

// Of a last segment beside an EAGLE draft: rows whose features found no slot.
inline constexpr Counter kFeaturesDropped = free_counter(37);

// Of the conductor.
inline constexpr Counter kPreemptions = free_counter(33);  // requests whose pages others needed

/// The outcome counter of candidates from `origin`.
[[nodiscard]] constexpr Counter outcome_of(msg::Origin origin) {
    if (origin == msg::Origin::Forced) return kOutcomeForced;
    return static_cast<Counter>(static_cast<std::size_t>(kOutcomeTrunk) +
                                static_cast<std::size_t>(origin));
}
static_assert(outcome_of(msg::Origin::RunnerUp) == kOutcomeRunnerUp &&
              outcome_of(msg::Origin::Exit) == kOutcomeExit &&
              outcome_of(msg::Origin::Lookup) == kOutcomeLookup &&
              outcome_of(msg::Origin::Heads) == kOutcomeHeads);

}  // namespace paceline::counters

namespace paceline::gauges {

inline constexpr Gauge kQueueDepth = free_gauge(0);  // batches or proposals that wait here
inline constexpr Gauge kRequests = free_gauge(1);    // requests that are open here

// Of a first segment that drafts for itself (self_draft_state.hpp).
inline constexpr Gauge kDraftPhase = free_gauge(2);  // 0: unknown, 1: decodes plainly, 2: drafts
inline constexpr Gauge kDraftGain = free_gauge(3);   // of 1,000
inline constexpr Gauge kDraftThreshold = free_gauge(4);  // of 1,000,000; 0: there is none
inline constexpr Gauge kMatchness = free_gauge(5);       // of 1,000,000; 0: not measured
inline constexpr Gauge kTrials = free_gauge(6);
inline constexpr Gauge kSkipped = free_gauge(7);  // sub-layers that a drafted row does not run
inline constexpr std::size_t kSkippedWords = 4;
/// Bit i of word w: sub-layer 64 w + i is left out. Deeper ones have no bit.
[[nodiscard]] consteval Gauge skipped_word(std::size_t w) {
    return free_gauge(8 + w);
}
static_assert(static_cast<std::size_t>(skipped_word(kSkippedWords - 1)) < kGauges);

inline constexpr Gauge kKvPages = free_gauge(12);  // in use by running requests (first segment)
// Of a first segment with an account of costs and gains; 0: not known yet.
inline constexpr Gauge kPlainTokenMicros = free_gauge(13);  // per token without speculation
// Of the tokens of all its turns: what they would have taken without speculation, and what they
// took.
inline constexpr Gauge kTurnsPlainMicros = free_gauge(14);
inline constexpr Gauge kTurnsMicros = free_gauge(15);

}  // namespace paceline::gauges
