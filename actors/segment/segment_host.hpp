// SegmentHost: what a segment and the roles attached to it share.
//
// Owned by the SegmentActor; the roles borrow it. Threads: the actor's loop.
#pragma once

#include <optional>

#include "actors/protocol/inbox.hpp"
#include "actors/protocol/message_checks.hpp"
#include "actors/protocol/outbox.hpp"
#include "actors/segment/segment_requests.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

struct SegmentHost {
    MessageLimits limits;
    SegmentRequests requests = {};
    Inbox inbox{AttemptFilter::Overflow::Refuse};
    StageContext* context = nullptr;  // this and the outbox: from SegmentActor::on_start() on
    std::optional<Outbox> outbox = {};

    /// An error ends this stage.
    void report(const Status& status) const {
        if (!status) context->fail(status.error());
    }
};

}  // namespace paceline
