#include "actors/draft/work/trunk_sender.hpp"

#include <algorithm>

#include "actors/protocol/tensor_rows.hpp"

namespace paceline {

void TrunkSender::tell(const DraftRequest& request, std::span<const DraftNodeId> computed) {
    if (!flush()) return;
    msg::Proposal trunk = request.proposal(msg::ProposalState::Growing);
    trunk.route.epoch = host_.context->epoch();
    if (emit<TrunkSender>(*host_.context, correct_, trunk) == Push::Full) return;
    if (!request.uses_model() || host_.model()->backend().kv_bytes() == 0) return;
    for (const DraftNodeId id : request.text->tree.trunk()) {
        const DraftNode* node = request.text->tree.find(id);
        const bool is_new = std::find(computed.begin(), computed.end(), id) != computed.end();
        if (is_new && node->slot != kNoSlot) send_kv(request, *node);
    }
}

void TrunkSender::send_kv(const DraftRequest& request, const DraftNode& node) {
    TensorProducer* tensors = host_.context->tensors_to(correct_);
    const std::size_t bytes = host_.model()->backend().kv_bytes();
    if (tensors == nullptr || tensors->slot_bytes() < bytes || !notes_.empty()) return;
    const std::optional<PoolRef> slot = tensors->acquire();
    if (!slot) return;
    host_.model()->backend().read_kv(node.slot, kv_bytes(tensors->place(*slot)).first(bytes));
    tensors->publish(*slot, bytes);
    notes_.push_back({.route = {.request = request.id,
                                .attempt = request.attempt,
                                .epoch = host_.context->epoch()},
                      .role = msg::TensorRole::Keys,
                      .type = msg::TensorType::I8,
                      .layer = 0,
                      .first_position = node.position,
                      .rows = 1,
                      .row_elements = static_cast<std::uint32_t>(bytes),
                      .tensor = slot->index,
                      .tensor_generation = slot->generation});
    (void)flush();
}

bool TrunkSender::flush() {
    while (!notes_.empty()) {
        if (emit<TrunkSender>(*host_.context, correct_, notes_.front()) == Push::Full) return false;
        notes_.pop_front();
    }
    return true;
}

}  // namespace paceline
