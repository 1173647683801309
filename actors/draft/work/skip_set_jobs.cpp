#include "actors/draft/work/skip_set_jobs.hpp"

#include "actors/protocol/counters.hpp"
#include "actors/self_draft/self_draft_state.hpp"
#include "ipc/base/check.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {

SkipSetJobs::SkipSetJobs(DraftHost& host) : host_{host} {
    PACE_CHECK(!host.tools.programme || !host.tools.search, "a skip set that changes in two ways");
    if (host.tools.programme) chooser_.emplace(*host.model(), *host.tools.programme);
    if (host.tools.search) searcher_.emplace(*host.model(), *host.tools.search);
}

bool SkipSetJobs::start() {
    if (searcher_ && searcher_->use_best()) set_changed();
    return start_choice() || start_trial();
}

/// Selects the layers that rows of candidates skip, for all requests.
bool SkipSetJobs::start_choice() {
    const auto of = chooser_ ? chooser_->taps().complete() : std::nullopt;
    if (!of) return false;
    const RequestPtr request = host_.requests.find(*of);
    if (!request) {
        chooser_->taps().drop();
        return false;
    }
    if (!chooser_->can_run(*request->text)) return false;  // the next pass may read on
    chooser_->prepare(request->text);
    host_.context->submit(
        {.name = "optimise",
         .request = request->id,
         .rows = static_cast<std::uint32_t>(chooser_->rows()),
         .layers = static_cast<std::uint32_t>(chooser_->layers()),
         .context = chooser_->position() + 1},
        [this] { return job_outcome(chooser_->run()); },
        [this](JobOutcome outcome) {
            host_.context->count(counters::kOptimiseJobs);
            if (chooser_->finish(run_outcome(outcome))) set_changed();
            host_.job_ended();
        });
    return true;
}

/// Tries another set of skipped sub-layers on some request's text.
bool SkipSetJobs::start_trial() {
    if (!searcher_ || host_.account.off()) return false;
    for (const RequestPtr& request : host_.requests.longest_waiting_first()) {
        if (request->waits.for_begin) continue;
        const std::optional<JobLabel> label = searcher_->next(*request);
        if (!label) continue;
        trial_ = std::make_shared<Trial>();
        trial_->request = request;
        trial_->begun = host_.context->now();
        trial_->cancel.watch(host_.context->cancel_word(request->id),
                             CancelBoard::mark_of(request->id, request->attempt));
        host_.context->submit(
            *label, [this, trial = trial_] { return job_outcome(searcher_->run(trial->cancel)); },
            [this, trial = trial_](JobOutcome outcome) { end_trial(trial, outcome); });
        return true;
    }
    return false;
}

void SkipSetJobs::end_trial(const std::shared_ptr<Trial>& trial, JobOutcome outcome) {
    const Micros took = host_.context->now() - trial->begun;
    trial_.reset();
    searcher_->finish(run_outcome(outcome), took);
    host_.context->count(counters::kOptimiseJobs);
    host_.context->count(counters::kOptimiseSublayers, searcher_->take_sublayers());
    host_.context->count(counters::kOptimiseMicros, static_cast<std::uint64_t>(took.count()));
    show();
    host_.job_ended();
}

void SkipSetJobs::cancel(const RequestPtr& request) {
    if (trial_ && trial_->request == request) trial_->cancel.cancel();
}

void SkipSetJobs::passed(Micros took) {
    if (searcher_) searcher_->passed(took);
}

void SkipSetJobs::verified(const DraftTree& tree, const msg::Verdict& verdict) {
    if (!searcher_) return;
    const JudgedTrunk judged = judged_trunk(tree, verdict);
    searcher_->verified(judged.accepted, judged.drafted);
}

/// The keys of candidates were computed with the old set.
void SkipSetJobs::set_changed() {
    for (const RequestPtr& request : host_.requests.all()) request->text->tree.drop_slots();
    show();
    if (searcher_ && host_.tools.on_set) host_.tools.on_set(searcher_->search());
}

void SkipSetJobs::show() const {
    if (!chooser_ && !searcher_) return;
    SelfDraftState state{.threshold = host_.stops.threshold(),
                         .skipped_count = host_.model()->skip().count(),
                         .skipped = host_.model()->skip()};
    if (searcher_) {
        state.matchness = searcher_->search().matchness();
        state.trials = searcher_->search().trials();
    }
    paceline::show(*host_.context, state);
}

}  // namespace paceline
