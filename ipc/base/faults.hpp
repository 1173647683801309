// Fault points and planted bugs, for tests.
//
// A fault point is a named place at which a test may kill the process, stall it, or let another
// thread or process run. A planted bug is a switch that removes one safeguard, to show that the
// tests find bugs. Both exist only in sources compiled with PACELINE_FAULTS for the *_faults
// libraries, which only tests link. In all other builds they are constants, cost nothing and cannot
// be switched on.
//
// A source that includes this header is listed in FAULT_POINTS of its library and compiled for both
// flavours. All other sources are compiled once for both, so headers that they include must not
// include this one.
//
// Threads: hook and bug are set before the threads that read them are started.
#pragma once

#include <cstdint>

#ifdef PACELINE_BOTH_FLAVOURS
#error "this source is compiled once for both flavours: list it in FAULT_POINTS (paceline_part)"
#endif
#ifdef PACELINE_FAULTS
#include <atomic>
#endif

namespace paceline {

enum class FaultPoint : std::uint8_t {
    // A frame is put into a ring.
    RingClaimed,     // a free slot was found, nothing is written
    RingMidPayload,  // half of the payload is written
    RingWritten,     // the frame is complete, not yet visible: before publish
    RingPublished,   // it is visible, the doorbell has not been rung: after publish
    RingMidCopy,     // the consumer has copied half of a frame out
    // A tensor is sent.
    TensorFilled,  // written, not published
    // A consumer about to sleep.
    BellArmed,  // it is marked as sleeping, and has not checked for input again
    // A running stage.
    JobStarted,
    JobDone,      // its completion is not handled yet
    VerdictMade,  // between verification and commit: decided, not yet sent
    BeginTaken,   // a request (or its replay) begins in this stage
    // Recovery and end.
    Wired,      // this stage has its channels and has not said Ready: during its own recovery
    PeerWired,  // this stage was given new channels to a peer: during the peer's recovery
    Draining,   // asked to end in order
};

/// Each removes one safeguard; see the places that call planted().
enum class PlantedBug : std::uint8_t {
    None,
    // The ring, the tensor pool, the doorbell.
    PublishBeforePayload,
    FreeBeforeCopy,
    RingFullOffByOne,
    RingEpochIgnored,
    RingReserveIgnored,
    RoomRequestForgotten,
    RoomRequestTaken,  // by the first ring of the bell, although that room was used already
    NoRecheckBeforeSleep,
    PoolReleaseIgnored,
    PoolGenerationIgnored,
    // The recovery protocol.
    EpochNotRaised,
    BeginBeforeRewired,
    LostPeerStaysWired,
    StaleReadyCounts,
    BackoffForever,
    // Decoding across a recovery.
    CommitIgnoresAttempt,
    CommitIgnoresPosition,
    VerdictUnchecked,
    AttemptNotRaised,
    ReplayForgetsCommitted,
    ReplayForgetsCount,
    FilterIgnoresAttempt,
    EpochUnchecked,  // that a message claims
    FilterDropsEarly,
    FilterForgetsRunning,  // a request, when too many others are over
    RootGapIgnored,        // rows are verified before all of the text before them is in the cache
    DraftToldFirst,        // of a Begin, before the segments
    OldScoresKept,         // of an attempt that has ended
    CancelUnseen,          // at a verdict: only the next poll sees it
    EndUntold,             // no Stop follows a verdict that ends the answer
    StopLost,              // when a channel is full
    MissedVerdictUntold,   // a draft does not ask for what it missed
    StopIgnoresAttempt,
    SlotsLeakOnReplay,
    TensorLeakOnStale,
    OutboxForgotten,
    // Shared prefixes and preemption.
    LostKeysTrusted,       // blocks that were cached before a segment was lost are used
    PrefixUnproven,        // blocks are shared before their rows have gone through all segments
    PrefixCountForgotten,  // a request does not hold the blocks that it begins with
    SaltIgnored,           // requests with different salts share blocks
    UnrunStatesKept,       // the states of rows that passed a retaining segment without running
    PreemptionIsLoss,      // it counts as a replay, and for poison
    // Repeated failures.
    PoisonForgiven,
    QuarantinedTogether,
    PoisonSentToDraft,  // the draft gets a request again that has killed it
    AloneOnceIsPoison,  // although others ran beside it at the other losses
    LoadCountsAsWork,   // in the restart intensity
    ProgressUnwatched,  // of requests that run
    // Time limits of a stage's jobs.
    RowTimeForgotten,  // measured before the first job
    JobsNotInherited,  // from the earlier incarnation
    // Time in which the whole machine is stopped.
    PauseCountsAsHang,     // of a running stage
    PauseCountsAsLoading,  // of a starting stage
    PauseCountsAsWaiting,  // of a request that waits for a lost stage
    // Orders of clients.
    DrainTakesOrders,
    DrainEndsNothing,  // when its limit is over
    // A target that drafts for itself.
    VerifyStartsLate,  // one sub-layer after what the draft has computed
    DraftPathChanges,  // with the skip set, within a chain
    AheadSlotsLeak,    // of drafted rows that no batch took
    // Grammars.
    MatcherNotRebuilt,  // from the answer, when an attempt begins with tokens of it
    MaskBeforeBias,     // as low logits, to which a bias is added
    GrammarNotResent,   // to the next incarnation of a stage
    ForcedIsAccepted,   // the matcher follows a token that the grammar forces before a row has it
    // A draft that searches its skip set.
    TrialOutlivesRequest,  // the job goes on when its request was stopped
    // Features for an EAGLE draft.
    FeatureSlotKept,    // of a note about a request or an attempt that is over
    FeaturesMisplaced,  // each lies beside the next token
};

#ifdef PACELINE_FAULTS

inline constexpr bool kFaultsCompiledIn = true;

using FaultHook = void (*)(FaultPoint);
inline std::atomic<FaultHook> fault_hook{nullptr};
inline std::atomic<PlantedBug> planted_bug{PlantedBug::None};

/// Replaces the kernel's sleep on a doorbell's word: returns when the sleeper may continue.
using SleepHook = void (*)(const std::atomic<std::uint32_t>& word);
inline std::atomic<SleepHook> sleep_hook{nullptr};

inline void fault_point(FaultPoint point) {
    if (const FaultHook hook = fault_hook.load(std::memory_order_relaxed)) hook(point);
}
[[nodiscard]] inline bool planted(PlantedBug bug) {
    return planted_bug.load(std::memory_order_relaxed) == bug;
}
/// Whether a test's hook has replaced the kernel's sleep.
[[nodiscard]] inline bool slept_for_test(const std::atomic<std::uint32_t>& word) {
    const SleepHook hook = sleep_hook.load(std::memory_order_relaxed);
    if (hook != nullptr) hook(word);
    return hook != nullptr;
}

#else

inline constexpr bool kFaultsCompiledIn = false;

constexpr void fault_point(FaultPoint /*point*/) {}
[[nodiscard]] constexpr bool planted(PlantedBug /*bug*/) {
    return false;
}
template <class Word>
[[nodiscard]] constexpr bool slept_for_test(const Word& /*word*/) {
    return false;
}

#endif

}  // namespace paceline
