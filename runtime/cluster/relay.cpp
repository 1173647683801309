#include "runtime/cluster/relay.hpp"

#include <utility>
#include <vector>

namespace paceline {
namespace {

/// Of each edge in a round, so that other work of the thread gets its turn.
constexpr int kFramesMax = 64;

}  // namespace

template <class Side, class What>
void Relay::for_all(What what) {
    std::vector<std::pair<std::uint32_t, Error>> broken;
    for (auto& [edge, end] : edges_) {
        auto* side = std::get_if<Side>(&end);
        if (side == nullptr) continue;
        const Status done = what(*side);
        if (!done.ok()) broken.emplace_back(edge, done.error());
    }
    for (const auto& [edge, error] : broken) {
        edges_.erase(edge);
        on_broken_(edge, error);
    }
}

bool Relay::pump(const std::function<void()>& before_send) {
    for_all<RelayIn>([this](RelayIn& in) { return in.pump(port_); });
    for (int i = 0; i < kFramesMax; ++i) {
        bool any = false;
        for_all<RelayOut>([](RelayOut& out) { return out.fill(); });
        if (before_send) before_send();
        for_all<RelayOut>([&](RelayOut& out) {
            any = out.flush(port_) || any;
            return Status{};
        });
        if (!any) return false;
    }
    return true;
}

/// What came for one edge goes on at once.
void Relay::put_into_ring(std::uint32_t edge) {
    RelayIn* in = find<RelayIn>(edge);
    if (in == nullptr) return;
    const Status put = in->pump(port_);
    if (put.ok()) return;
    edges_.erase(edge);
    on_broken_(edge, put.error());
}

Status Relay::take(const remote::EdgeFrame& frame) {
    RelayIn* in = find<RelayIn>(frame.edge);
    if (in == nullptr) return {};
    const Status taken = in->on_frame(frame.kind, frame.payload);
    if (taken.ok()) put_into_ring(frame.edge);
    return taken;
}

Status Relay::take(const remote::TensorPart& part) {
    RelayIn* in = find<RelayIn>(part.edge);
    if (in == nullptr) return {};
    const Status taken = in->on_part(part);
    if (taken.ok()) put_into_ring(part.edge);
    return taken;
}

Status Relay::take(const remote::EdgeRoom& room) {
    RelayOut* out = find<RelayOut>(room.edge);
    if (out == nullptr) return {};
    const Status taken = out->on_room(room.taken);
    room_ = true;
    return taken;
}

Status Relay::take(const remote::TensorFree& free) {
    RelayOut* out = find<RelayOut>(free.edge);
    if (out != nullptr) out->on_free({free.slot, free.generation});
    return {};
}

}  // namespace paceline
