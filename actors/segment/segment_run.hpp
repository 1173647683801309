// SegmentRun: parts of batches inside the layers of a segment, a part per request.
//
//     collect()           rows that are still in their trees, those of a request together
//     watch()             the words in shared memory that the job reads between layers
//     (run_job.hpp)       the job works on the run's LayerJob
//     drop_stale()        removes rows that were dropped or cancelled meanwhile
//
// Hidden states are not moved within the tensor: removed rows leave gaps, and every row has its row
// number in the tensor (BatchRow::tensor_row). The tensors from which rows came belong to the run
// until its job has ended.
//
// Owned by the actor and by its job. Threads: the actor's loop; of the members the job writes to
// `job` alone, and reads `parts` and `rows`, which the loop does not change meanwhile.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/protocol/request_state.hpp"
#include "actors/segment/layer_job.hpp"
#include "actors/segment/segment_queue.hpp"
#include "actors/segment/segment_requests.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// One request in a run. Verify parts that were merged are one.
struct RunPart {
    std::shared_ptr<RequestState> state;
    msg::BatchPart part;                 // as it is passed on
    std::size_t first = 0;               // its first row in the run
    std::span<const TokenId> committed;  // the text when the run started

    [[nodiscard]] bool prefill() const { return part.kind == msg::BatchKind::Prefill; }
    /// It computes cached blocks again. It runs to its end even if its attempt is cancelled:
    /// another request that shares them may have completed them meanwhile, and a row that is cut
    /// leaves its slot undefined.
    [[nodiscard]] bool again() const { return part.last.value != 0; }
};

/// What was drawn after each of the `count` rows of a batch that start at `first`; empty if nothing
/// was.
[[nodiscard]] std::vector<DrawnSiblingsPtr> drawn_below(const msg::Batch& batch,
                                                        std::uint32_t first,
                                                        std::uint32_t count);

struct SegmentRun {
    /// The hidden states go to `memory`, which has room for the largest batch.
    SegmentRun(Backend& backend, HiddenRows memory) : job{backend, memory} {}
    SegmentRun(const SegmentRun&) = delete;
    SegmentRun& operator=(const SegmentRun&) = delete;

    /// Errors: Protocol if a prefill part does not continue its text, or a tensor is not there.
    Status collect(const SegmentRequests& requests, std::span<const WaitingPart> waiting);
    /// Rows with the keys that they see: a prefill row sees the text up to itself, a node sees the
    /// committed prefix and its path. The rows point into `paths`.
    void build_rows(std::vector<Row>& built, std::vector<KvSlot>& paths) const;
    /// The job has ended: the tensors go back to their pools.
    void release();
    /// The pool of the tensors is gone: nothing is given back.
    void forget_tensors();
    /// `verdicts_are_sent`: another segment verifies, and publishes the committed tokens.
    void watch(StageContext& context, bool verdicts_are_sent);

    /// Whether the job may be stopped in the middle.
    [[nodiscard]] bool may_be_cut() const;
    /// Whether all rows of the run are stale.
    [[nodiscard]] bool stale(const SegmentRequests& requests) const;
    /// The job has ended: leaves out the rows that are stale by now. `whole_parts`: a part that
    /// keeps one row keeps all of them.
    void drop_stale(const SegmentRequests& requests, JobOutcome outcome, bool whole_parts);
    /// Leaves only the rows that are to be kept, and the parts that have any.
    void keep(const std::vector<bool>& kept, bool whole_parts);

    /// What was drawn after the rows that run, for the next segment.
    void add_draws(msg::Batch& batch) const;
    [[nodiscard]] bool verifies() const;  // not prefill alone
    /// The job took so long: adds it to the cost of the batch.
    void charge(Micros took);
    [[nodiscard]] JobLabel label() const;
    [[nodiscard]] std::size_t dim() const { return job.dim(); }
    /// A row of a prompt that begins behind this segment: it has no hidden state here.
    [[nodiscard]] bool passes_through(const msg::BatchRow& row) const {
        return row.start > static_cast<std::uint32_t>(2 * job.backend.last_layer());
    }
    [[nodiscard]] std::span<const msg::BatchRow> rows_of(const RunPart& part) const {
        return std::span{rows}.subspan(part.first, part.part.rows);
    }

    std::vector<RunPart> parts;
    std::vector<msg::BatchRow> rows;  // the rows that run, part after part
    LayerJob job;                     // on these rows
    Micros started{0};
    msg::BatchCost cost = {};  // of the batch, with this segment from charge() on

private:
    Status place_rows(RunPart& part, const WaitingPart& waiting);
    [[nodiscard]] Result<RowSource> input_of(const msg::BatchRow& row,
                                             const RowSource& received,
                                             bool prefill) const;
    void join_cost(const WaitingPart& waiting);

    std::optional<std::optional<msg::BatchCost>> cost_joined_ = {};  // of the first part
    bool cost_known_ = true;
    std::vector<std::shared_ptr<TensorShare>> tensors_;  // that the job's inputs lie in
    std::vector<std::shared_ptr<RowMemory>> copies_;     // likewise
};

}  // namespace paceline
