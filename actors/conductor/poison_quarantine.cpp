#include "actors/conductor/poison_quarantine.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

/// After one loss, which the stage may have caused itself, all requests are replayed together.
constexpr std::size_t kQuarantineFrom = 2;
/// A stage may cause a single loss while a request is isolated, too.
constexpr std::size_t kIsolatedLosses = 2;

}  // namespace

PoisonQuarantine::PoisonQuarantine(std::uint32_t poison_limit) : poison_limit_{poison_limit} {
    PACE_CHECK(poison_limit_ >= 1, "a request cannot be poison before a stage was lost");
}

void PoisonQuarantine::lost(StageId stage) {
    newest_ = {.number = newest_.number + 1, .stage = stage};
}

bool PoisonQuarantine::present_at_loss(RequestId request, bool alone) {
    const bool isolated = alone || is_quarantined(request);
    std::vector<Loss>& losses = losses_[request];
    losses.push_back(newest_);
    losses.back().isolated = isolated;
    if (planted(PlantedBug::PoisonForgiven)) return false;
    const auto isolated_losses = static_cast<std::size_t>(std::count_if(
        losses.begin(), losses.end(), [](const Loss& loss) { return loss.isolated; }));
    const std::size_t needed = planted(PlantedBug::AloneOnceIsPoison)
                                   ? 1
                                   : std::min<std::size_t>(kIsolatedLosses, poison_limit_);
    return alone && isolated_losses >= needed && losses_of(request) >= poison_limit_;
}

void PoisonQuarantine::present_at_draft_loss(RequestId request) {
    losses_[request].push_back(newest_);
    losses_[request].back().of_draft = true;
}

bool PoisonQuarantine::cleared(RequestId request) {
    const bool was_quarantined = is_quarantined(request);
    forget(request);
    return was_quarantined;
}

std::size_t PoisonQuarantine::losses_of(RequestId request) const {
    const auto found = losses_.find(request);
    if (found == losses_.end()) return 0;
    return static_cast<std::size_t>(std::count_if(found->second.begin(), found->second.end(),
                                                  [](const Loss& loss) { return !loss.of_draft; }));
}

bool PoisonQuarantine::is_quarantined(RequestId request) const {
    return losses_of(request) >= std::min<std::size_t>(kQuarantineFrom, poison_limit_);
}

std::vector<RequestId> PoisonQuarantine::may_begin(std::span<const RequestId> waiting,
                                                   std::span<const RequestId> running) const {
    const auto quarantined = [this](RequestId request) { return is_quarantined(request); };
    if (planted(PlantedBug::QuarantinedTogether)) return {waiting.begin(), waiting.end()};
    if (std::any_of(running.begin(), running.end(), quarantined))
        return {};  // one of them is isolated now
    const auto next =
        std::max_element(waiting.begin(), waiting.end(),
                         [this](RequestId a, RequestId b) { return losses_of(a) < losses_of(b); });
    if (next != waiting.end() && is_quarantined(*next)) return {*next};
    return {waiting.begin(), waiting.end()};
}

std::vector<StageId> PoisonQuarantine::explained_by(RequestId request) {
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
