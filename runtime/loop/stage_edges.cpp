#include "runtime/loop/stage_edges.hpp"

#include <iterator>

namespace paceline {

StageEdges::StageEdges(Wiring& wiring) {
    add(std::move(wiring.out), std::move(wiring.in));
    absent_.insert(wiring.absent.begin(), wiring.absent.end());
}

StageEdges::Out* StageEdges::find_out(StageId from, StageId to) {
    for (const auto& out : out_) {
        if (out->edge.to == to && out->edge.from == from) return out.get();
    }
    return nullptr;
}

TensorProducer* StageEdges::tensors_to(StageId self, StageId to) {
    Out* out = find_out(self, to);
    return out != nullptr && out->edge.pool ? &*out->edge.pool : nullptr;
}

TensorConsumer* StageEdges::tensors_from(StageId self, StageId from) {
    for (const auto& in : in_) {
        InEdge& edge = in->edge;
        if (edge.from == from && edge.to == self && edge.pool) return &*edge.pool;
    }
    return nullptr;
}

Epoch StageEdges::epoch_of(StageId peer) const {
    for (const auto& out : out_) {
        if (out->edge.to == peer) return out->edge.peer_epoch;
    }
    for (const auto& in : in_) {
        if (in->edge.from == peer) return in->edge.peer_epoch;
    }
    return Epoch{0};
}

bool StageEdges::lose(StageId peer, std::uint64_t jobs) {
    for (auto out = out_.begin(); out != out_.end();) {
        const bool closes = (*out)->edge.to == peer;
        if (closes) retired_out_.push_back({jobs, std::move(*out)});
        out = closes ? out_.erase(out) : std::next(out);
    }
    for (auto in = in_.begin(); in != in_.end();) {
        const bool closes = (*in)->edge.from == peer;
        if (closes) retired_in_.push_back({jobs, std::move(*in)});
        in = closes ? in_.erase(in) : std::next(in);
    }
    return absent_.insert(peer).second;
}

void StageEdges::add_in(InEdge edge) {
    const std::size_t chunks = edge.ring.payload_bytes() / sizeof(Chunk) + 1;
    if (buffer_.size() < chunks) buffer_.resize(chunks);
    in_.push_back(std::make_unique<In>(In{std::move(edge)}));
}

void StageEdges::add(std::vector<OutEdge> out, std::vector<InEdge> in) {
    for (OutEdge& edge : out) {
        absent_.erase(edge.to);
        out_.push_back(std::make_unique<Out>(Out{std::move(edge)}));
    }
    for (InEdge& edge : in) {
        absent_.erase(edge.from);
        add_in(std::move(edge));
    }
}

void StageEdges::ring_bells() {
    for (const auto& out : out_) {
        if (std::exchange(out->has_news, false)) out->edge.bell.ring();
    }
}

void StageEdges::ring_for_slots() {
    for (const auto& in : in_) {
        if (in->edge.pool && in->edge.pool->take_room_wanted()) in->edge.bell.ring();
    }
}

void StageEdges::bury_retired(std::uint64_t jobs) {
    const auto unused = [jobs](const auto& retired) { return retired.jobs <= jobs; };
    std::erase_if(retired_out_, unused);
    std::erase_if(retired_in_, unused);
}

std::span<std::byte> StageEdges::frame_buffer() {
    return {buffer_.front().bytes, buffer_.size() * sizeof(Chunk)};
}

}  // namespace paceline
