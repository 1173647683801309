#include "launch/config/schedule_config.hpp"

#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

std::vector<Field> fields_of(DispatchOptions& s) {
    return {
        {"mode", word(s.start, {"at-once", "sequential", "lockstep"}),
         "verification starts `at-once` with the candidates that are there, when the draft has "
         "answered the new root (`sequential`), or in rounds with the draft (`lockstep`)",
         "as the draft's `pace`; `at-once` without a draft"},
        {"shape", word(s.shape, {"chain", "tree"}),
         "candidates of a verify batch: the trunk, or the most probable nodes"},
        {"rows_max", number(s.rows_max, 1, kVerifyRowsMax),
         "rows of one request in a verify batch, the root included; a path has at most 33"},
        {"batches_in_flight", number(s.batches_in_flight_max, 1, kSegmentsMax),
         "verify batches of one request at a time",
         "1; the number of segments with `at-once`; `early_max` + 1 if an exit proposes"},
        {"draft_wait_us", micros(s.proposal_wait, 0, 10'000'000),
         "microseconds, then the target starts with the root alone; with `lockstep` 200000"},
        {"prefill_rows", number(s.prefill_rows, 1, kBatchRowsMax),
         "rows of one request's prompt in a batch: more of them use a device better and let other "
         "requests wait longer",
         "64; 512 if all segments are on GPUs"},
        {"requests_max", number(s.requests_max, 1, kBatchPartsMax), "requests that share a batch"},
        {"prompt_share", number(s.prompt_share, 0, 0.9),
         "part of a batch's rows that prompts get at least while other requests decode; more, as "
         "far as the batch takes at most twice as long"},
        {"reach_min", number(s.verify_reach_min, 0, 1),
         "a candidate is sent only if its path is at least this probable; 0: always"},
        {"controller", word(s.controller, {"off", "on", "guard", "plain"}),
         "`on`: drafts, exits and verification work as far as they gain time, by what is measured; "
         "`guard`: as configured, while that gains time; "
         "`off`: as configured, for studies; `plain`: nothing is speculated, for measurements. "
         "Always `off` with `lockstep`, `[self_draft]` (which has `auto_off`) and `unverified`"},
    };
}

std::vector<Field> fields_of(ScheduleConfig& schedule) {
    return fields_of(schedule.options);
}

std::vector<Field> fields_of(AcceptanceRule& rule) {
    return {
        {"rule", word(rule, {"coupled", "rejection", "unverified"}),
         "the bytes of plain decoding (`coupled`); the rule of the papers, the same distribution "
         "but other bytes (`rejection`); candidates without verification, for measurements "
         "(`unverified`)"}};
}

Status finish_schedule(const TomlTable& table, ScheduleConfig& schedule) {
    schedule.mode_given = table.has("mode");
    schedule.wait_given = table.has("draft_wait_us");
    schedule.batches_given = table.has("batches_in_flight");
    schedule.prefill_given = table.has("prefill_rows");
    return {};
}

}  // namespace paceline
