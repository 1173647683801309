// AdapterBacklog: rows that an exit's adapter has still to be given, because nothing was evaluated
// when they came through the exit. Used by EarlyVerify.
//
//     defer()   a run that is not evaluated: its rows and copies of their hidden states are kept
//     take()    the next evaluation, a prompt, or a full backlog: the rows that are still of use,
//               oldest first, in one call of the adapter with those of that run
//
// One call for many rows reads the adapter's weights once, so an exit that is off costs next to
// nothing. Of use are rows that were committed, and those that are in the tree. A row whose slot
// was given to a later row is dropped: the adapter's keys of a slot are those of its newest row.
//
// Owns the hidden states (kRows of them) and shares the states of the requests. Threads: the
// actor's loop. Slots that take() names are valid as long as those of the rows of a run are.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "actors/protocol/request_state.hpp"
#include "actors/segment/segment_run.hpp"
#include "ipc/base/ids.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"

namespace paceline {

class AdapterBacklog {
public:
    static constexpr std::size_t kRows = 64;

    /// Borrows the backend.
    explicit AdapterBacklog(Backend& backend) : backend_{backend} {}

    /// Keeps the rows of a run that has ended. False, and no effect, if they have no room, or some
    /// are of a prompt: these are many, and a later request may share their keys.
    [[nodiscard]] bool defer(const SegmentRun& run);

    /// What the adapter is to be given, and what keeps it valid.
    struct Rows {
        std::vector<Row> rows = {};
        std::vector<RowSource> hidden = {};  // in this object, until the next defer()
        std::vector<KvSlot> paths = {};      // that `rows` point into
        std::vector<std::shared_ptr<RequestState>> states = {};
    };
    /// Empties the backlog. `run` brings the rows that the adapter gets after these.
    [[nodiscard]] Rows take(const SegmentRun& run);

private:
    struct Entry {
        std::shared_ptr<RequestState> state;
        NodeId node;
        Position position = 0;
        KvSlot slot = kNoSlot;
        std::size_t place = 0;  // of its hidden state
    };

    void forget_slots_of(const SegmentRun& run);
    /// False if the row was rejected.
    static bool add_row(const Entry& entry, Rows& to);

    Backend& backend_;
    RowMemory hidden_ = {};  // [kRows, dim]
    std::size_t used_ = 0;   // rows of it
    std::vector<Entry> entries_ = {};
};

}  // namespace paceline
