#include "actors/protocol/outbox.hpp"

#include "ipc/base/faults.hpp"

namespace paceline {

void Outbox::send_bytes(StageId to, std::uint16_t kind, std::span<const std::byte> bytes) {
    const auto queue = waiting_.find(to);
    if (queue == waiting_.end() && context_.send(to, kind, bytes) == Push::Ok) return;
    if (planted(PlantedBug::OutboxForgotten)) return;
    std::deque<Letter>& letters = waiting_[to];
    PACE_CHECK(letters.size() < kWaitingMax, "an actor works on while its channel is full");
    letters.push_back({kind, {bytes.begin(), bytes.end()}});
}

void Outbox::flush() {
    for (auto queue = waiting_.begin(); queue != waiting_.end();) {
        std::deque<Letter>& letters = queue->second;
        while (!letters.empty() && context_.send(queue->first, letters.front().kind,
                                                 letters.front().bytes) == Push::Ok) {
            letters.pop_front();
        }
        queue = letters.empty() ? waiting_.erase(queue) : std::next(queue);
    }
}

}  // namespace paceline
