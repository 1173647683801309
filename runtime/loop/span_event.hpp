// span_event: the trace event of something that took time: a job, or a wait (an empty label).
#pragma once

#include "runtime/loop/context.hpp"

namespace paceline {

[[nodiscard]] inline TraceEvent span_event(TraceKind kind,
                                           Micros start,
                                           Micros end,
                                           const JobLabel& label) {
    TraceEvent event;
    event.time_us = start.count();
    event.duration_us = static_cast<std::uint32_t>((end - start).count());
    event.kind = kind;
    event.request = label.request;
    event.id = label.id;
    event.count = label.rows;
    event.position = label.context;
    event.detail = label.layers;
    event.label = job_name_index(label.name);
    event.heads = heads_of(label);
    return event;
}

}  // namespace paceline
