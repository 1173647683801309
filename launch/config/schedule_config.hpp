// ScheduleConfig: the tables [schedule] and [acceptance] of a pipeline's file: when the target
// starts with what, and which candidates stand.
//
//     [schedule]
//     mode             "sequential" (wait for the draft's answer to the new root), "at-once" (with what
//                      is there) or "lockstep" (rounds, as PEARL and FOLD are published). Default:
//                      as the draft's pace; "at-once" without a draft
//     shape            "chain" (the trunk) or "tree" (the most probable nodes)
//     rows_max         33     of one request in a wave, the root included
//     waves_in_flight  verify waves of one request; default: 1, and with "at-once" as many as there
//                      are segments
//     draft_wait_us    2000   then the target starts with the root alone; lockstep: 200000
//     requests_max     16     that share a wave
//     reach_min        0      a row is sent only if its path is at least this probable
//
//     [acceptance]
//     rule             "coupled" (the text is plain decoding's), "rejection" (the papers' rule:
//                      its distribution is) or "unverified" (candidates stand as they are: what
//                      verification costs and saves, for benches)
//
// All keys are optional. Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "actors/decoding/acceptance.hpp"
#include "actors/target/wave_scheduler.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

struct ScheduleConfig {
    std::optional<StartRule> mode = {};  // nothing: the default, see check_pipeline()
    WaveShape shape = WaveShape::Chain;
    int rows_max = static_cast<int>(kGammaMax) + 1;
    int waves_in_flight = 0;  // 0: the default
    std::optional<std::chrono::microseconds> draft_wait = {};
    int requests_max = static_cast<int>(kWavePartsMax);
    double reach_min = 0.0;
};

/// Errors: BadArgument, naming file, line, key, value and range.
[[nodiscard]] Result<ScheduleConfig> read_schedule(const TomlTable& table);
[[nodiscard]] Result<AcceptanceRule> read_acceptance(const TomlTable& table);

}  // namespace paceline
