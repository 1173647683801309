#include "runtime/loop/edge_links.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <type_traits>
#include <utility>

#include "ipc/wire/announced_tensor.hpp"

namespace paceline {
namespace {

template <class Edge>
std::string name_of_edge(const Edge& edge) {
    if (!edge.name.empty()) return edge.name;
    return fmt::format("stage {} -> stage {}", edge.from.value, edge.to.value);
}

template <class Edge>
Error at_link(const Edge& edge, const char* operation, const Error& error) {
    return {error.code, fmt::format("transport {} of {}: {}: {}", name_of(edge.transport),
                                    name_of_edge(edge), operation, error.what)};
}

}  // namespace

EdgeLinks::EdgeLinks(TensorDevice* device, Doorbell& bell, Micros limit)
    : device_{device},
      bell_{&bell},
      limit_{limit},
      news_{std::make_shared<std::atomic<bool>>(false)} {}

template <class Edge>
LinkSpec EdgeLinks::spec_of(const Edge& edge) const {
    return {.name = name_of_edge(edge),
            .slots = edge.pool->slot_count(),
            .slot_bytes = edge.pool->slot_bytes(),
            .wake = [news = news_, bell = bell_] {
                // Release pairs with the loop's acquire in has_news(): it sees what the link did
                // before.
                news->store(true, std::memory_order_release);
                bell->ring();
            }};
}

Status EdgeLinks::attach(StageEdges& edges, ControlPort& port, Micros now) {
    const Micros due = limit_.count() == 0 ? Micros::max() : now + limit_;
    const auto begin = [&](auto& side) -> Status {
        side.link.watched = true;
        side.link.due = due;
        if (device_ != nullptr) return {};
        return at_link(side.edge, "opening",
                       {Errc::Protocol, "this process has no device that tensors could lie on"});
    };
    for (const auto& out : edges.out()) {
        if (!has_link(out->edge.transport) || out->link.watched) continue;
        if (const Status begun = begin(*out); !begun.ok()) return begun;
    }
    for (const auto& in : edges.in()) {
        if (!has_link(in->edge.transport) || in->link.watched) continue;
        if (const Status begun = begin(*in); !begun.ok()) return begun;
        LinkOffer offer;
        Result<std::unique_ptr<InLink>> end =
            device_->open_in(in->edge.transport, spec_of(in->edge), offer);
        if (!end.ok()) return at_link(in->edge, "opening the consumer's end", end.error());
        in->link.end = std::move(end).value();
        const Status offered = port.offer(in->edge.from, in->edge.peer_epoch, in->edge.to, offer);
        if (!offered.ok()) return at_link(in->edge, "offering", offered.error());
    }
    return poll(edges, now);
}

Status EdgeLinks::take(StageEdges& edges, LinkOffered offered) {
    StageEdges::Out* out = edges.find_out(offered.from, offered.to);
    const bool wanted = out != nullptr && has_link(out->edge.transport) && out->link.watched &&
                        out->edge.peer_epoch == offered.to_epoch && out->link.end == nullptr;
    if (!wanted) return {};
    Result<std::unique_ptr<OutLink>> end =
        device_->open_out(out->edge.transport, spec_of(out->edge), std::move(offered.offer));
    if (!end.ok()) return at_link(out->edge, "opening the producer's end", end.error());
    out->link.end = std::move(end).value();
    news_->store(true, std::memory_order_release);  // it may be open already
    return {};
}

template <class Side>
Status EdgeLinks::poll_one(Side& side, Micros now) {
    auto& link = side.link;
    if (!link.watched || link.broken) return {};
    if (link.end != nullptr) {
        const Result<LinkState> state = link.end->poll();
        if (!state.ok()) {
            // Jobs may be at work on its slots: the end stays until the channel is retired.
            link.broken =
                at_link(side.edge, link.open ? "exchanging tensors" : "connecting", state.error());
            link.due = now + kGrace;
            link.open = false;
            if constexpr (std::is_same_v<Side, StageEdges::Out>) side.edge.pool->close();
        } else if (!link.open && state.value() == LinkState::Open) {
            link.open = true;
            link.due = Micros::max();
            side.edge.pool->use_link(link.end.get());
        }
    }
    if (link.open || link.broken || now < link.due) return {};
    const char* what = link.end == nullptr ? "no offer of the consumer came" : "it did not connect";
    return at_link(side.edge, "connecting",
                   {Errc::System, fmt::format("{} within {} ms", what, limit_.count() / 1'000)});
}

void EdgeLinks::announce(StageEdges::Out& out,
                         std::uint16_t kind,
                         std::span<const std::byte> payload) {
    if (!out.link.open) return;
    const std::optional<PoolRef> tensor = msg::announced_tensor(kind, payload);
    if (tensor) out.edge.pool->announce(*tensor);
}

bool EdgeLinks::hold(StageEdges::In& in, const Popped& frame) {
    if (!in.link.watched) return false;
    const std::optional<PoolRef> tensor = msg::announced_tensor(frame.kind, frame.payload);
    if (!tensor) return false;
    in.held = StageEdges::HeldFrame{.kind = frame.kind,
                                    .payload = {frame.payload.begin(), frame.payload.end()},
                                    .tensor = *tensor};
    return true;
}

Result<bool> EdgeLinks::has_arrived(StageEdges::In& in) {
    if (!in.link.open) return false;
    if (!in.held->expected) {
        if (const Status named = in.edge.pool->announce(in.held->tensor); !named.ok()) {
            return named.error();
        }
        in.held->expected = true;
    }
    return in.edge.pool->has_arrived(in.held->tensor);
}

bool EdgeLinks::has_input(StageEdges& edges) {
    return std::any_of(edges.in().begin(), edges.in().end(), [](const auto& each) {
        const StageEdges::In& in = *each;
        if (!in.held) return in.edge.ring.has_frame();
        return in.link.open && (!in.held->expected || in.edge.pool->has_arrived(in.held->tensor));
    });
}

Status EdgeLinks::poll(StageEdges& edges, Micros now) {
    // Cleared first: later changes are seen by the next call. Acquire pairs with the release of
    // `wake`, as in has_news().
    news_->exchange(false, std::memory_order_acquire);
    Status status;
    due_.reset();
    const auto look = [&](auto& side) {
        if (status.ok()) status = poll_one(side, now);
        if (side.link.broken && now >= side.link.due && status.ok()) status = *side.link.broken;
        if (side.link.due == Micros::max()) return;
        due_ = due_ ? std::min(*due_, side.link.due) : side.link.due;
    };
    for (const auto& out : edges.out()) look(*out);
    for (const auto& in : edges.in()) look(*in);
    return status;
}

}  // namespace paceline
