#include "actors/conductor/progress_timer.hpp"

#include <optional>

#include "ipc/base/faults.hpp"

namespace paceline {

void ProgressTimer::begun(Context& context, RequestId request, std::int32_t rows) {
    watch_.begun(request, rows, context.now());
    schedule(context);
}

void ProgressTimer::schedule(Context& context) {
    if (scheduled_ || watch_.idle()) return;
    scheduled_ = true;
    context.schedule(watch_.period(), [this, &context] {
        scheduled_ = false;
        look(context);
        schedule(context);
    });
}

void ProgressTimer::look(Context& context) {
    if (planted(PlantedBug::ProgressUnwatched)) return;
    std::optional<std::uint64_t> rows_done;
    if (rows_done_) rows_done = rows_done_();
    const std::vector<ProgressWatch::Overdue> overdue = watch_.overdue(context.now(), rows_done);
    if (!overdue.empty()) on_overdue_(overdue);
}

}  // namespace paceline
