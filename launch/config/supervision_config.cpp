#include "launch/config/supervision_config.hpp"

#include <cmath>
#include <fmt/core.h>

#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

using Millis = SupervisionConfig::Millis;

constexpr double kSecondsMax = 86'400;
constexpr std::size_t kBackoffsMax = 32;
/// Of a recovery: back-off, and wiring what has loaded.
constexpr Millis kBesidesLoading{60'000};

/// A list of milliseconds.
OwnField backoff_field(std::vector<Millis>& backoff) {
    OwnField field;
    field.type = fmt::format("a list of 1 to {} numbers from 0 to 86400000", kBackoffsMax);
    for (const Millis pause : backoff)
        field.value += (field.value.empty() ? "[" : ", ") + std::to_string(pause.count());
    field.value += "]";
    field.read = [&backoff](const TomlTable& table, std::string_view key) -> Status {
        const TomlValue value = table.value(key);
        const auto* list = std::get_if<TomlNumbers>(&value);
        if (list == nullptr) return table.error(key, "must be a list of numbers");
        if (list->empty() || list->size() > kBackoffsMax)
            return table.error(key, fmt::format("must have 1 to {} numbers", kBackoffsMax));
        backoff.clear();
        for (const TomlNumber& pause : *list) {
            if (!(pause.value >= 0 && pause.value <= kSecondsMax * 1000.0))
                return table.error(key, "must hold milliseconds from 0 to 86400000");
            backoff.push_back(Millis{std::llround(pause.value)});
        }
        return {};
    };
    return field;
}

}  // namespace

SupervisionConfig::Millis SupervisionConfig::longest_recovery() const {
    return recovery_limit.count() > 0 ? recovery_limit : start_limit + kBesidesLoading;
}

std::vector<Field> fields_of(SupervisionConfig& s) {
    return {
        {"restarts_max", number(s.restarts_max, 0, 1'000'000),
         "a stage that dies more often within the period is given up: the run ends, or goes on "
         "without its draft. Below 4 a request that kills a stage (poison) may end the run: it "
         "costs up to four deaths before it is known"},
        {"restart_period_s", seconds(s.restart_period, 0.001, kSecondsMax),
         "that period, seconds in which the stage was at work: loading does not count"},
        {"backoff_ms", backoff_field(s.backoff),
         "milliseconds before the first, second, ... restart; the last number stays"},
        {"hang_limit_s", seconds(s.hang_limit, 0, kSecondsMax),
         "seconds that a job may take beyond what its stage expects; 0: no limit"},
        {"stop_grace_s", seconds(s.stop_grace, 0, kSecondsMax),
         "seconds that a stopped stage (SIGSTOP, a debugger) is waited for"},
        {"link_limit_s", seconds(s.link_limit, 0, kSecondsMax),
         "seconds until the tensors of an edge between two devices have a way (`transport`); 0: no "
         "limit"},
        {"start_limit_s", seconds(s.start_limit, 0.001, kSecondsMax),
         "seconds until a started stage has loaded its model"},
        {"machine_wait_s", seconds(s.machine_wait, 0.001, kSecondsMax),
         "seconds that a stage waits for a machine after its own was lost; a draft waits on while "
         "decoding goes on without it"},
        {"lease_s", seconds(s.lease, 1, kSecondsMax),
         "seconds that the stages of another machine may run without word from the conductor"},
        {"recovery_limit_s", seconds(s.recovery_limit, 0, kSecondsMax),
         "seconds that an answer waits for the pipeline to be complete again; 0: `start_limit_s` "
         "and "
         "60 more"},
        {"drain_s", seconds(s.drain, 0, kSecondsMax),
         "seconds that the running answer may take after SIGTERM"},
        {"shutdown_grace_s", seconds(s.shutdown_grace, 0, kSecondsMax),
         "seconds until stages that do not end are killed"},
        {"checksums", &s.checksums, "of whole messages between processes, not of headers alone"},
    };
}

}  // namespace paceline
