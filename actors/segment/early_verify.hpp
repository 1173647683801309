// EarlyVerify: the role of a segment with an exit: evaluates hidden states after its layers ahead
// of the verdict. Its messages are proposals, never decisions.
// Handles: Price, from the dispatcher. It reads the runs of its own segment.
// Emits: Proposal (to draft and correct: alternatives; to the first segment: the next token).
//
//                 run ends, has rows to evaluate            next_job()
//      [Idle] -------------------------------> [Collected] ------------> [Busy]
//        ^                                          | all are decided       |
//        +------------------------------------------+-----------------------+
//                                                     finish(): proposals
//
// An exit that defers rows evaluates inside the run's own job instead (ExitInside), and the
// rows after which a token starts early are marked to be held by the next segment.
// Price, measured cost and gain of evaluations decide whether the next batch is evaluated
// (account/exit_worth.hpp).
// Owns the evaluator and what it evaluates now. Threads: the actor's loop; evaluate() is the exit's
// own job, and the ExitInside is the run's job's while a run is submitted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/dispatcher.hpp"
#include "actors/segment/exit_evaluator.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/states/adapter_backlog.hpp"

namespace paceline {

/// Where in the target the exit stands.
struct ExitPosition {
    int segments = 1;                  // of the target
    bool behind_last = false;          // then it only looks ahead of verdicts
    Dispatcher* dispatcher = nullptr;  // of the same segment; borrowed
    StageId first_segment = {};        // gets its proposals where there is no dispatcher here
};

/// What an exit evaluates inside a run's job.
struct ExitInside {
    /// Rows that are evaluated.
    [[nodiscard]] std::uint32_t heads() const;
    void evaluate(const LayerJob& layers) { evaluator.evaluate(parts, layers.hidden, layers.rows); }

    ExitEvaluator& evaluator;
    std::vector<ExitPart> parts = {};
};

class EarlyVerify {
public:
    using Handles = Kinds<msg::Price>;
    using Emits = Kinds<msg::Proposal>;

    /// Borrows host and backend. `options` are valid.
    EarlyVerify(SegmentHost& host, Backend& backend, ExitOptions options, ExitPosition position);
    EarlyVerify(const EarlyVerify&) = delete;
    EarlyVerify& operator=(const EarlyVerify&) = delete;

    Status handle(StageId from, const msg::Price& price);
    /// From a dispatcher of the same segment.
    void take(const msg::Price& price) { evaluator_.take(price); }
    /// The dispatcher of another segment is lost.
    void forget_price() { evaluator_.forget_price(); }

    // A run, in the order of the calls.
    void prepare(const SegmentRun& run);
    void run_starts(Micros now);
    /// Whether the hidden states of the current run are read, inside its job or after it.
    [[nodiscard]] bool reads_run() const { return wanted_ || evaluator_.has_adapter(); }
    /// Whether rows are evaluated inside a run.
    [[nodiscard]] bool defers() const;
    [[nodiscard]] ExitInside& inside() { return inside_; }
    [[nodiscard]] const ExitInside& inside() const { return inside_; }
    /// The run has ended and not all of its rows are stale. Marks the parts to be held, and
    /// copies the hidden states that are evaluated after the run was passed on.
    void run_ended(SegmentRun& run);
    /// A verdict was made after the last segment: `hidden` is of the last accepted row, in memory
    /// that no run writes to until finish().
    void look_ahead(const SegmentRun& run,
                    const std::shared_ptr<RequestState>& state,
                    ConstHiddenRows hidden);

    // The exit's own job.
    /// What the next job is to be submitted as; nothing if no row is left to evaluate.
    [[nodiscard]] std::optional<JobLabel> next_job();
    void evaluate();
    void finish();
    [[nodiscard]] bool busy() const { return busy_; }

    /// The request's text has grown.
    void follow(const RequestState& state) { evaluator_.learn(state); }

private:
    /// What one job evaluates.
    struct ExitJob {
        std::vector<ExitPart> exits = {};
        std::vector<AheadPart> ahead = {};
        HiddenRows hidden = {};      // of the rows of `exits`; with an adapter of all rows
        std::vector<Row> rows = {};  // with an adapter: those of `hidden`
        std::vector<KvSlot> path_slots = {};
        AdapterBacklog::Rows late = {};  // with an adapter: the first of `rows`
        std::vector<std::shared_ptr<RequestState>> states = {};  // whose slots they name
        JobLabel label = {.name = "exit"};
        Micros started{0};
    };
    struct Priced {
        Micros took;
        Micros ended;
    };

    [[nodiscard]] ExitPart plan(const SegmentRun& run, const RunPart& part) const;
    void measure(const SegmentRun& run);
    void propose_inside(SegmentRun& run);
    void collect(const SegmentRun& run);
    [[nodiscard]] std::vector<RowSource> collect_for_adapter(const SegmentRun& run);
    bool publish(const ExitPart& part);
    bool propose(msg::Proposal proposal);

    SegmentHost& host_;
    Backend& backend_;
    ExitPosition position_;
    ExitEvaluator evaluator_;
    bool wanted_ = false;            // the current run is evaluated
    ExitInside inside_{evaluator_};  // of the current run
    ExitJob job_;
    RowMemory states_;        // that ExitJob::hidden lies in
    AdapterBacklog backlog_;  // rows that the adapter has still to be given
    bool busy_ = false;
    std::optional<Priced> priced_;  // the last evaluation, until it is known whether a batch waited
    double batch_us_ = 0.0;         // what a batch takes in all segments, by the runs of this one
};

}  // namespace paceline
