#include "launch/plan/method_history.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>
#include <vector>

#include "launch/config/method_list.hpp"
#include "launch/session/pipeline_start.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

std::size_t core_count(const ModelOptions& model) {
    const Result<Machine> machine = read_machine();
    return machine ? usable_cores(machine.value(), model).size() : 1;
}

/// From runs of one request to those that are like the load.
std::vector<std::string> keys_of(std::string key, const MethodHistory::Load& load) {
    std::vector<std::string> keys{key};
    if (load.drawn) keys.push_back(key += " drawn");
    if (load.requests > 1) {
        const bool full = load.batches == MethodHistory::Batches::Full;
        key += fmt::format(" {} {}", full ? "requests" : "requests at most", load.requests);
        keys.push_back(key);
    }
    return keys;
}

}  // namespace

MethodHistory::MethodHistory(const ModelFile& file,
                             const ModelOptions& model,
                             const std::string& draft_model,
                             const std::string& cache_folder,
                             const Load& load)
    : load_{load},
      cores_{core_count(model)},
      keys_{keys_of(record_key(file, model, draft_model, cores_), load)},
      records_{cache_folder} {
    read();
}

void MethodHistory::read() {
    record_ = {};
    for (const std::string& key : keys_) {
        own_ = records_.read(key);
        for (const auto& [method, rate] : own_.methods)
            record_.methods.insert_or_assign(method, rate);
    }
    record_.plain_runs = own_.plain_runs;
}

AutoChoice MethodHistory::choice_from(const MethodRecord& record,
                                      const std::string& plain,
                                      const std::set<std::string>& refused) const {
    std::vector<std::string> known;
    for (const Method& method : methods()) {
        std::string name{method.name};
        if (refused.contains(name)) continue;
        // One that was never run is not chosen: its part need not be looked for.
        if (!lacks_ || record.find(name) == nullptr || !lacks_(name))
            known.push_back(std::move(name));
    }
    return choose_method(record, cores_, known, plain);
}

AutoChoice MethodHistory::choose(const std::string& plain) const {
    return choice_from(record_, plain);
}

AutoChoice MethodHistory::choose_for_batches(const std::string& plain) const {
    AutoChoice choice = choose(plain);
    if (load_.requests == 1 || choice.method == plain) return choice;
    const MethodRate* rate = own_.find(choice.method);
    if (rate != nullptr && rate->gain > 1.0) return choice;
    return {.method = plain,
            .reason = fmt::format("no method has shown a gain here with {} answers at a time, "
                                  "for which plain decoding reads the weights once",
                                  load_.requests)};
}

AutoChoice MethodHistory::choose_given(const std::string& plain,
                                       const std::string& method,
                                       double gain,
                                       const std::set<std::string>& refused) const {
    MethodRecord record = compared();
    MethodRate& rate = record.methods[method];  // it may have no run yet but this one
    rate.gain = gain;
    rate.runs = std::max(rate.runs, AutoChoice::kRunsMin);
    record.plain_runs = 0;
    return choice_from(record, plain, refused);
}

double MethodHistory::gain_of(const std::string& method) const {
    const MethodRate* rate = compared().find(method);
    return rate != nullptr ? rate->gain : 0.0;
}

double MethodHistory::over_plain(double gain) const {
    const MethodRate* stage = record_.find(kPlainPipeline);
    return stage != nullptr ? gain * std::min(stage->gain, 1.0) : gain;
}

void MethodHistory::add(const std::string& method, MethodRate run) {
    read();  // another run may have ended meanwhile
    run.gain = over_plain(run.gain);
    own_.add(method, run);
    (void)records_.write(keys_.back(), own_);
    if (const MethodRate* rate = own_.find(method)) record_.methods.insert_or_assign(method, *rate);
    record_.plain_runs = own_.plain_runs;
}

void MethodHistory::add_plain(std::int64_t runs) {
    read();
    if (choose(kPlainMethod).method != kPlainMethod) return;
    own_.add_plain(runs);
    record_.plain_runs = own_.plain_runs;
    (void)records_.write(keys_.back(), own_);
}

}  // namespace paceline
