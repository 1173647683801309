#include "actors/conductor/suspects.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

/// One loss is an accident of the stage: all that it ended begin again together.
constexpr std::size_t kSuspectFrom = 2;

}  // namespace

Suspects::Suspects(std::uint32_t poison_limit) : poison_limit_{poison_limit} {
    PACE_CHECK(poison_limit_ >= 1, "a request cannot be poison before a stage was lost");
}

bool Suspects::lost(RequestId request, StageId stage, bool alone) {
    std::vector<StageId>& losses = losses_[request];
    losses.push_back(stage);
    if (planted(PlantedBug::PoisonForgiven)) return false;
    return alone && losses.size() >= poison_limit_;
}

bool Suspects::cleared(RequestId request) {
    const bool was_suspect = is_suspect(request);
    forget(request);
    return was_suspect;
}

bool Suspects::is_suspect(RequestId request) const {
    const auto found = losses_.find(request);
    return found != losses_.end() &&
           found->second.size() >= std::min<std::size_t>(kSuspectFrom, poison_limit_);
}

std::vector<RequestId> Suspects::may_begin(std::span<const RequestId> waiting,
                                           std::span<const RequestId> running) const {
    const auto suspect = [this](RequestId request) { return is_suspect(request); };
    if (planted(PlantedBug::SuspectsTogether)) return {waiting.begin(), waiting.end()};
    if (std::any_of(running.begin(), running.end(), suspect)) return {};  // a trial is on
    const auto next = std::max_element(
        waiting.begin(), waiting.end(),
        [this](RequestId a, RequestId b) { return losses_of(a).size() < losses_of(b).size(); });
    if (next != waiting.end() && is_suspect(*next)) return {*next};
    return {waiting.begin(), waiting.end()};
}

std::vector<StageId> Suspects::losses_of(RequestId request) const {
    const auto found = losses_.find(request);
    return found == losses_.end() ? std::vector<StageId>{} : found->second;
}

}  // namespace paceline
