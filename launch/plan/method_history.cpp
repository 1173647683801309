#include "launch/plan/method_history.hpp"

#include <algorithm>
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

}  // namespace

MethodHistory::MethodHistory(const ModelFile& file,
                             const ModelOptions& model,
                             const std::string& draft_model,
                             const std::string& cache_folder)
    : cores_{core_count(model)},
      key_{record_key(file, model, draft_model, cores_)},
      records_{cache_folder},
      record_{records_.read(key_)} {}

AutoChoice MethodHistory::choose(const std::string& plain) const {
    std::vector<std::string> known;
    for (const Method& method : methods()) known.emplace_back(method.name);
    return choose_method(record_, cores_, known, plain);
}

void MethodHistory::add(const std::string& method, MethodRate run) {
    record_ = records_.read(key_);  // another run may have ended meanwhile
    if (const MethodRate* stage = record_.find(kPlainPipeline))
        run.gain *= std::min(stage->gain, 1.0);
    record_.add(method, run);
    (void)records_.write(key_, record_);
}

}  // namespace paceline
