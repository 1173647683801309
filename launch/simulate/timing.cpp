#include "launch/simulate/timing.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "launch/simulate/cost_names.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

/// Draft jobs of a process are asked under an address of their own: a model of their own.
constexpr std::uint16_t kDraftBit = 0x8000;

StageId draft_of(StageId process) {
    return StageId{static_cast<std::uint16_t>(process.value | kDraftBit)};
}

bool is_draft(const JobLabel& label) {
    return std::strcmp(label.name, "draft") == 0;
}

/// Of a lookup in a datastore: the median of `paceline run --method rest --trace`, 372,000 tokens,
/// one core of a Zen 5. A pass of any model takes many times that.
constexpr double kStoreSeconds = 40e-6;

/// Collects the records of a pipeline under names of its own.
class Collection {
public:
    Collection(const CostTable& table, std::string file) : table_{table}, file_{std::move(file)} {}

    /// The name under which the jobs of `model` stand in records(). `job` is the stage that a table
    /// without "layers" must have.
    Result<CostsOfProcess> add(const ModelCosts& model, const std::string& job) {
        CostsOfProcess costs;
        costs.fingerprint = model.head.empty() ? model.layers : model.layers + " " + model.head;
        const bool known = !names_.insert(costs.fingerprint).second;
        if (table_.knows("layers", model.layers)) {
            costs.jobs = {{"prefill", "layers"},
                          {"verify", "layers"},
                          {"draft", "layers"},
                          {"optimise", "layers"},
                          {"exit", "none"}};
            if (!table_.knows("head", model.head)) return missing("head", model.head);
            if (known) return costs;
            copy("layers", model.layers, costs.fingerprint);
            // An exit's job is its heads; what an adapter takes beside them is in no table.
            records_.push_back({.stage = "none", .fingerprint = costs.fingerprint});
            copy("head", model.head, costs.fingerprint);
            return costs;
        }
        if (!table_.knows(job, model.layers)) return missing("layers", model.layers);
        if (!table_.knows("prefill", model.layers)) costs.jobs["prefill"] = job;
        for (const char* own : {"draft", "optimise"}) {  // of a target that drafts for itself
            if (!table_.knows(own, model.layers)) costs.jobs[own] = job;
        }
        if (known) return costs;
        for (const char* stage : {"prefill", "verify", "draft", "optimise", "exit", "head"})
            copy(stage, model.layers, costs.fingerprint);
        return costs;
    }

    /// What the table says of an edge by name, else of any hop.
    void add_edge(const std::string& from, const std::string& to) {
        const std::string edge = from + ">" + to;
        if (!edges_.insert(edge).second) return;
        const bool named = table_.knows(edge, kNoModel);
        for (CostRecord record : table_.records()) {
            if (record.fingerprint != kNoModel || record.stage != (named ? edge : "hop")) continue;
            record.stage = edge;
            records_.push_back(std::move(record));
        }
    }

    /// A draft that looks up in a datastore has no model.
    void add_store() {
        if (table_.knows("draft", kNoModel)) return;
        records_.push_back({.stage = "draft", .fingerprint = kNoModel, .seconds = kStoreSeconds});
    }

    [[nodiscard]] std::vector<CostRecord> take() { return std::move(records_); }

private:
    [[nodiscard]] Error missing(const std::string& stage, const std::string& model) const {
        return {Errc::BadArgument, file_ + ": no record of stage '" + stage + "' of model '" +
                                       model + "'; paceline simulate --measure-costs measures it" +
                                       (stage == "head" ? " (--short-lists)" : "")};
    }
    void copy(const std::string& stage, const std::string& from, const std::string& to) {
        for (CostRecord record : table_.records()) {
            if (record.stage != stage || record.fingerprint != from) continue;
            record.fingerprint = to;
            records_.push_back(std::move(record));
        }
    }

    const CostTable& table_;
    std::string file_;
    std::set<std::string> names_;
    std::set<std::string> edges_;
    std::vector<CostRecord> records_;
};

}  // namespace

StageTiming::StageTiming(CostTable table,
                         std::map<StageId, CostsOfProcess> processes,
                         SimTime default_hop,
                         std::map<StageId, StageId> hosts,
                         StageId target,
                         const StageTimingOptions& options)
    : table_{std::move(table)},
      table_timing_{std::make_unique<TableTiming>(table_, std::move(processes), default_hop)},
      hosts_{std::move(hosts)},
      target_{target},
      options_{options} {}

Result<std::unique_ptr<StageTiming>> StageTiming::make(const CostTable& table,
                                                       const std::string& file,
                                                       const std::vector<StageCosts>& stages,
                                                       const std::vector<EdgeSpec>& edges,
                                                       const StageTimingOptions& options) {
    Collection records{table, file};
    std::map<StageId, CostsOfProcess> processes;
    std::map<StageId, StageId> hosts{{kConductor, kConductor}};
    processes[kConductor].name = "conductor";
    StageId target = kConductor;
    const auto place = [&](StageId id, const std::string& name, const ModelCosts& model,
                           const char* job) -> Status {
        Result<CostsOfProcess> costs = records.add(model, job);
        if (!costs) return costs.error();
        costs.value().name = name;
        costs.value().threads = options.threads;
        costs.value().neighbours = options.neighbours;
        processes[id] = std::move(costs).value();
        return {};
    };
    for (const StageCosts& stage : stages) {
        processes[stage.process].name = stage.name;
        hosts[stage.process] = stage.process;
        for (const StageId actor : stage.actors) hosts[actor] = stage.process;
        if (!stage.target.layers.empty()) {
            target = stage.process;
            if (Status s = place(stage.process, stage.name, stage.target, "verify"); !s)
                return s.error();
            // Without a draft model it may draft with its own layers.
            processes[draft_of(stage.process)] = processes[stage.process];
        }
        if (stage.draft.layers.empty()) continue;
        if (Status s = place(draft_of(stage.process), stage.name, stage.draft, "draft"); !s)
            return s.error();
    }
    records.add_store();
    SimTime default_hop{0};
    if (options.hop_seconds) {
        default_hop = SimTime{std::llround(*options.hop_seconds * 1e9)};
    } else {
        for (const EdgeSpec& edge : edges) {
            records.add_edge(processes[hosts[edge.from]].name, processes[hosts[edge.to]].name);
        }
        if (const Result<double> hop = table.seconds({.stage = "hop", .fingerprint = kNoModel}))
            default_hop = SimTime{std::llround(hop.value() * 1e9)};
    }
    std::unique_ptr<StageTiming> timing{new StageTiming{CostTable::of(records.take()),
                                                        std::move(processes), default_hop,
                                                        std::move(hosts), target, options}};
    for (const StageCosts& stage : stages) {
        if (stage.target.layers.empty()) timing->draft_only_.insert(stage.process);
    }
    return timing;
}

StageId StageTiming::costs_at(StageId process, const JobLabel& label) const {
    const bool optimises = std::strcmp(label.name, "optimise") == 0;
    const bool drafts = is_draft(label) || (optimises && draft_only_.contains(process));
    return drafts ? draft_of(process) : process;
}

double StageTiming::contention(StageId process, const JobLabel& label, std::uint32_t others) {
    return table_timing_->contention(costs_at(process, label), label, others);
}

SimTime StageTiming::job(StageId process, const JobLabel& label, SimRandom& random) {
    const SimTime takes = table_timing_->job(costs_at(process, label), label, random);
    if (!is_draft(label) || !options_.draft_cost) return takes;
    JobLabel one = label;
    one.rows = 1;
    one.heads = std::min(label.heads, std::uint32_t{1});
    const SimTime one_takes = table_timing_->job(draft_of(process), one, random);
    one.name = "verify";
    one.heads = 1;
    one.layers = static_cast<std::uint32_t>(options_.target_layers);
    const SimTime target_takes = table_timing_->job(target_, one, random);
    if (one_takes <= SimTime{0}) return takes;
    const double factor = *options_.draft_cost * static_cast<double>(target_takes.count()) /
                          static_cast<double>(one_takes.count());
    return SimTime{std::llround(static_cast<double>(takes.count()) * factor)};
}

SimTime StageTiming::hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom& random) {
    // Edges are between actors, costs between processes.
    EdgeSpec between = edge;
    between.from = hosts_[edge.from];
    between.to = hosts_[edge.to];
    return table_timing_->hop(between, rows, random);
}

SimTime StageTiming::load(StageId process, SimRandom& random) {
    return table_timing_->load(process, random);
}

}  // namespace paceline
