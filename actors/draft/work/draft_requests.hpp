// DraftRequests: the requests that a speculative stage knows, by id, each with its latest attempt,
// and whose turn it is.
//
// Shares them: a job keeps its request after it is erased.
// Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "actors/draft/draft_request.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class DraftRequests {
public:
    using RequestPtr = std::shared_ptr<DraftRequest>;

    /// nullptr if it is unknown.
    [[nodiscard]] RequestPtr latest(RequestId id) const;
    /// nullptr if it is unknown, or its attempt is another one.
    [[nodiscard]] RequestPtr find(const msg::Route& route) const;
    /// Whether it has not been erased or replaced.
    [[nodiscard]] bool current(const RequestPtr& request) const {
        return latest(request->id) == request;
    }
    [[nodiscard]] std::size_t size() const { return requests_.size(); }
    /// By their ids.
    [[nodiscard]] std::vector<RequestPtr> all() const;

    void add(const RequestPtr& request) { requests_[request->id] = request; }
    void erase(RequestId id) { requests_.erase(id); }

    /// All of them, those that waited longest for a job first.
    [[nodiscard]] std::vector<RequestPtr> longest_waiting_first() const;
    /// A job for this one begins.
    void served(RequestId id) { served_ = id; }

private:
    std::map<RequestId, RequestPtr> requests_;
    RequestId served_;
};

}  // namespace paceline
