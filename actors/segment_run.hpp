// SegmentActor::Run: one wave inside the layers of a segment.
//
// Owned by the actor and by its job. The job reads and writes it between submit and its
// completion, the actor's loop before and after; only the cancel token is used by both at once.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/request_state.hpp"
#include "actors/segment_actor.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/messages.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"

namespace paceline {

struct SegmentActor::Run {
    std::shared_ptr<RequestState> state;
    msg::Wave wave;           // the rows that run, and what is passed on
    std::span<float> hidden;  // [rows, dim]
    std::vector<Row> rows;
    std::vector<KvSlot> path_slots;      // of all rows, one path after the other
    std::span<const TokenId> committed;  // the text when the run started
    CancelToken cancel;
    Judged judged;  // the last segment's result for a verify wave
};

}  // namespace paceline
