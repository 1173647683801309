// SegmentRequests: the requests that a segment knows, by id, each with its latest attempt.
//
// A request is known after its end, so that what is still on its way is seen to be stale; beyond
// kStatesMax requests the one that is over and was begun longest ago is forgotten.
// Owner: the segment. Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>

#include "actors/decoding/begin_payload.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/control.hpp"

namespace paceline {

class SegmentRequests {
public:
    using StatePtr = std::shared_ptr<RequestState>;

    /// nullptr if the request is unknown or its attempt is another one.
    [[nodiscard]] StatePtr find(RequestId request, Attempt attempt) const;
    /// Its latest attempt; nullptr if the request is unknown.
    [[nodiscard]] StatePtr latest(RequestId request) const;
    /// Whether nothing more is computed for `state`: it is over, or a later attempt has begun.
    [[nodiscard]] bool gone(const RequestState& state) const;
    /// Requests that are not over.
    [[nodiscard]] std::size_t running() const;

    /// Whether a Begin has overtaken a message that must be handled first: the end (a verdict or a
    /// Stop) of another request whose place it needs.
    [[nodiscard]] bool must_wait(RequestId id) const;

    /// The state of a new attempt, which is not known before add(). Errors: OutOfMemory.
    [[nodiscard]] Result<StatePtr> make(const control::Begin& begin,
                                        BeginPayload spec,
                                        TreeRole role);
    void add(const StatePtr& state);
    void stop_all();

private:
    bool forget_oldest();

    std::map<RequestId, StatePtr> states_;
    std::deque<RequestId> begun_;  // those of states_, the latest is the last
};

}  // namespace paceline
