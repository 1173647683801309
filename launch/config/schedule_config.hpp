// ScheduleConfig: the tables [schedule] and [acceptance] of a pipeline's file: when the target
// starts with what, and which candidates are accepted.
//
// Keys, ranges and meanings: fields_of(). Plain values; any thread.
#pragma once

#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/segment/scheduling/dispatch_options.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct Field;
class TomlTable;

struct ScheduleConfig {
    // As written; dispatch_options() fills in what is not.
    DispatchOptions options = {.controller = Controller::On};
    bool mode_given = false;
    bool wait_given = false;
    bool batches_given = false;
    bool prefill_given = false;
};

[[nodiscard]] std::vector<Field> fields_of(DispatchOptions& schedule);
[[nodiscard]] std::vector<Field> fields_of(AcceptanceRule& rule);
[[nodiscard]] std::vector<Field> fields_of(ScheduleConfig& schedule);
/// Which of the keys that have no fixed default are in `table`.
[[nodiscard]] Status finish_schedule(const TomlTable& table, ScheduleConfig& schedule);

}  // namespace paceline
