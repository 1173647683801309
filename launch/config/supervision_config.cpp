#include "launch/config/supervision_config.hpp"

#include <cmath>

namespace paceline {
namespace {

using Millis = SupervisionConfig::Millis;

constexpr double kSecondsMax = 86'400;
constexpr std::size_t kBackoffsMax = 32;

Status read_seconds(const TomlTable& table, std::string_view key, double lowest, Millis& out) {
    double seconds = std::chrono::duration<double>(out).count();
    if (Status s = table.read_number(key, lowest, kSecondsMax, seconds); !s.ok()) return s;
    out = Millis{std::llround(seconds * 1000.0)};
    return {};
}

Status read_backoff(const TomlTable& table, std::vector<Millis>& out) {
    constexpr std::string_view kKey = "backoff_ms";
    if (!table.has(kKey)) return {};
    const Result<NumberList> list = table.number_list(kKey);
    if (!list) return list.error();
    const std::vector<double>& values = list.value().values;
    if (values.empty() || values.size() > kBackoffsMax) {
        return table.error(kKey, "must have 1 to " + std::to_string(kBackoffsMax) + " numbers");
    }
    out.clear();
    for (const double value : values) {
        if (!(value >= 0 && value <= kSecondsMax * 1000.0)) {
            return table.error(kKey, "must hold milliseconds from 0 to 86400000");
        }
        out.push_back(Millis{std::llround(value)});
    }
    return {};
}

}  // namespace

Result<SupervisionConfig> read_supervision(const TomlTable& table) {
    SupervisionConfig config;
    Status s = table.allow_only({"restarts_max", "restart_period_s", "backoff_ms", "hang_limit_s",
                                 "stop_grace_s", "start_limit_s", "recovery_limit_s", "drain_s",
                                 "shutdown_grace_s", "checksums"});
    auto restarts = static_cast<int>(config.restarts_max);
    if (s.ok()) s = table.read_int("restarts_max", 0, 1'000'000, restarts);
    config.restarts_max = static_cast<std::uint32_t>(restarts);
    if (s.ok()) s = read_seconds(table, "restart_period_s", 0.001, config.restart_period);
    if (s.ok()) s = read_backoff(table, config.backoff);
    if (s.ok()) s = read_seconds(table, "hang_limit_s", 0, config.hang_limit);
    if (s.ok()) s = read_seconds(table, "stop_grace_s", 0, config.stop_grace);
    if (s.ok()) s = read_seconds(table, "start_limit_s", 0.001, config.start_limit);
    if (s.ok()) s = read_seconds(table, "recovery_limit_s", 0.001, config.recovery_limit);
    if (s.ok()) s = read_seconds(table, "drain_s", 0, config.drain);
    if (s.ok()) s = read_seconds(table, "shutdown_grace_s", 0, config.shutdown_grace);
    if (s.ok()) s = table.read_bool("checksums", config.checksums);
    if (!s.ok()) return s.error();
    return config;
}

}  // namespace paceline
