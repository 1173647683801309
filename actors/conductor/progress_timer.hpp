// ProgressTimer: asks ProgressWatch regularly which running requests are overdue, as long as one is
// watched.
//
// Threads: the conductor's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "actors/conductor/progress_watch.hpp"
#include "ipc/base/ids.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class ProgressTimer {
public:
    using RowsDone = std::function<std::uint64_t()>;
    using OnOverdue = std::function<void(const std::vector<ProgressWatch::Overdue>&)>;

    /// `rows_done`: as ConductorPlan. `on_overdue` gets at least one.
    ProgressTimer(const ProgressRules& rules, RowsDone rows_done, OnOverdue on_overdue)
        : watch_{rules}, rows_done_{std::move(rows_done)}, on_overdue_{std::move(on_overdue)} {}
    ProgressTimer(const ProgressTimer&) = delete;
    ProgressTimer& operator=(const ProgressTimer&) = delete;

    /// As ProgressWatch. `context` outlives this object.
    void begun(Context& context, RequestId request, std::int32_t rows);
    void verdict(Context& context, RequestId request) { watch_.verdict(request, context.now()); }
    void ended(RequestId request) { watch_.ended(request); }

private:
    void schedule(Context& context);
    void look(Context& context);

    ProgressWatch watch_;
    RowsDone rows_done_;
    OnOverdue on_overdue_;
    bool scheduled_ = false;
};

}  // namespace paceline
