#include "actors/draft/draft_actor.hpp"

#include <utility>

namespace paceline {
namespace {

DraftPlan part_of(DraftPlan plan, const std::optional<StageId>& correct) {
    if (correct) plan.growth.part = GrowthPart::Trunk;
    return plan;
}

}  // namespace

DraftActor::DraftActor(DraftPlan plan, DraftTools tools, std::optional<StageId> correct)
    : DraftWork{part_of(plan, correct), std::move(tools)}, correct_{correct} {
    inbox_.attach(*this);
    if (correct) attach(trunk_.emplace(*correct, model()));
}

void DraftActor::on_start(StageContext& context) {
    DraftWork::on_start(context);
    if (trunk_) trunk_->start(context);
}

void DraftActor::on_room(StageId to) {
    if (to == correct_) (void)trunk_->flush();
    DraftWork::on_room(to);
}

void DraftActor::on_peer(StageId peer, PeerChange change) {
    if (peer == correct_) trunk_->forget();
    DraftWork::on_peer(peer, change);
}

Status DraftActor::handle(StageId from, const msg::Proposal& proposal) {
    if (from != correct_ && from != plan().exit) {
        return unexpected(from, "a proposal, but is neither its exit nor its correct");
    }
    const Result<RequestPtr> request = admit(from, proposal);
    if (!request) return request.error();
    if (!request.value()) return {};
    if (from == correct_) {
        request.value()->hear_branches(proposal);
    } else {
        request.value()->hear_candidates(proposal);
    }
    go_on(request.value());
    return {};
}

}  // namespace paceline
