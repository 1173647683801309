// Outbox: messages of an actor that wait for room in their channels.
//
// Keeps the order per receiver. Bounded: its owner starts no new work while a message waits, so at
// most the messages of one handler accumulate: of a batch, its verdicts and the scores of its rows.
// Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class Outbox {
public:
    static constexpr std::size_t kWaitingMax = kBatchRowsMax + kBatchPartsMax;

    explicit Outbox(Context& context) : context_{context} {}

    /// Sends a message of a kind that Role declares (message_kinds.hpp), at once or by flush().
    template <class Role, class M>
    requires EmittedBy<Role, M>
    void send(StageId to, const M& message) {
        send_bytes(to, static_cast<std::uint16_t>(M::kKind), msg::frame_of(message));
    }
    /// Tries again what waits.
    void flush();
    /// Drops the messages for `peer`.
    void forget(StageId peer) { waiting_.erase(peer); }
    [[nodiscard]] bool empty() const { return waiting_.empty(); }

private:
    struct QueuedMessage {
        std::uint16_t kind;
        std::vector<std::byte> bytes;
    };
    void send_bytes(StageId to, std::uint16_t kind, std::span<const std::byte> bytes);

    Context& context_;
    std::map<StageId, std::deque<QueuedMessage>> waiting_;  // holds no empty queue
};

}  // namespace paceline
