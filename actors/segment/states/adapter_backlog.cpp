#include "actors/segment/states/adapter_backlog.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace paceline {

bool AdapterBacklog::defer(const SegmentRun& run) {
    const bool prefills = std::any_of(run.parts.begin(), run.parts.end(),
                                      [](const RunPart& part) { return part.prefill(); });
    if (prefills || used_ + run.rows.size() > kRows) return false;
    forget_slots_of(run);
    const std::size_t dim = run.dim();
    const HiddenRows memory = backend_.rows_of(hidden_, kRows);
    const std::size_t begin = used_;
    std::vector<RowSource> sources;
    for (const RunPart& part : run.parts) {
        for (const msg::BatchRow& row : run.rows_of(part)) {
            if (run.passes_through(row)) continue;
            sources.push_back({run.job.hidden, row.tensor_row});
            entries_.push_back({.state = part.state,
                                .node = row.node,
                                .position = row.position,
                                .slot = row.slot,
                                .place = used_++});
        }
    }
    backend_.gather(sources, memory.subspan(begin * dim, sources.size() * dim));
    return true;
}

void AdapterBacklog::forget_slots_of(const SegmentRun& run) {
    std::erase_if(entries_, [&](const Entry& entry) {
        return std::any_of(run.rows.begin(), run.rows.end(),
                           [&](const msg::BatchRow& row) { return row.slot == entry.slot; });
    });
}

AdapterBacklog::Rows AdapterBacklog::take(const SegmentRun& run) {
    forget_slots_of(run);
    Rows taken;
    std::size_t slots = 0;  // paths must not move while rows point into it
    for (const Entry& entry : entries_) slots += entry.state->tree().nodes().size();
    taken.paths.reserve(slots);
    const ConstHiddenRows memory = hidden_.rows;
    for (const Entry& entry : entries_) {
        if (!add_row(entry, taken)) continue;
        taken.hidden.push_back({memory, entry.place});
        if (taken.states.empty() || taken.states.back() != entry.state)
            taken.states.push_back(entry.state);
    }
    entries_.clear();
    used_ = 0;
    return taken;
}

bool AdapterBacklog::add_row(const Entry& entry, Rows& to) {
    const RequestState& state = *entry.state;
    Row row{.position = entry.position, .slot = entry.slot};
    row.prefix_slots = state.slots().data();
    const auto at = static_cast<std::size_t>(entry.position);
    if (at < state.slots().size()) {  // its place in the text is decided
        if (state.slots()[at] != entry.slot) return false;
        row.prefix_count = entry.position + 1;
    } else {
        if (state.tree().find(entry.node) == nullptr) return false;
        const std::vector<const TreeNode*> path = state.tree().path(entry.node);
        if (path.back()->slot != entry.slot) return false;
        row.path_count = static_cast<std::int32_t>(path.size());
        row.prefix_count = entry.position + 1 - row.path_count;
        row.path_slots = to.paths.data() + to.paths.size();
        for (const TreeNode* node : path) to.paths.push_back(node->slot);
    }
    to.rows.push_back(row);
    return true;
}

}  // namespace paceline
