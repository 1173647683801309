#include "actors/conductor/draft_begins.hpp"

#include <fmt/core.h>
#include <utility>

namespace paceline {

DraftBegins::DraftBegins(const ConductorPlan& plan,
                         const StageTable& stages,
                         RequestTable& requests,
                         Post post)
    : stages_{stages}, requests_{requests}, post_{std::move(post)} {
    for (const StageTable::Stage& each : stages.all()) {
        if (each.essential) continue;
        const StageId home = StageTable::home_of(each);
        quarantines_.emplace(home, DraftQuarantine{home, plan.poison_limit, plan.draft_quarantine});
    }
}

void DraftBegins::post_allowed() {
    if (context_ == nullptr) return;
    for (auto& [home, quarantine] : quarantines_) {
        if (!stages_.is_home_whole(home)) continue;
        for (const RequestId request : quarantine.to_deliver(speculating(), context_->now())) {
            for (const StageTable::Stage& each : stages_.all()) {
                if (each.essential || StageTable::home_of(each) != home) continue;
                post_(request, requests_.at(request), each.id);
            }
        }
    }
}

/// The running requests that are drafted for.
std::vector<RequestId> DraftBegins::speculating() const {
    std::vector<RequestId> running = requests_.in_phase(RequestPhase::Running);
    std::erase_if(running, [&](RequestId request) {
        return !requests_.at(request).order.request.speculation.on;
    });
    return running;
}

void DraftBegins::wanted(StageId from, const control::BeginWanted& wanted) {
    const StageTable::Stage* to = stages_.find(from);
    if (to == nullptr || stages_.is_lost(from)) return;
    const RequestRecord* record = requests_.find_running(wanted.request);
    if (record == nullptr || record->attempt != wanted.attempt) return;
    if (to->essential || wanted.position < 1 || wanted.position > record->order.request.context) {
        return context_->report_fault(
            from,
            {Errc::Protocol,
             fmt::format("{} asks for {} from position {} on, which is not its to ask",
                         StageTable::name_of(*to), name_of(wanted.request), wanted.position)});
    }
    resends_.want(wanted.request, from, wanted.position);
    post_wanted(wanted.request, *record);
}

void DraftBegins::post_wanted(RequestId request, const RequestRecord& record) {
    const auto length = static_cast<Position>(requests_.log().text(request).size());
    for (const StageId to : resends_.due(request, length)) post_(request, record, to);
}

/// If it shares its process with a segment, the loss of the segment is handled instead. Of several
/// in one process only the first loss counts: it is one death, and excused once.
bool DraftBegins::lost(const StageTable::Stage& lost) {
    const StageId home = StageTable::home_of(lost);
    DraftQuarantine& quarantine = quarantines_.at(home);
    if (!lost.apart) {
        quarantine.void_all();
        return false;
    }
    if (!stages_.is_home_whole(home, &lost)) return false;
    quarantine.lost(context_->now());
    return true;
}

void DraftBegins::verdict(const msg::Verdict& verdict) {
    bool freed = false;
    for (auto& [home, quarantine] : quarantines_) {
        const StageTable::Stage* draft = stages_.find(home);
        const bool own = draft != nullptr && draft->proposes_alone && verdict.depth > 0;
        const Micros now = context_->now();
        freed = quarantine.verdict(verdict.route.request, verdict.base, own, now) || freed;
        freed = quarantine.look(now) || freed;
        excuse(home, quarantine);
    }
    if (freed) post_allowed();
}

void DraftBegins::void_attempt(RequestId request) {
    for (auto& [home, quarantine] : quarantines_) quarantine.void_attempt(request);
    resends_.forget(request);
}

void DraftBegins::ended(RequestId request, bool by_itself) {
    for (auto& [home, quarantine] : quarantines_) {
        quarantine.ended(request, by_itself);
        excuse(home, quarantine);
    }
    resends_.forget(request);
}

void DraftBegins::explained(RequestId request) {
    for (auto& [home, quarantine] : quarantines_) quarantine.explained(request);
}

void DraftBegins::excuse(StageId home, DraftQuarantine& quarantine) {
    for (std::size_t n = quarantine.take_excused(); n > 0; --n) context_->excuse_loss(home);
}

}  // namespace paceline
