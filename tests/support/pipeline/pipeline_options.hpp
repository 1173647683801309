// PipelineOptions: what a Pipeline or a Cluster is made of, and the plans and backends of its
// segments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "actors/draft/draft_actor.hpp"
#include "actors/segment/segment_actor.hpp"
#include "tests/support/toy/toy_backend.hpp"

namespace paceline::testing {

inline constexpr StageId kTheConductor{0};
inline constexpr StageId kTheDraft{1};
inline StageId segment_id(int index) {
    return StageId{static_cast<std::uint16_t>(10 + index)};
}

inline const StageId kFirstSegment = segment_id(1);

using Texts = std::vector<std::vector<TokenId>>;

enum class Drafting : std::uint8_t {
    None,
    Lookup,
    Adversary,
    Oracle,
    SlowOracle,
    Mute,
    Babble,
    SkipLayers,  // the target's own model without some sub-layers
    Programme,   // the same, without layers that the segments' residuals choose
    Search,      // the same, without sub-layers that it searches
    Eagle,       // the target's own model, which is sent the target's features as EAGLE's is
    Guesses,     // Jacobi or Lookahead, whose own tokens get lost, are doubled or come late
};

struct PipelineOptions {
    int segments = 1;
    Drafting drafting = Drafting::None;
    DraftSourceFactory sources = {};  // instead of those of `drafting`
    std::uint64_t seed = 1;
    DispatchOptions dispatch = {};
    VerifyOptions verify = {};
    std::int32_t kv_slots = 1024;  // for texts; the self-draft's scratch slots come on top
    TokenId all_nan_at = -1;
    int exit_at = 0;  // after which segment `exit` stands; 0: after none
    ExitOptions exit = {};
    std::optional<SelfDraftOptions> self_draft = {};
    /// What the draft keeps of its search, across its incarnations.
    std::shared_ptr<std::string> search_disk = std::make_shared<std::string>();
    Micros hold_limit{20'000};
    /// What Drafting::Eagle was given; a new one for each incarnation.
    std::shared_ptr<std::shared_ptr<FakeFeatures>> features =
        std::make_shared<std::shared_ptr<FakeFeatures>>();
    std::vector<int> feature_layers = {};  // states after these; empty: the last ones
    double candidate_right = 0.8;          // of the exit's head
    bool draws_itself = false;             // the segments' backends draw tokens, as devices do
    unsigned on_devices = 0;  // bit i: the backend of segment i keeps its rows on a device
    std::int32_t gamma = 8;   // of the draft
    /// KV slots whose hidden states all segments but the last one retain; 0: none.
    std::int32_t retained_slots = 0;
};

/// What stands after one of the segments.
enum class Exit : std::uint8_t { None, Candidates, Proposes, Defers, Everything, Lockstep, Ahead };
inline constexpr std::uint64_t kExits = 7;

/// Draws the settings of such an exit. After the last segment an exit can only look ahead,
/// elsewhere it does the rest.
void add_exit(PipelineOptions& options, Exit kind, std::mt19937_64& random);

/// Segment `index` of 1..options.segments.
SegmentPlan segment_plan(const PipelineOptions& options, int index);
std::unique_ptr<FakeBackend> segment_backend(const PipelineOptions& options, int index);

}  // namespace paceline::testing
