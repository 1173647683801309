#include "actors/segment/segment_requests.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/faults.hpp"

namespace paceline {

SegmentRequests::StatePtr SegmentRequests::find(RequestId request, Attempt attempt) const {
    StatePtr state = latest(request);
    const bool current = state && state->attempt() == attempt;
    return current || planted(PlantedBug::FilterIgnoresAttempt) ? state : nullptr;
}

SegmentRequests::StatePtr SegmentRequests::latest(RequestId request) const {
    const auto found = states_.find(request);
    return found == states_.end() ? nullptr : found->second;
}

bool SegmentRequests::gone(const RequestState& state) const {
    return state.over() || find(state.request(), state.attempt()).get() != &state;
}

std::size_t SegmentRequests::running() const {
    return static_cast<std::size_t>(std::count_if(
        states_.begin(), states_.end(), [](const auto& entry) { return !entry.second->over(); }));
}

bool SegmentRequests::must_wait(RequestId id) const {
    return !states_.contains(id) && states_.size() >= kStatesMax && running() == states_.size();
}

Result<SegmentRequests::StatePtr> SegmentRequests::make(const control::Begin& begin,
                                                        BeginPayload spec,
                                                        TreeRole role) {
    if (latest(begin.request) == nullptr && states_.size() >= kStatesMax && !forget_oldest()) {
        return Error{Errc::OutOfMemory, fmt::format("more than {} requests at once", kStatesMax)};
    }
    return std::make_shared<RequestState>(begin.request, begin.attempt, std::move(spec), role);
}

void SegmentRequests::add(const StatePtr& state) {
    states_[state->request()] = state;
    std::erase(begun_, state->request());
    begun_.push_back(state->request());
}

void SegmentRequests::stop_all() {
    for (const auto& [id, state] : states_) state->stop();
}

bool SegmentRequests::forget_oldest() {
    for (auto id = begun_.begin(); id != begun_.end(); ++id) {
        const auto found = states_.find(*id);
        if (found == states_.end() || !found->second->over()) continue;
        states_.erase(found);
        begun_.erase(id);
        return true;
    }
    return false;
}

}  // namespace paceline
