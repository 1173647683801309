#include "runtime/simulation/table_timing.hpp"

#include <algorithm>
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

CostRecord TableTiming::record_of(const CostsOfProcess& costs,
                                  const char* job,
                                  const Share& share) const {
    const auto named = costs.jobs.find(job);
    return {.stage = named == costs.jobs.end() ? std::string{job} : named->second,
            .fingerprint = costs.fingerprint,
            .threads = share.threads,
            .neighbours = share.neighbours};
}

SimTime TableTiming::job(StageId process, const JobLabel& label, SimRandom& /*random*/) {
    const CostsOfProcess& costs = processes_[process];
    return timed(costs, label, {costs.threads, costs.neighbours});
}

double TableTiming::contention(StageId process, const JobLabel& label, std::uint32_t others) {
    if (others == 0) return 1.0;
    const CostsOfProcess& costs = processes_[process];
    const std::uint32_t threads = std::max(costs.threads / (others + 1), 1U);
    const SimTime alone = timed(costs, label, {threads, costs.neighbours});
    const SimTime beside = timed(costs, label, {threads, costs.neighbours + others});
    if (alone <= SimTime{0} || beside <= alone) return 1.0;
    return static_cast<double>(beside.count()) / static_cast<double>(alone.count());
}

SimTime TableTiming::timed(const CostsOfProcess& costs, const JobLabel& label, const Share& share) {
    SimTime takes{0};
    if (label.rows > 0 || label.heads == 0) {
        CostRecord wanted = record_of(costs, label.name, share);
        wanted.layers = label.layers;
        wanted.rows = label.rows;
        wanted.context = static_cast<std::uint32_t>(label.context);
        takes += ask(wanted);
    }
    if (label.heads == 0) return takes;
    CostRecord heads = record_of(costs, "head", share);
    heads.rows = label.heads;
    if (label.rows == 0 || table_.knows(heads.stage, heads.fingerprint)) takes += ask(heads);
    return takes;
}

SimTime TableTiming::hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom& /*random*/) {
    const auto [known, first] = hops_.try_emplace({edge.from, edge.to, rows}, default_hop_);
    if (!first) return known->second;
    const std::string stage = processes_[edge.from].name + ">" + processes_[edge.to].name;
    if (table_.knows(stage, "-")) {
        known->second = ask({.stage = stage, .fingerprint = "-", .rows = rows});
    }
    return known->second;
}

SimTime TableTiming::load(StageId process, SimRandom& /*random*/) {
    const CostsOfProcess& costs = processes_[process];
    if (!table_.knows("load", costs.fingerprint)) return default_hop_;
    return ask({.stage = "load", .fingerprint = costs.fingerprint, .threads = costs.threads});
}

}  // namespace paceline
