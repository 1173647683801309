#include "actors/segment/scheduling/draft_wait.hpp"

#include <algorithm>

namespace paceline {

DraftWait::DraftWait(const DraftWaitRule& rule, const RequestState& state, Micros now)
    : rule_{rule}, state_{state}, until_{now + rule.wait} {}

void DraftWait::draft_changed() {
    silent_ = 0;
    if (!rule_.draft_present) half_until_.reset();
}

void DraftWait::receive(const msg::Proposal& proposal, Micros now) {
    const Position root = proposal.root_position;
    received_.anything = std::max(received_.anything, root);
    if (proposal.state != msg::ProposalState::Growing)
        received_.halfway = std::max(received_.halfway, root);
    if (proposal.state == msg::ProposalState::Complete) {
        received_.complete = std::max(received_.complete, root);
        if (proposal.count == 0) ++empty_;
    }
    if (proposal.count > 0) empty_ = 0;
    if (received_.halfway >= round_root_) half_until_.reset();
    // Also a draft that is not waited for any longer: it would have been in time.
    if (now <= until_ && received_.complete >= wanted_root()) silent_ = 0;
}

bool DraftWait::verify_sent(bool first, Micros now) {
    const bool timed_out = first && waits();
    if (timed_out) ++silent_;
    round_root_ = state_.tree().root().position;
    const bool held =
        rule_.start == StartRule::Lockstep && waits() && received_.halfway < round_root_;
    if (held) half_until_ = now + rule_.wait;
    return timed_out;
}

void DraftWait::decided(Micros now) {
    until_ = now + rule_.wait;
    half_until_.reset();
    rests_ = draft_told_off();
}

/// The root for which the draft must have sent Complete before the next batch starts.
Position DraftWait::wanted_root() const {
    switch (rule_.start) {
        case StartRule::AtOnce:
            return kNoRoot;
        case StartRule::Sequential:
            return state_.tree().root().position;
        case StartRule::Lockstep:
            return round_root_;  // it began that round together with the last batch
    }
    return kNoRoot;
}

bool DraftWait::draft_told_off() const {
    return rule_.account != nullptr && rule_.account->told_off(SpeculationAccount::Group::Drafts);
}

bool DraftWait::nothing_comes() const {
    const SpeculationAccount* account = rule_.account;
    if (account == nullptr) return false;
    if (account->allowed() == 0 || rests_ || draft_told_off()) return true;
    return !rule_.draft_is_instant && empty_ >= kEmptyAnswersMax;
}

bool DraftWait::waits() const {
    if (!rule_.draft_present || !state_.spec().speculation.on || silent_ >= kSilentWaitsMax)
        return false;
    if (nothing_comes()) return false;
    const TreeNode& root = state_.tree().root();
    const bool candidate_is_useless = state_.finish_rule().room_at(root.position + 1) <= 1;
    if (candidate_is_useless || received_.complete >= wanted_root()) return false;
    if (rule_.start != StartRule::Sequential) return true;
    // Candidates for this root are sent at once, unless the draft is still adding to them.
    const bool growing = received_.anything >= root.position;
    return growing || state_.tree().trunk_child(root.id) == nullptr;
}

bool DraftWait::halfway(Micros now) {
    expire(now);
    if (state_.over()) half_until_.reset();
    return !half_until_;
}

std::optional<Micros> DraftWait::due(bool first) const {
    if (!first || !waits()) return half_until_;
    return half_until_ ? std::min(*half_until_, until_) : until_;
}

}  // namespace paceline
