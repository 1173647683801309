#include "launch/config/schedule_config.hpp"

namespace paceline {

Result<ScheduleConfig> read_schedule(const TomlTable& table) {
    ScheduleConfig schedule;
    Status s = table.allow_only({"mode", "shape", "rows_max", "waves_in_flight", "draft_wait_us",
                                 "requests_max", "reach_min"});
    std::string mode = "at-once";
    if (s.ok()) s = table.read_choice("mode", {"sequential", "at-once", "lockstep"}, mode);
    if (table.has("mode")) {
        schedule.mode = mode == "sequential" ? StartRule::Sequential
                        : mode == "lockstep" ? StartRule::Lockstep
                                             : StartRule::AtOnce;
    }
    std::string shape = "chain";
    if (s.ok()) s = table.read_choice("shape", {"chain", "tree"}, shape);
    if (shape == "tree") schedule.shape = WaveShape::Tree;
    if (s.ok()) s = table.read_int("rows_max", 1, kGammaMax + 1, schedule.rows_max);
    if (s.ok()) s = table.read_int("waves_in_flight", 1, kSegmentsMax, schedule.waves_in_flight);
    int wait_us = 0;
    if (s.ok()) s = table.read_int("draft_wait_us", 0, 10'000'000, wait_us);
    if (table.has("draft_wait_us")) schedule.draft_wait = std::chrono::microseconds{wait_us};
    if (s.ok()) s = table.read_int("requests_max", 1, kWavePartsMax, schedule.requests_max);
    if (s.ok()) s = table.read_number("reach_min", 0.0, 1.0, schedule.reach_min);
    if (!s.ok()) return s.error();
    return schedule;
}

Result<AcceptanceRule> read_acceptance(const TomlTable& table) {
    std::string rule = "coupled";
    Status s = table.allow_only({"rule"});
    if (s.ok()) s = table.read_choice("rule", {"coupled", "rejection", "unverified"}, rule);
    if (!s.ok()) return s.error();
    if (rule == "unverified") return AcceptanceRule::Unverified;
    return rule == "rejection" ? AcceptanceRule::Rejection : AcceptanceRule::Coupled;
}

}  // namespace paceline
