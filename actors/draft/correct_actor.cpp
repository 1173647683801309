#include "actors/draft/correct_actor.hpp"

#include <fmt/core.h>
#include <utility>

#include "actors/protocol/tensor_rows.hpp"

namespace paceline {
namespace {

DraftPlan with_alternatives(DraftPlan plan) {
    plan.growth.part = GrowthPart::Alternatives;
    return plan;
}

}  // namespace

CorrectActor::CorrectActor(DraftPlan plan, DraftTools tools, StageId draft)
    : DraftWork{with_alternatives(plan), std::move(tools)}, draft_{draft} {
    inbox_.attach(*this);
    outlet_.send_copies_to(draft);
}

Status CorrectActor::handle(StageId from, const msg::Proposal& proposal) {
    if (from != draft_ && from != host_.plan.exit) {
        return unexpected(from, "a proposal, but is neither its exit nor its draft");
    }
    const Result<RequestPtr> request = admit(from, proposal);
    if (!request) return request.error();
    if (!request.value()) return {};
    if (from == draft_) {
        request.value()->receive_trunk(proposal);
    } else {
        request.value()->receive_candidates(proposal);
    }
    continue_request(request.value());
    return {};
}

/// The keys and values may be stale or not needed; their slot is released at once.
Status CorrectActor::handle(StageId from, const msg::TensorNote& note) {
    if (from != draft_) return unexpected(from, "a tensor note, but is not its draft");
    TensorConsumer* tensors = host_.context->tensors_from(from);
    Status taken = take(from, note, tensors);
    if (tensors != nullptr) tensors->release({note.tensor, note.tensor_generation});
    return taken;
}

Status CorrectActor::take(StageId from, const msg::TensorNote& note, TensorConsumer* tensors) {
    const Age age = inbox_.peek<msg::TensorNote>(from, note.route);
    const RequestPtr request = age == Age::Current ? host_.requests.find(note.route) : nullptr;
    if (!request || tensors == nullptr || host_.model() == nullptr) return {};
    DraftModel& model = *host_.model();
    const std::size_t expected = model.backend().kv_bytes();
    if (expected == 0) return {};
    if (note.role != msg::TensorRole::Keys || msg::tensor_bytes(note) != expected) {
        return unexpected(
            from, fmt::format("keys and values in a tensor [{}, {}] that should have {} bytes",
                              note.rows, note.row_elements, expected));
    }
    const Result<TensorMemory> viewed =
        tensors->view_memory({note.tensor, note.tensor_generation}, expected);
    if (!viewed) return viewed.error();
    const KvBytes kv = kv_bytes(viewed.value());
    const Position position = note.first_position;
    bool used = false;
    DraftText& text = *request->text;
    const TrunkCopy& trunk = request->peers.trunk();
    if (const auto node = trunk.node_at(text, position); node) {
        used = model.write_kv(text, *node, kv);
    } else if (trunk.is_text_at(text, position)) {
        used = model.write_kv_at(text, position, kv);
    }
    kv_rows_taken_ += used ? 1 : 0;
    return {};
}

}  // namespace paceline
