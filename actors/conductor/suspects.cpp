#include "actors/conductor/suspects.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

/// After one loss, which may be an accident of the stage, all requests are replayed together.
constexpr std::size_t kSuspectFrom = 2;
/// A single loss on trial may be an accident too.
constexpr std::size_t kTrials = 2;

}  // namespace

Suspects::Suspects(std::uint32_t poison_limit) : poison_limit_{poison_limit} {
    PACE_CHECK(poison_limit_ >= 1, "a request cannot be poison before a stage was lost");
}

void Suspects::lost(StageId stage) {
    newest_ = {.number = newest_.number + 1, .stage = stage};
}

bool Suspects::met(RequestId request, bool alone) {
    const bool on_trial = alone || is_suspect(request);
    std::vector<Loss>& losses = losses_[request];
    losses.push_back(newest_);
    losses.back().on_trial = on_trial;
    if (planted(PlantedBug::PoisonForgiven)) return false;
    const auto trials = static_cast<std::size_t>(std::count_if(
        losses.begin(), losses.end(), [](const Loss& loss) { return loss.on_trial; }));
    const std::size_t needed =
        planted(PlantedBug::AloneOnceIsPoison) ? 1 : std::min<std::size_t>(kTrials, poison_limit_);
    return alone && trials >= needed && met_by(request) >= poison_limit_;
}

void Suspects::met_beside(RequestId request) {
    losses_[request].push_back(newest_);
    losses_[request].back().beside = true;
}

bool Suspects::cleared(RequestId request) {
    const bool was_suspect = is_suspect(request);
    forget(request);
    return was_suspect;
}

std::size_t Suspects::met_by(RequestId request) const {
    const auto found = losses_.find(request);
    if (found == losses_.end()) return 0;
    return static_cast<std::size_t>(std::count_if(found->second.begin(), found->second.end(),
                                                  [](const Loss& loss) { return !loss.beside; }));
}

bool Suspects::is_suspect(RequestId request) const {
    return met_by(request) >= std::min<std::size_t>(kSuspectFrom, poison_limit_);
}

std::vector<RequestId> Suspects::may_begin(std::span<const RequestId> waiting,
                                           std::span<const RequestId> running) const {
    const auto suspect = [this](RequestId request) { return is_suspect(request); };
    if (planted(PlantedBug::SuspectsTogether)) return {waiting.begin(), waiting.end()};
    if (std::any_of(running.begin(), running.end(), suspect)) return {};  // a trial is on
    const auto next =
        std::max_element(waiting.begin(), waiting.end(),
                         [this](RequestId a, RequestId b) { return met_by(a) < met_by(b); });
    if (next != waiting.end() && is_suspect(*next)) return {*next};
    return {waiting.begin(), waiting.end()};
}

std::vector<StageId> Suspects::explained_by(RequestId request) {
    std::vector<StageId> stages;
    const auto found = losses_.find(request);
    if (found == losses_.end()) return stages;
    for (const Loss& explained : std::vector<Loss>{found->second}) {
        if (explained.explained) continue;
        stages.push_back(explained.stage);
        for (auto& [other, losses] : losses_) {
            for (Loss& loss : losses) {
                loss.explained = loss.explained || loss.number == explained.number;
            }
        }
    }
    return stages;
}

}  // namespace paceline
