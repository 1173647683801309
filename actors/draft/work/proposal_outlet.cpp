#include "actors/draft/work/proposal_outlet.hpp"

#include <algorithm>
#include <utility>

namespace paceline {

void ProposalOutlet::send(DraftRequest& request, msg::ProposalState state) {
    StageContext& context = *host_.context;
    msg::Proposal proposal = request.proposal(state);
    proposal.route.epoch = context.epoch();
    request.unsent.changed = false;
    if (!request.uses_model()) send_trunk(request, {});
    if (copies_to_) (void)emit<ProposalOutlet>(context, *copies_to_, proposal);
    if (emit<ProposalOutlet>(context, host_.plan.first_segment, proposal) == Push::Full) {
        // No room: the target continues without this proposal.
        request.unsent.state = std::max(state, request.unsent.state.value_or(state));
        return;
    }
    request.unsent.state.reset();
    context.trace({.kind = TraceKind::Proposal,
                   .request = request.id,
                   .attempt = request.attempt,
                   .position = request.text->tree.root().position,
                   .count = proposal.count});
}

void ProposalOutlet::send_draw(const DraftRequest& request,
                               DraftNodeId node,
                               const DrawnSiblings& drawn) {
    msg::Draw draw = request.draw(node, drawn);
    draw.route.epoch = host_.context->epoch();
    (void)emit<ProposalOutlet>(*host_.context, host_.plan.first_segment, draw);
}

void ProposalOutlet::send_trunk(const DraftRequest& request,
                                std::span<const DraftNodeId> computed) {
    if (trunk_) trunk_->tell(request, computed);
}

void ProposalOutlet::room(StageId to) {
    if (trunk_ && to == trunk_->correct()) (void)trunk_->flush();
    if (to != host_.plan.first_segment) return;
    for (const DraftHost::RequestPtr& request : host_.requests.all()) {
        if (request->unsent.state)
            send(*request, *std::exchange(request->unsent.state, std::nullopt));
    }
}

void ProposalOutlet::peer_changed(StageId peer) {
    if (trunk_ && peer == trunk_->correct()) trunk_->forget();
}

}  // namespace paceline
