// A toy decode: the real actors on toy_backend.hpp, described by one plan.
//
//     ToyPlan plan{.segments = 2, .draft = ToyDraft::Lookup};
//     toy_actors(plan), toy_edges(plan)        // who there is, and the channels between them
//     make_toy_actor(plan, id)                 // one of the stages' actors, with its backend
//     toy_conductor_plan(plan)                 // for the ConductorActor
//     toy_answer(request)                      // what must come out, by plain decoding
//
// Addresses are those of the real program: segments 1 .. n in the order of their layers, then the
// draft. In one process hand the actors to a world (LocalWorld, the simulation); over processes a
// supervisor starts toy_stage with toy_children(plan).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/decoding/request.hpp"
#include "runtime/loop/actor.hpp"
#include "runtime/loop/wiring.hpp"
#include "tests/support/toy/toy_backend.hpp"

namespace paceline::testing {

enum class ToyDraft : std::uint8_t {
    None,
    Lookup,
    Oracle,
    Guesses,  // from the target's own tokens, some of which are lost, doubled or late
    Eagle,    // a model that reads the target's features; in the simulation alone
};

/// Which actors share a process.
enum class ToyHousing : std::uint8_t {
    Apart,           // each has its own
    DraftWithFirst,  // the draft lives with the first segment
    Pairs,           // segments 1 and 2, 3 and 4; the draft alone
    Together,        // all stages are one process
};

/// Trivially copyable: it travels as the payload of Assign between two builds of this very file.
struct ToyPlan {
    int segments = 2;  // 1 .. 4 of the eight layers
    ToyDraft draft = ToyDraft::None;
    double right = 0.8;  // of an Oracle draft: how likely each candidate is right
    ToyHousing housing = ToyHousing::Apart;
    // Trees, several batches in flight, and an exit after the first of several segments that has
    // candidates, proposes and defers.
    bool exits = false;
    std::int64_t layer_micros = 0;  // time that a batch takes in one layer
    std::int64_t row_micros = 0;    // time that each row takes in a segment
    std::int32_t kv_slots = 8192;
    std::int64_t proposal_wait_micros = 2000;
    std::uint64_t seed = 1;  // of an Oracle draft's mistakes
};

[[nodiscard]] StageId toy_segment(int index);  // 1 .. plan.segments
[[nodiscard]] std::optional<StageId> toy_draft(const ToyPlan& plan);
[[nodiscard]] std::string toy_name(const ToyPlan& plan, StageId id);  // "segment-1", "draft"
/// Segments, then the draft; without the conductor.
[[nodiscard]] std::vector<StageId> toy_actors(const ToyPlan& plan);
/// The actors of each stage process, the one that names it first.
[[nodiscard]] std::vector<std::vector<StageId>> toy_homes(const ToyPlan& plan);
/// All channels, the conductor's included; also those within a process.
[[nodiscard]] std::vector<EdgeSpec> toy_edges(const ToyPlan& plan);
[[nodiscard]] ConductorPlan toy_conductor_plan(const ToyPlan& plan);

/// What must outlive the actor, and the actor.
struct ToyActor {
    std::unique_ptr<FakeBackend> backend;  // nullptr for a draft
    std::unique_ptr<Actor> actor;
};
[[nodiscard]] ToyActor make_toy_actor(const ToyPlan& plan, StageId id);

/// A prompt of up to 40 tokens and an answer of `max_tokens`, all from the seed.
[[nodiscard]] Request toy_request(std::uint64_t seed, std::int32_t max_tokens = 32);
/// Drawn from the noise, with penalties; otherwise a request is greedy.
void make_toy_sampled(Request& request, std::uint64_t seed);

/// What plain decoding still commits, on a fresh backend.
[[nodiscard]] std::vector<TokenId> toy_answer(const Request& request);

}  // namespace paceline::testing
