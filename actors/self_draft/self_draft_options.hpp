// SelfDraftOptions: how a target drafts for itself, on the device that verifies.
//
//                      runs for a drafted token      stops                  skip set
//     LayerSkip        the first `exit` layers       after gamma tokens     -
//     AdaSPEED         the first `exit` layers       product, probe         -
//     Kangaroo         the same, and an adapter      probability            -
//     Draft & Verify   all but a set of sub-layers   probability, adapted   fixed
//     SWIFT            all but a set of sub-layers   probability            searched while decoding
//     CLaSp            all but a set of layers       probability            by a dynamic programme
//
// Any stop rule goes with any source. Plain values; validate() once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "actors/self_draft/skip_search.hpp"
#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/sampling/probe.hpp"
#include "model/skip_set.hpp"

namespace paceline {

/// How the skip set changes while decoding: not at all, by CLaSp's programme, or by SWIFT's search.
enum class SkipChoice : std::uint8_t { Fixed, Programme, Search };

/// The probes of an exit (model/sampling/probe.hpp): one for greedy requests, one for the others.
struct DraftProbes {
    Probe greedy = {};
    Probe sampled = {};
};

/// Candidates after a drafted token, by its probability p (SWIFT, section 4.3): the first that goes
/// with p > above[0], the last with p <= above[2].
struct ConfidenceTree {
    std::array<float, 3> above{0.95F, 0.8F, 0.5F};
    std::array<int, 4> candidates{1, 3, 5, 10};

    [[nodiscard]] int candidates_at(float probability) const;
    [[nodiscard]] int most() const;
};

struct SelfDraftOptions {
    // What is run.
    int exit = 0;  // layers of an early exit; 0: all layers but those of the skip set
    HeadId head = HeadId::Final;
    bool adapter = false;  // of the exit, before `head`, which is HeadId::Adapter
    SkipSet skip = {};     // to begin with

    // When a chain ends. The token after which it ends is verified too.
    std::int32_t gamma = 8;         // tokens, at most
    float confidence_min = 0.0F;    // after a token less probable than this; 0: no such stop
    float reach_min = 0.0F;         // after a path less probable than this
    bool threshold_adapts = false;  // towards acceptance_target (decoding/adaptive_stops.hpp)
    double acceptance_target = 0.9;
    bool thompson = false;         // the length is drawn, up to gamma (thompson_length.hpp)
    double thompson_decay = 0.95;  // of its counts, at each verdict
    std::optional<DraftProbes> probes = {};  // their score takes the place of the probability
    std::optional<ConfidenceTree> tree = {};

    // The skip set.
    SkipChoice choice = SkipChoice::Fixed;
    SkipSearchOptions search = {};  // Search
    int window = 32;                // Search: tokens that a trial is measured on
    int programme_skip = 0;         // Programme: whole layers that are skipped
    int programme_keep_first = 1;   // at least 1
    int programme_keep_last = 1;
    int interval = 1;              // verdicts between two trials or programmes
    double optimise_share = 0.01;  // of the time, at most

    bool auto_off = true;  // plain rounds while drafts do not pay (gain_watch.hpp)
    /// Called on the actor's loop when auto_off turns drafting off or on. `gain` as
    /// GainWatch::gain().
    std::function<void(bool drafts, double gain)> on_auto_off = {};

    std::string state = {};  // SkipSearch::encode() of an earlier run; empty: none
    /// Keeps the state of the search; called in a job, with encode(). Empty: it is not kept.
    std::function<void(const std::string& state)> save = {};

    [[nodiscard]] bool early_exit() const { return exit > 0; }
    /// KV slots beside those of requests.
    [[nodiscard]] std::int32_t scratch_slots() const;
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const SelfDraftOptions& options, int layers);

}  // namespace paceline
