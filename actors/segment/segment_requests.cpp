#include "actors/segment/segment_requests.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
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

bool SegmentRequests::must_wait(RequestId id, const BeginPayload& spec, bool has_room) const {
    const auto before = states_.find(id);
    const bool known = before != states_.end();
    if (known && before->second->slots().size() < static_cast<std::size_t>(spec.reuse)) {
        return true;
    }
    const auto others = [&](bool over) {
        return std::any_of(states_.begin(), states_.end(), [&](const auto& entry) {
            return entry.first != id && entry.second->over() == over;
        });
    };
    if (!others(false)) return false;  // no request is left that could end
    if (!known && states_.size() >= kStatesMax && !others(true)) return true;
    return !has_room;
}

Status SegmentRequests::check_reuse(RequestId id, const BeginPayload& spec) const {
    if (spec.reuse == 0) return {};
    const StatePtr held = latest(id);
    const bool here =
        held && held->spec().context == spec.context &&
        std::equal(spec.text.begin(), spec.text.begin() + spec.reuse, held->text().begin());
    if (here) return {};
    return Error{Errc::Protocol,
                 fmt::format("request {} reuses {} positions that this stage does not hold",
                             id.value, spec.reuse)};
}

Result<SegmentRequests::StatePtr> SegmentRequests::make(const control::Begin& begin,
                                                        BeginPayload spec,
                                                        TreeRole role) {
    const StatePtr before = latest(begin.request);
    if (!before && states_.size() >= kStatesMax && !forget_oldest()) {
        return Error{Errc::OutOfMemory, fmt::format("more than {} requests at once", kStatesMax)};
    }
    return std::make_shared<RequestState>(begin.request, begin.attempt, std::move(spec), role,
                                          before.get());
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
