// What a DraftActor does with its time: grows trees, runs jobs, says what there is to say.
#include <algorithm>
#include <string>
#include <utility>

#include "actors/draft/draft_actor.hpp"
#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {
namespace {

// Lockstep: how long an exit's names are waited for. Long beside any wave, short beside a hang.
constexpr Micros kNamesWait{200'000};
constexpr Position kLagMax = 8;  // tokens that may be on their way from Draft

template <msg::HotMessage M>
Push push(StageContext& context, StageId to, const M& message) {
    return context.send(to, static_cast<std::uint16_t>(M::kKind),
                        std::as_bytes(std::span{&message, 1}));
}

}  // namespace

void DraftActor::go_on(const WorkPtr& work) {
    advance(work);
    pump();
}

/// Does what can be done for this request without a job, and notes what it wants of the next one.
void DraftActor::advance(const WorkPtr& work) {
    if (work->in_pass || work->source_busy) return;  // the end of the job comes back to here
    work->wanted.clear();
    while (current(work)) {
        if (work->source && work->uses_model() && std::exchange(work->source_due, false)) {
            const std::int32_t tokens = std::min(work->growth.gamma(), work->room());
            const GuessId root = work->text->tree.root().id;
            if (tokens > 0 && !ask_source(work, root, tokens)) return;
        }
        const Growth::Step step = work->next();
        if (step.say) {
            send(work, *step.say);
            continue;
        }
        if (work->changed && work->growth.streams()) {
            send(work, msg::ProposalState::Growing);
        }
        if (step.waits_for_names) return wait_for_names(work);
        if (step.expand.empty()) return;
        if (work->uses_model()) {
            work->wanted = step.expand;
            work->wants_source = false;
            return;
        }
        if (!work->source) {
            work->close(step.expand);  // the model does not know this text (yet)
        } else if (!ask_source(work, step.expand.front(), step.chain)) {
            return;
        }
    }
}

/// False: the answer comes by a job.
bool DraftActor::ask_source(const WorkPtr& work, GuessId behind, std::int32_t tokens) {
    if (work->source->cost() == DraftCost::Instant) {
        const std::vector<Candidate> chain =
            work->source->weigh(work->path_to(behind), tokens, work->cancel);
        work->take_chain(behind, chain, tokens);
        if (!work->uses_model()) work->growth.passed(std::max<std::int32_t>(1, tokens));
        return true;
    }
    // Whoever speaks while it grows thinks step by step.
    const bool at_once = plan_.growth.pace == DraftPace::Turns || work->uses_model();
    work->wanted = {behind};
    work->wants_source = true;
    work->wanted_chain = at_once ? tokens : 1;
    return false;
}

void DraftActor::wait_for_names(const WorkPtr& work) {
    const std::uint32_t wait = ++work->waits;
    context_->schedule(kNamesWait, [this, wait, weak = std::weak_ptr{work}] {
        const WorkPtr waiting = weak.lock();
        if (!waiting || !current(waiting) || waiting->waits != wait) return;
        waiting->growth.waited_out();
        go_on(waiting);
    });
}

/// All requests, those first whose turn it is.
std::vector<DraftActor::WorkPtr> DraftActor::in_turn() {
    std::vector<WorkPtr> works;
    const auto first = works_.upper_bound(served_);
    for (auto at = first; at != works_.end(); ++at) works.push_back(at->second);
    for (auto at = works_.begin(); at != first; ++at) works.push_back(at->second);
    return works;
}

void DraftActor::pump() {
    if (busy_) return;
    busy_ = start_pass() || start_source();
}

/// Correct reads the text before anything is named: then what is sent of the trunk fits on.
bool DraftActor::lags(const DraftWork& work) const {
    return plan_.growth.part == GrowthPart::Alternatives && work.uses_model() &&
           !work.source_busy && tools_.model->behind(*work.text) > kLagMax;
}

bool DraftActor::start_pass() {
    if (tools_.model == nullptr) return false;
    DraftModel& model = *tools_.model;
    while (true) {
        auto pass = std::make_shared<Pass>();
        std::vector<DraftModel::Wish> wishes;
        for (const WorkPtr& work : in_turn()) {
            const bool asks = !work->wanted.empty() && !work->wants_source;
            if (!asks && !lags(*work)) continue;
            std::vector<GuessId> expand;
            if (asks) expand.swap(work->wanted);
            wishes.push_back({work->text, std::move(expand), 1 + plan_.growth.own_alternatives});
            pass->works.push_back(work);
        }
        if (wishes.empty()) return false;
        if (!model.prepare(wishes)) {
            // Nothing can be computed behind those nodes, which are closed now: ask again.
            for (const WorkPtr& work : pass->works) advance(work);
            continue;
        }
        for (const WorkPtr& work : pass->works) work->in_pass = true;
        pass->begun = context_->now();
        pass_ = pass;
        break;
    }
    const WorkPtr& first = pass_->works.front();
    served_ = first->request;
    if (pass_->works.size() == 1) {
        pass_->cancel.watch(context_->void_word(first->request),
                            CancelBoard::mark_of(first->request, first->attempt));
    }
    context_->count(counters::kDraftForwards);
    context_->count(counters::kDraftRows, model.rows());
    context_->submit(
        {.name = "draft",
         .request = first->request,
         .id = static_cast<std::uint32_t>(first->text->tree.root().position),
         .rows = model.rows(),
         .layers = static_cast<std::uint32_t>(model.backend().last_layer()),
         .heads = model.heads(),
         .context = model.context()},
        [&model, pass = pass_] {
            return model.run(&pass->cancel) == RunOutcome::Done ? JobOutcome::Done
                                                                : JobOutcome::Cancelled;
        },
        [this, pass = pass_](JobOutcome outcome) {
            end_pass(pass, outcome == JobOutcome::Done ? RunOutcome::Done : RunOutcome::Cancelled);
        });
    return true;
}

void DraftActor::end_pass(const std::shared_ptr<Pass>& pass, RunOutcome outcome) {
    busy_ = false;
    pass_.reset();
    const DraftModel::Taken taken = tools_.model->take(outcome);
    for (const WorkPtr& work : pass->works) {
        work->in_pass = false;
        if (!current(work)) continue;
        // Cancelled, and not by this actor: the conductor has declared the attempt void.
        if (outcome == RunOutcome::Cancelled && !pass->given_up) {
            stop(work->request);
            continue;
        }
        bool grown = false;
        for (const DraftModel::Said& said : taken.said) {
            if (said.text != work->text) continue;
            if (work->text->tree.find(said.node) == nullptr) {
                ++figures_.outdated;
                continue;
            }
            work->take(said);
            grown = true;
        }
        std::vector<GuessId> computed;
        for (const DraftModel::Computed& one : taken.computed) {
            if (one.text == work->text) computed.push_back(one.node);
        }
        if (grown) {
            // Requests that share a pass share its cost.
            const auto sharers = static_cast<Micros::rep>(pass->works.size());
            work->worth.passed((context_->now() - pass->begun) / sharers);
            work->growth.passed();
            tell_correct(work, computed);
        }
        advance(work);
    }
    pump();
}

bool DraftActor::start_source() {
    for (const WorkPtr& work : in_turn()) {
        if (work->wanted.empty() || !work->wants_source) continue;
        submit_source(work);
        return true;
    }
    return false;
}

void DraftActor::submit_source(const WorkPtr& work) {
    const GuessId behind = work->wanted.front();
    const std::int32_t tokens = work->wanted_chain;
    work->wanted.clear();
    work->source_busy = true;
    work->source_behind = behind;
    work->cancel.reset();
    served_ = work->request;
    const Position root = work->text->tree.root().position;
    const auto path = std::make_shared<const std::vector<TokenId>>(work->path_to(behind));
    const auto chain = std::make_shared<std::vector<Candidate>>();
    context_->submit(
        {.name = "draft",
         .request = work->request,
         .id = static_cast<std::uint32_t>(root),
         .rows = static_cast<std::uint32_t>(tokens),
         .context = root + 1 + static_cast<Position>(path->size()) + tokens},
        [work, path, tokens, chain] {
            *chain = work->source->weigh(*path, tokens, work->cancel);
            return work->cancel.cancelled() ? JobOutcome::Cancelled : JobOutcome::Done;
        },
        [this, work, root, behind, tokens, chain](JobOutcome outcome) {
            busy_ = false;
            work->source_busy = false;
            const bool moved = root != work->text->tree.root().position;
            // Cancelled, and not by a verdict: the conductor has declared the attempt void.
            if (outcome == JobOutcome::Cancelled && !moved && current(work)) stop(work->request);
            if (outcome == JobOutcome::Cancelled) chain->clear();
            const bool alive = work->text->tree.find(behind) != nullptr;
            work->take_chain(behind, *chain, outcome == JobOutcome::Done ? tokens : 0);
            if (current(work)) {
                figures_.outdated += alive ? 0 : 1;
                if (alive && !work->uses_model()) work->growth.passed(tokens);
                advance(work);
            }
            pump();
        });
}

void DraftActor::send(const WorkPtr& work, msg::ProposalState state) {
    msg::Proposal proposal = work->proposal(state);
    proposal.route.epoch = context_->epoch();
    work->changed = false;
    if (plan_.correct && !work->uses_model()) tell_correct(work, {});
    if (plan_.branches_to) (void)push(*context_, *plan_.branches_to, proposal);  // or it is lost
    if (push(*context_, plan_.first_segment, proposal) == Push::Full) {
        ++figures_.dropped;  // only a hint: the target goes on without it
        work->unsent = std::max(state, work->unsent.value_or(state));
        return;
    }
    work->unsent.reset();
    context_->trace({.kind = TraceKind::Proposal,
                     .request = work->request,
                     .attempt = work->attempt,
                     .position = work->text->tree.root().position,
                     .count = proposal.count});
    ++figures_.proposals;
    figures_.tokens += proposal.count;
}

/// The trunk, and then the keys and values of those nodes of it that were just computed.
void DraftActor::tell_correct(const WorkPtr& work, std::span<const GuessId> computed) {
    // A note is about the trunk as it was told last: none may wait when the next one is told.
    if (!plan_.correct || !flush_notes()) return;
    msg::Proposal trunk = work->proposal(msg::ProposalState::Growing);
    trunk.route.epoch = context_->epoch();
    if (push(*context_, *plan_.correct, trunk) == Push::Full) return;
    if (!work->uses_model() || tools_.model->kv_bytes() == 0) return;
    for (const GuessId id : work->text->tree.trunk()) {
        const GuessNode* node = work->text->tree.find(id);
        const bool is_new = std::find(computed.begin(), computed.end(), id) != computed.end();
        if (is_new && node->slot != kNoSlot) send_kv(work, *node);
    }
}

void DraftActor::send_kv(const WorkPtr& work, const GuessNode& node) {
    TensorProducer* tensors = context_->tensors_to(*plan_.correct);
    const std::size_t bytes = tools_.model->kv_bytes();
    if (tensors == nullptr || tensors->slot_bytes() < bytes || !notes_.empty()) return;
    const std::optional<PoolRef> slot = tensors->acquire();
    if (!slot) return;  // Correct computes them itself
    tools_.model->read_kv(node.slot, tensors->bytes(*slot).first(bytes));
    tensors->publish(*slot, bytes);
    notes_.push_back(
        {.route = {.request = work->request, .attempt = work->attempt, .epoch = context_->epoch()},
         .role = msg::TensorRole::Keys,
         .type = msg::TensorType::I8,
         .layer = 0,
         .first_position = node.position,
         .rows = 1,
         .row_elements = static_cast<std::uint32_t>(bytes),
         .tensor = slot->index,
         .tensor_generation = slot->generation});
    (void)flush_notes();
}

/// Whether none waits any more.
bool DraftActor::flush_notes() {
    while (!notes_.empty()) {
        if (push(*context_, *plan_.correct, notes_.front()) == Push::Full) return false;
        notes_.pop_front();
        ++figures_.kv_sent;
    }
    return true;
}

}  // namespace paceline
