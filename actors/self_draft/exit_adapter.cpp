#include "actors/self_draft/exit_adapter.hpp"

#include "ipc/base/check.hpp"

namespace paceline {

ExitAdapter::ExitAdapter(Backend& backend, int exit) : backend_{backend}, end_{2 * exit} {
    PACE_CHECK(backend.has_adapter() && backend.first_layer() == 0 && exit <= backend.last_layer(),
               "an exit in a segment without its layers or its adapter");
}

RunOutcome ExitAdapter::run(std::span<const Row> rows,
                            ConstHiddenRows hidden,
                            const CancelToken* cancel) {
    const HiddenRows to = backend_.rows_of(adapted_, rows.size());
    out_ = to;
    return backend_.run_adapter(rows, hidden, to, cancel);
}

RunOutcome ExitAdapter::run_to_exit(std::span<Row> rows,
                                    HiddenRows hidden,
                                    const CancelToken* cancel) {
    through_.clear();
    states_.clear();
    begun_.clear();
    std::vector<std::int32_t> ends;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        Row& row = rows[i];
        PACE_CHECK(row.stack == nullptr, "a stack of a row that runs in two parts");
        begun_.push_back(row.first);
        ends.push_back(row.last);
        // A drafted row was given to the adapter in its pass; one that passes the segment through
        // was when it ran here.
        row.last = row.first < end_ ? end_ : row.first;
        if (row.first == row.last) continue;
        through_.push_back(row);
        states_.push_back({hidden, i});
    }
    RunOutcome outcome = RunOutcome::Done;
    if (!through_.empty()) outcome = backend_.run_layers(rows, hidden, cancel);
    if (!through_.empty() && outcome == RunOutcome::Done) {
        // The call's rows are others than those that `cancel` watches.
        outcome = run(through_, backend_.in_order(states_, gathered_), nullptr);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].first = rows[i].last;
        rows[i].last = ends[i];
    }
    return outcome;
}

void ExitAdapter::end_run(std::span<Row> rows) {
    PACE_CHECK(rows.size() == begun_.size(), "rows of another run end");
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].first = begun_[i];
}

}  // namespace paceline
