// LayerJob: what the layers work on in the job of a run: rows, and the memory of their hidden
// states.
//
//     gather_inputs()     copies hidden states into the memory in which the layers work
//     run_layers()        rows -> layers -> hidden
//     scatter_outputs()   copies them into the outgoing tensor, if the layers worked elsewhere, and
//                         into the states that this segment retains
//
// The loop fills it before the job is submitted and reads it after the job has ended. In between it
// is the job's; only the cancel token is used by both at once.
#pragma once

#include <vector>

#include "actors/decoding/retained_states.hpp"
#include "actors/segment/watermark_watch.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"

namespace paceline {

struct LayerJob {
    /// The hidden states go to `memory`, which has room for the largest batch.
    LayerJob(Backend& owner, HiddenRows memory) : backend{owner}, out{memory} {}
    LayerJob(const LayerJob&) = delete;
    LayerJob& operator=(const LayerJob&) = delete;

    [[nodiscard]] std::size_t dim() const;
    /// All inputs are there: the outgoing tensor is as long as they are, and the layers work in it.
    void fit_memory();
    /// Lets the layers work in this memory.
    void work_in(HiddenRows memory) { hidden = memory; }
    /// Whether inputs come from the memory of a device.
    [[nodiscard]] bool reads_device() const;

    void gather_inputs() { backend.gather(inputs, hidden); }
    [[nodiscard]] RunOutcome run_layers() { return backend.run_layers(rows, hidden, &cancel); }
    void scatter_outputs();

    Backend& backend;
    RetainedStates* retained = nullptr;  // of a segment that has it
    std::vector<RowSource> inputs;       // of the rows; a gap where the layers embed a token
    HiddenRows out;                      // [tensor rows, dim]: where they go
    HiddenRows hidden;                   // where the layers work: there, or in memory of the device
    std::vector<Row> rows;
    std::vector<KvSlot> path_slots;  // of all rows, one path after the other
    CancelToken cancel;
    WatermarkWatch watermarks{cancel};
};

}  // namespace paceline
