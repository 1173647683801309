#include "actors/protocol/outbox.hpp"

#include "ipc/base/faults.hpp"

namespace paceline {

void Outbox::send_bytes(StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
    const auto queue = waiting_.find(to);
    if (queue == waiting_.end() && context_.send(to, kind, bytes) == Push::Ok) return;
    if (planted(PlantedBug::OutboxForgotten)) return;
    std::deque<QueuedMessage>& messages = waiting_[to];
    PACE_CHECK(messages.size() < kWaitingMax, "an actor works on while its channel is full");
    messages.push_back({kind, {bytes.begin(), bytes.end()}});
}

void Outbox::flush() {
    for (auto queue = waiting_.begin(); queue != waiting_.end();) {
        std::deque<QueuedMessage>& messages = queue->second;
        while (!messages.empty() && context_.send(queue->first, messages.front().kind,
                                                  messages.front().bytes) == Push::Ok) {
            messages.pop_front();
        }
        queue = messages.empty() ? waiting_.erase(queue) : std::next(queue);
    }
}

}  // namespace paceline
