// The second part of DraftWork: the jobs that grow the trees, and the proposals that follow. The
// first part (draft_work.cpp) is its inbox.
#include <algorithm>
#include <utility>

#include "actors/draft/draft_work.hpp"
#include "actors/draft/layer_chooser.hpp"
#include "actors/draft/set_searcher.hpp"
#include "actors/draft/trunk_sender.hpp"
#include "actors/protocol/counters.hpp"
#include "actors/self_draft/self_draft_state.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {
namespace {

// Lockstep: how long an exit's candidates are waited for. Long beside any batch, short beside a
// hang.
constexpr Micros kCandidatesWait{200'000};
constexpr Position kLagMax = 8;  // tokens that may be on their way from Draft

constexpr RunOutcome outcome_of(JobOutcome outcome) {
    return outcome == JobOutcome::Done ? RunOutcome::Done : RunOutcome::Cancelled;
}
constexpr JobOutcome outcome_of(RunOutcome outcome) {
    return outcome == RunOutcome::Done ? JobOutcome::Done : JobOutcome::Cancelled;
}

}  // namespace

void DraftWork::continue_request(const RequestPtr& request) {
    advance(request);
    pump();
}

/// Does the steps that need no job, and notes what the request wants from the next job.
void DraftWork::advance(const RequestPtr& request) {
    if (request->in_pass || request->source_busy) return;  // the end of the job comes back to here
    request->wanted.clear();
    request->end_tentative(false);
    if (request->missed) return;
    while (current(request)) {
        if (request->source && request->uses_model() && std::exchange(request->source_due, false)) {
            const std::int32_t tokens = std::min(request->growth.gamma(), request->room());
            const DraftNodeId root = request->text->tree.root().id;
            if (tokens > 0 && !ask_source(request, root, tokens)) return;
        }
        const Growth::Step step = request->next(stops_.now());
        if (step.say) {
            if (*step.say == msg::ProposalState::Complete) request->add_phrases();
            // To a target that waits for nothing, nothing is said.
            const bool silent = account_.off() && request->text->tree.nodes().size() == 1;
            if (!silent) send(request, *step.say);
            continue;
        }
        if (request->changed && (request->growth.streams() || request->draws())) {
            send(request, msg::ProposalState::Growing);
        }
        if (step.waits_for_candidates) return wait_for_candidates(request);
        if (step.expand.empty()) return;
        if (request->uses_model()) {
            request->wanted = step.expand;
            request->wants_source = false;
            request->add_tentative(step.chain);
            return;
        }
        if (!request->source) {
            request->close(step.expand);  // the model does not know this text (yet)
        } else if (!ask_source(request, step.expand.front(), step.chain)) {
            return;
        }
    }
}

/// False: the answer comes by a job.
bool DraftWork::ask_source(const RequestPtr& request, DraftNodeId behind, std::int32_t tokens) {
    if (request->source->cost() == DraftCost::Instant) {
        const std::vector<SourceNode> candidates =
            request->source->grow(request->path_to(behind), tokens, request->cancel);
        request->take_candidates(behind, candidates, tokens, stops_.now());
        if (!request->uses_model()) request->growth.passed(std::max<std::int32_t>(1, tokens));
        return true;
    }
    // A draft that sends its tree while it grows takes one step at a time.
    const bool at_once = plan_.growth.pace == DraftPace::Sequential || request->uses_model();
    request->wanted = {behind};
    request->wants_source = true;
    request->wanted_chain = at_once ? tokens : 1;
    return false;
}

void DraftWork::wait_for_candidates(const RequestPtr& request) {
    const std::uint32_t wait = ++request->waits;
    context_->schedule(kCandidatesWait, [this, wait, weak = std::weak_ptr{request}] {
        const RequestPtr waiting = weak.lock();
        if (!waiting || !current(waiting) || waiting->waits != wait) return;
        waiting->growth.waited_out();
        continue_request(waiting);
    });
}

/// All requests, those that waited longest first.
std::vector<DraftWork::RequestPtr> DraftWork::longest_waiting_first() {
    std::vector<RequestPtr> requests;
    const auto first = requests_.upper_bound(served_);
    for (auto at = first; at != requests_.end(); ++at) requests.push_back(at->second);
    for (auto at = requests_.begin(); at != first; ++at) requests.push_back(at->second);
    return requests;
}

void DraftWork::pump() {
    if (busy_) return;
    if (search_ != nullptr && search_->use_best()) skip_set_changed();
    busy_ = start_choice() || start_trial() || start_pass() || start_source();
}

/// Correct reads the text first, so that the trunk's keys and values can be appended to its cache.
/// Not while it is off: then it reads at the next probe what it has missed.
bool DraftWork::lags(const DraftRequest& request) const {
    return !account_.off() && plan_.growth.part == GrowthPart::Alternatives &&
           request.uses_model() && !request.source_busy &&
           tools_.model->cache().behind(*request.text) > kLagMax;
}

bool DraftWork::start_pass() {
    if (tools_.model == nullptr) return false;
    DraftModel& model = *tools_.model;
    while (true) {
        auto pass = std::make_shared<Pass>();
        std::vector<DraftExpansion> expansions;
        for (const RequestPtr& request : longest_waiting_first()) {
            const bool asks = !request->wanted.empty() && !request->wants_source;
            if (!asks && !lags(*request)) continue;
            std::vector<DraftNodeId> expand;
            if (asks) expand.swap(request->wanted);
            expansions.push_back({request->text, std::move(expand), plan_.growth.children()});
            pass->requests.push_back(request);
        }
        if (expansions.empty()) return false;
        if (!model.prepare(expansions)) {
            // Nothing can be computed after those nodes, which are closed now: ask again.
            for (const RequestPtr& request : pass->requests) advance(request);
            continue;
        }
        for (const RequestPtr& request : pass->requests) request->in_pass = true;
        pass->begun = context_->now();
        pass_ = pass;
        break;
    }
    const RequestPtr& first = pass_->requests.front();
    served_ = first->id;
    if (pass_->requests.size() == 1) {
        pass_->cancel.watch(context_->cancel_word(first->id),
                            CancelBoard::mark_of(first->id, first->attempt));
    }
    context_->count(counters::kDraftForwards);
    const auto rows = static_cast<std::uint32_t>(model.pass().rows().size());
    context_->count(counters::kDraftRows, rows);
    context_->submit(
        {.name = "draft",
         .request = first->id,
         .id = static_cast<std::uint32_t>(first->text->tree.root().position),
         .rows = rows,
         .layers = model.layers(),
         .heads = static_cast<std::uint32_t>(model.pass().heads().size()),
         .context = model.pass().context()},
        [&model, pass = pass_] { return outcome_of(model.run(&pass->cancel)); },
        [this, pass = pass_](JobOutcome outcome) { end_pass(pass, outcome_of(outcome)); });
    return true;
}

void DraftWork::end_pass(const std::shared_ptr<Pass>& pass, RunOutcome outcome) {
    busy_ = false;
    pass_.reset();
    if (search_ != nullptr) search_->passed(context_->now() - pass->begun);
    const DraftPassResult taken = tools_.model->take(outcome);
    const auto took = static_cast<double>((context_->now() - pass->begun).count());
    for (const RequestPtr& request : pass->requests) {
        request->in_pass = false;
        const bool first = std::exchange(request->first_pass, false);
        if (outcome == RunOutcome::Done)  // requests that share a pass share its cost
            account_.passes.passed(took / static_cast<double>(pass->requests.size()), first);
        if (!current(request)) continue;
        // Cancelled, and not by this actor: the conductor has cancelled the attempt.
        if (outcome == RunOutcome::Cancelled && !pass->given_up) {
            stop(request->id);
            continue;
        }
        bool grown = false;
        for (const NodeCandidates& found : taken.candidates) {
            if (found.text != request->text) continue;
            if (request->text->tree.find(found.node) == nullptr) continue;
            // Before anything that depends on the drawn tokens. If there is no room it is not sent
            // later: the time at which that happens would depend on the drawn tokens.
            if (found.drawn) {
                msg::Draw draw = request->draw(found.node, *found.drawn);
                draw.route.epoch = context_->epoch();
                (void)emit<DraftWork>(*context_, plan_.first_segment, draw);
            }
            request->take(found);
            grown = true;
        }
        request->end_tentative(true);
        std::vector<DraftNodeId> computed;
        for (const ComputedNode& one : taken.computed) {
            if (one.text == request->text) computed.push_back(one.node);
        }
        if (grown) {
            request->growth.passed();
            if (trunk_ != nullptr) trunk_->tell(*request, computed);
        }
        advance(request);
    }
    pump();
}

/// Selects the layers that rows of candidates skip, for all requests.
bool DraftWork::start_choice() {
    const auto of = choice_ != nullptr ? choice_->complete() : std::nullopt;
    if (!of) return false;
    const RequestPtr request = find(*of);
    if (!request) {
        choice_->drop();
        return false;
    }
    if (!choice_->can_run(*request->text)) return false;  // the next pass may read on
    choice_->prepare(request->text);
    context_->submit(
        {.name = "optimise",
         .request = request->id,
         .rows = static_cast<std::uint32_t>(choice_->rows()),
         .layers = static_cast<std::uint32_t>(choice_->layers()),
         .context = choice_->position() + 1},
        [this] { return outcome_of(choice_->run()); },
        [this](JobOutcome outcome) {
            busy_ = false;
            context_->count(counters::kOptimiseJobs);
            if (choice_->finish(outcome_of(outcome))) skip_set_changed();
            pump();
        });
    return true;
}

/// The keys of candidates were computed with the old set.
void DraftWork::skip_set_changed() {
    for (const auto& [id, request] : requests_) request->text->tree.drop_slots();
    show_skip_set();
    if (search_ != nullptr && tools_.on_set) tools_.on_set(search_->search());
}

/// Tries another set of skipped sub-layers on some request's text.
bool DraftWork::start_trial() {
    if (search_ == nullptr || account_.off()) return false;
    for (const RequestPtr& request : longest_waiting_first()) {
        if (request->missed) continue;
        const std::optional<JobLabel> label = search_->next(*request);
        if (!label) continue;
        trial_ = std::make_shared<Trial>();
        trial_->request = request;
        trial_->begun = context_->now();
        trial_->cancel.watch(context_->cancel_word(request->id),
                             CancelBoard::mark_of(request->id, request->attempt));
        context_->submit(
            *label, [this, trial = trial_] { return outcome_of(search_->run(trial->cancel)); },
            [this, trial = trial_](JobOutcome outcome) { end_trial(trial, outcome); });
        return true;
    }
    return false;
}

void DraftWork::end_trial(const std::shared_ptr<Trial>& trial, JobOutcome outcome) {
    const Micros took = context_->now() - trial->begun;
    busy_ = false;
    trial_.reset();
    search_->finish(outcome_of(outcome), took);
    context_->count(counters::kOptimiseJobs);
    context_->count(counters::kOptimiseSublayers, search_->take_sublayers());
    context_->count(counters::kOptimiseMicros, static_cast<std::uint64_t>(took.count()));
    show_skip_set();
    pump();
}

/// As gauges of the process, of a set that changes.
void DraftWork::show_skip_set() {
    if (choice_ == nullptr && search_ == nullptr) return;
    SelfDraftState state{.threshold = stops_.threshold(),
                         .skipped_count = tools_.model->skip().count(),
                         .skipped = tools_.model->skip()};
    if (search_ != nullptr) {
        state.matchness = search_->search().matchness();
        state.trials = search_->search().trials();
    }
    show(*context_, state);
}

bool DraftWork::start_source() {
    for (const RequestPtr& request : longest_waiting_first()) {
        if (request->wanted.empty() || !request->wants_source) continue;
        submit_source(request);
        return true;
    }
    return false;
}

void DraftWork::submit_source(const RequestPtr& request) {
    const DraftNodeId behind = request->wanted.front();
    const std::int32_t tokens = request->wanted_chain;
    request->wanted.clear();
    request->source_busy = true;
    request->source_behind = behind;
    request->cancel.reset();
    served_ = request->id;
    const Position root = request->text->tree.root().position;
    const auto path = std::make_shared<const std::vector<TokenId>>(request->path_to(behind));
    const auto candidates = std::make_shared<std::vector<SourceNode>>();
    context_->submit(
        {.name = "draft",
         .request = request->id,
         .id = static_cast<std::uint32_t>(root),
         .rows = static_cast<std::uint32_t>(tokens),
         .context = root + 1 + static_cast<Position>(path->size()) + tokens},
        [request, path, tokens, candidates] {
            *candidates = request->source->grow(*path, tokens, request->cancel);
            return request->cancel.cancelled() ? JobOutcome::Cancelled : JobOutcome::Done;
        },
        [this, request, root, behind, tokens, candidates](JobOutcome outcome) {
            busy_ = false;
            request->source_busy = false;
            const bool moved = root != request->text->tree.root().position;
            // Cancelled, and not by a verdict: the conductor has cancelled the attempt.
            if (outcome == JobOutcome::Cancelled && !moved && current(request)) stop(request->id);
            if (outcome == JobOutcome::Cancelled) candidates->clear();
            const bool alive = request->text->tree.find(behind) != nullptr;
            request->take_candidates(behind, *candidates, outcome == JobOutcome::Done ? tokens : 0,
                                     stops_.now());
            if (current(request)) {
                if (alive && !request->uses_model()) request->growth.passed(tokens);
                advance(request);
            }
            pump();
        });
}

void DraftWork::send(const RequestPtr& request, msg::ProposalState state) {
    msg::Proposal proposal = request->proposal(state);
    proposal.route.epoch = context_->epoch();
    request->changed = false;
    if (trunk_ != nullptr && !request->uses_model()) trunk_->tell(*request, {});
    if (copies_to_) (void)emit<DraftWork>(*context_, *copies_to_, proposal);
    if (emit<DraftWork>(*context_, plan_.first_segment, proposal) == Push::Full) {
        // No room: the target continues without this proposal.
        request->unsent = std::max(state, request->unsent.value_or(state));
        return;
    }
    request->unsent.reset();
    context_->trace({.kind = TraceKind::Proposal,
                     .request = request->id,
                     .attempt = request->attempt,
                     .position = request->text->tree.root().position,
                     .count = proposal.count});
}

}  // namespace paceline
