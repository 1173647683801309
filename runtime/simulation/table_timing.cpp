#include "runtime/simulation/table_timing.hpp"

#include <cmath>
#include <utility>

namespace paceline {
namespace {

constexpr double kNanosPerSecond = 1e9;

}  // namespace

TableTiming::TableTiming(const CostTable& table,
                         std::map<StageId, CostsOfProcess> processes,
                         SimTime default_hop)
    : table_{table}, processes_{std::move(processes)}, default_hop_{default_hop} {}

SimTime TableTiming::ask(const CostRecord& wanted) {
    const Result<double> seconds = table_.seconds(wanted);
    if (seconds.ok()) return SimTime{std::llround(seconds.value() * kNanosPerSecond)};
    if (!error_) error_ = seconds.error();
    return SimTime{0};
}

SimTime TableTiming::job(StageId process, const JobLabel& label, SimRandom& /*random*/) {
    const CostsOfProcess& costs = processes_[process];
    const auto named = costs.jobs.find(label.name);
    return ask({.stage = named == costs.jobs.end() ? std::string{label.name} : named->second,
                .fingerprint = costs.fingerprint,
                .layers = label.layers,
                .rows = label.rows,
                .context = static_cast<std::uint32_t>(label.context),
                .threads = costs.threads,
                .neighbours = costs.neighbours});
}

SimTime TableTiming::hop(const EdgeSpec& edge, std::uint16_t /*kind*/, SimRandom& /*random*/) {
    const auto [known, first] = hops_.try_emplace({edge.from, edge.to}, default_hop_);
    if (!first) return known->second;
    const std::string stage = processes_[edge.from].name + ">" + processes_[edge.to].name;
    if (table_.knows(stage, "-")) known->second = ask({.stage = stage, .fingerprint = "-"});
    return known->second;
}

SimTime TableTiming::load(StageId process, SimRandom& /*random*/) {
    const CostsOfProcess& costs = processes_[process];
    if (!table_.knows("load", costs.fingerprint)) return default_hop_;
    return ask({.stage = "load", .fingerprint = costs.fingerprint, .threads = costs.threads});
}

}  // namespace paceline
