#include "actors/draft/work/draft_requests.hpp"

namespace paceline {

DraftRequests::RequestPtr DraftRequests::latest(RequestId id) const {
    const auto found = requests_.find(id);
    return found == requests_.end() ? nullptr : found->second;
}

DraftRequests::RequestPtr DraftRequests::find(const msg::Route& route) const {
    const RequestPtr request = latest(route.request);
    return request && request->attempt == route.attempt ? request : nullptr;
}

std::vector<DraftRequests::RequestPtr> DraftRequests::all() const {
    std::vector<RequestPtr> requests;
    for (const auto& [id, request] : requests_) requests.push_back(request);
    return requests;
}

std::vector<DraftRequests::RequestPtr> DraftRequests::longest_waiting_first() const {
    std::vector<RequestPtr> requests;
    const auto first = requests_.upper_bound(served_);
    for (auto at = first; at != requests_.end(); ++at) requests.push_back(at->second);
    for (auto at = requests_.begin(); at != first; ++at) requests.push_back(at->second);
    return requests;
}

}  // namespace paceline
