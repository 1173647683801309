// SegmentActor::Run: parts of waves inside the layers of a segment, and Look: what its exit is to
// say of them afterwards.
//
// Owned by the actor and by its job. The job reads and writes it between submit and its
// completion, the actor's loop before and after; only the cancel token is used by both at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/target/fate_watch.hpp"
#include "actors/target/segment_actor.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"

namespace paceline {

/// One request in a run. Verify parts that were merged are one.
struct SegmentActor::Part {
    std::shared_ptr<RequestState> state;
    msg::WavePart part;                  // as it is passed on
    std::size_t first = 0;               // its first row in the run
    std::span<const TokenId> committed;  // the text when the run started

    [[nodiscard]] bool prefill() const { return part.kind == msg::WaveKind::Prefill; }
};

struct SegmentActor::Run {
    std::vector<Part> parts;
    std::vector<msg::WaveRow> named;  // the rows that run, part after part
    std::span<float> hidden;          // [rows, dim]
    std::vector<Row> rows;
    std::vector<KvSlot> path_slots;  // of all rows, one path after the other
    CancelToken cancel;
    FateWatch watch{cancel};
    std::vector<JudgedPart> judged;  // last segment: the verify parts, in order
    // Of each row, where the tokens of all judged parts are drawn with the layers; else empty.
    std::vector<DrawJob> jobs;
    std::vector<std::optional<TokenId>> drawn;
    std::vector<ExitPart> exits;  // an exit that defers looks inside the run
    bool looked_at = false;       // the exit does not rest
    Micros started{0};

    [[nodiscard]] std::span<const msg::WaveRow> rows_of(const Part& part) const {
        return std::span{named}.subspan(part.first, part.part.rows);
    }
};

struct SegmentActor::Look {
    std::vector<ExitPart> exits;
    std::vector<float> hidden;  // of their rows, one after the other; for an adapter of all rows
    std::vector<AheadPart> ahead;
    std::vector<Row> rows;  // for an adapter: those of `hidden`
    std::vector<KvSlot> path_slots;
    std::vector<std::shared_ptr<RequestState>> states;  // whose slots they name
    RequestId request;                                  // for people: one of those it is about
    std::uint32_t wave = 0;
    std::uint32_t context = 0;
    Micros started{0};

    /// That the head is wanted for.
    [[nodiscard]] std::uint32_t head_rows() const {
        std::size_t count = ahead.size();
        for (const ExitPart& part : exits) count += part.rows.size();
        return static_cast<std::uint32_t>(count);
    }
};

}  // namespace paceline
