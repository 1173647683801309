#include "actors/self_draft/self_draft.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

SelfDraft::SelfDraft(SelfDraftHost host, Backend& backend, SelfDraftOptions options)
    : host_{std::move(host)},
      tools_{backend, std::move(options)},
      stops_{{.confidence_min = tools_.options.confidence_min,
              .product_min = tools_.options.reach_min},
             tools_.options.threshold_adapts ? std::optional{tools_.options.acceptance_target}
                                             : std::nullopt},
      turns_{tools_.options.auto_off},
      metrics_{host_, tools_.options.on_auto_off},
      tapped_{static_cast<std::size_t>(backend.config().sublayers()) *
              static_cast<std::size_t>(backend.config().dim)} {
    const SelfDraftOptions& how = tools_.options;
    PACE_CHECK(validate(how, backend.config().layers).ok(),
               "self-draft options that were not validated");
    PACE_CHECK(backend.first_layer() == 0 && backend.has_head(how.head),
               "a segment drafts that has no first layer or no head");
    if (how.choice != SkipChoice::Fixed) {
        Result<RequestSlots> scratch = host_.slots.scratch_slots(how.scratch_slots());
        PACE_CHECK(scratch.ok(), "no KV slots for the search of a skip set");
        optimiser_.emplace(how, backend, std::move(scratch).value());
    }
    path_ = path_of(optimiser_ ? optimiser_->set() : how.skip);
}

std::shared_ptr<const DraftPath> SelfDraft::path_of(const SkipSet& set) const {
    auto path = std::make_shared<DraftPath>();
    path->skipped = SkipSet{tools_.backend.config().layers};
    if (tools_.options.early_exit()) {
        path->start = path->last = 2 * tools_.options.exit;
        path->layers = tools_.options.exit;
        for (int layer = tools_.options.exit; layer < tools_.backend.config().layers; ++layer)
            path->skipped.skip_layer(layer);
        return path;
    }
    path->skipped = set;
    path->mask = set.mask();
    path->masked = true;
    path->start = set.first_skipped();
    path->last = tools_.backend.config().sublayers();
    path->layers = (path->last - set.count()) / 2.0;
    return path;
}

// ---- Requests

void SelfDraft::begin(const std::shared_ptr<RequestState>& state) {
    chains_.erase(state->request());  // of an earlier attempt
    if (!state->spec().speculation.on) return;
    auto chain = std::make_shared<DraftChain>();
    chain->state = state;
    const SelfDraftOptions& how = tools_.options;
    if (how.thompson) {
        chain->drawn.emplace(ThompsonOptions{
            .longest = how.gamma, .decay = how.thompson_decay, .seed = state->request().value});
    }
    chains_[state->request()] = std::move(chain);
    show();
}

void SelfDraft::forget_ended() {
    std::erase_if(chains_, [&](const auto& entry) { return host_.gone(*entry.second->state); });
}

void SelfDraft::follow(const RequestState& state, const TreeUpdate& step) {
    const auto found = chains_.find(state.request());
    if (found == chains_.end() || found->second->state.get() != &state) return;
    DraftChain& chain = *found->second;
    const Micros now = host_.context->now();
    const auto tokens = static_cast<int>(step.committed.size());
    const int accepted = std::max(tokens - 1, 0);
    const std::int32_t drafted = chain.drafted_tokens();
    turns_.verified(chain.round, tokens, drafted > 0 ? chain.candidates : 0, now);
    if (optimiser_) optimiser_->round_ended();
    if (chain.drafted && drafted > 0) {
        // A runner-up may be accepted one token deeper than the chain, if the tree was full: what
        // counts is the rate of the chain.
        const bool stopped = drafted < longest(chain) && chain.candidates < chain.round.candidates;
        stops_.verified(std::min(accepted, drafted), drafted, stopped);
        const bool changed =
            optimiser_ && optimiser_->verified(std::min(accepted, drafted), drafted);
        if (changed) path_ = path_of(optimiser_->set());
    }
    if (chain.drawn)
        chain.drawn->verified(std::min(accepted, drafted), chain.drafted ? drafted : 0);
    metrics_.verified(chain, step);
    show();
    chain.end(now);
}

/// Whether the text's root is new and waits for its batch.
bool SelfDraft::may_begin(const DraftChain& chain) const {
    const RequestState& state = *chain.state;
    const TreeNode& root = state.tree().root();
    return state.prefilled() && !root.sent() && chain.root != root.position;
}

/// The most candidates of a chain by its rules.
std::int32_t SelfDraft::longest(const DraftChain& chain) const {
    return chain.drawn ? chain.drawn->now() : tools_.options.gamma;
}

/// The same: what is allowed, and could be committed.
std::int32_t SelfDraft::limit(const DraftChain& chain) const {
    const RequestState& state = *chain.state;
    const std::int32_t room = state.finish_rule().room_at(chain.root + 1) - 1;
    return state.spec().speculation.depth_max(std::min(longest(chain), room));
}

void SelfDraft::begin_chain(DraftChain& chain) {
    const TreeNode& root = chain.state->tree().root();
    if (chain.root < 0) chain.begun = host_.context->now();
    chain.begin_below(root, path_);
    const bool drafting = turns_.watch(chains_.size()).drafting();
    if (limit(chain) > 0) chain.round = turns_.begin(chains_.size(), chain.begun);
    if (turns_.watch(chains_.size()).drafting() != drafting) show();
    chain.drafted = chain.round.drafts();
    chain.ended = !chain.drafted;
    chain.tapped = chain.drafted && optimiser_ && optimiser_->wants_residuals();
    if (!chain.drafted || chain.path->start == 0 || chain.at_start) return;
    chain.at_start = std::make_shared<RowMemory>(
        tools_.backend.make_rows(static_cast<std::size_t>(tools_.options.gamma) + 1));
}

// ---- Jobs

std::optional<JobLabel> SelfDraft::next_job() {
    PACE_CHECK(job_.kind == Job::None, "a draft is prepared while another one runs");
    forget_ended();
    std::optional<JobLabel> label = optimiser_job();
    if (!label) label = pass_job();
    job_.started = host_.context->now();
    return label;
}

std::optional<JobLabel> SelfDraft::optimiser_job() {
    if (!optimiser_) return std::nullopt;
    for (const auto& [request, chain] : chains_) {
        if (!may_begin(*chain)) continue;
        const auto affords = [&](Micros job) { return turns_.affords(chains_.size(), job); };
        std::optional<JobLabel> label = optimiser_->next(chain->state, decoding_, affords);
        if (!label) continue;
        job_.kind = Job::Optimise;
        job_.requests = chains_.size();
        return label;
    }
    return std::nullopt;
}

std::optional<JobLabel> SelfDraft::pass_job() {
    auto pass = std::make_unique<DraftPass>(tools_);
    for (const auto& [request, chain] : chains_) {
        if (may_begin(*chain)) begin_chain(*chain);
        // Those with another skip set follow in the next pass.
        if (chain->ended || !pass->takes(*chain)) continue;
        const std::optional<KvSlot> slot = host_.slots.allocate_ahead(request, chain->nodes.back());
        if (!slot) {
            chain->ended = true;
            continue;
        }
        pass->add(chain, *slot, planted(PlantedBug::DraftPathChanges) ? *path_ : *chain->path);
    }
    if (pass->size() == 0) return std::nullopt;
    pass->prepare(*host_.context);
    metrics_.pass(pass->path(), pass->size());
    job_.kind = Job::Pass;
    job_.pass = std::move(pass);
    return job_.pass->label();
}

RunOutcome SelfDraft::run() {
    return job_.kind == Job::Optimise ? optimiser_->run() : job_.pass->run();
}

void SelfDraft::finish(RunOutcome outcome) {
    const Micros took = host_.context->now() - job_.started;
    const Job job = std::exchange(job_.kind, Job::None);
    if (job == Job::Optimise) {
        metrics_.optimised(optimiser_->take_sublayers(), took);
        turns_.job_ended(job_.requests, took, host_.context->now());
        if (optimiser_->finish(outcome, took)) path_ = path_of(optimiser_->set());
        return show();
    }
    metrics_.pass_took(took);
    decoding_ += took;
    finish_pass(outcome);
}

void SelfDraft::finish_pass(RunOutcome outcome) {
    const std::unique_ptr<DraftPass> pass = std::move(job_.pass);
    for (std::size_t i = 0; i < pass->size(); ++i) {
        DraftChain& chain = *pass->chain(i);
        // Cancelled: the conductor has cancelled the attempt, and its Stop is under way.
        if (outcome == RunOutcome::Cancelled) chain.state->stop();
        if (host_.gone(*chain.state)) {
            chain.ended = true;
            continue;
        }
        host_.slots.computed_ahead(chain.state->request(), chain.nodes.back(),
                                   static_cast<std::uint32_t>(chain.path->start),
                                   static_cast<std::uint32_t>(pass->index(i)));
        extend(chain, pass->best(i), pass->score(i));
    }
}

/// Takes the candidates after the chain's newest node into the tree.
void SelfDraft::extend(DraftChain& chain,
                       const std::vector<Candidate>& best,
                       std::optional<float> score) {
    chain.ended = true;
    if (best.empty()) return;
    TokenTree& tree = chain.state->tree();
    const NodeId above = chain.nodes.back();
    const Position position = tree.find(above)->position + 1;
    const float probability = std::exp(best.front().log_prob);
    const int wanted = tools_.options.tree ? tools_.options.tree->candidates_at(probability) : 1;
    const std::int32_t allowed = chain.round.candidates - chain.candidates;
    const auto count = std::min(best.size(), static_cast<std::size_t>(std::min(wanted, allowed)));
    std::optional<NodeId> next;
    for (std::size_t i = 0; i < count; ++i) {
        const auto origin = i == 0 ? msg::Origin::Trunk : msg::Origin::RunnerUp;
        const std::optional<NodeId> node =
            tree.grow(above, best[i].token, std::min(best[i].log_prob, 0.0F), origin);
        if (i == 0) next = node;
        chain.candidates += node ? 1 : 0;
    }
    if (!next || tree.find(*next) == nullptr) return;  // a full tree: it had to make room
    chain.nodes.push_back(*next);
    const float own = score.value_or(probability);
    chain.score_product *= own;
    const bool last =
        chain.state->finish_rule().after(best.front().token, position) != FinishReason::None;
    const ChainStop stop = chain.state->spec().speculation.stricter(stops_.now());
    chain.ended = last || chain.drafted_tokens() >= limit(chain) ||
                  chain.candidates >= chain.round.candidates || own < stop.confidence_min ||
                  chain.score_product < stop.product_min;
}

// ---- Batches

std::shared_ptr<RowMemory> SelfDraft::begun_rows(const RequestState& state) const {
    const auto found = chains_.find(state.request());
    if (found == chains_.end() || found->second->state.get() != &state) return nullptr;
    return found->second->slots.empty() ? nullptr : found->second->at_start;
}

void SelfDraft::prepare(std::span<const SelfDraftRows> batch) {
    tapped_.clear();
    const auto is_prefill = [](const SelfDraftRows& part) {
        return part.kind == msg::BatchKind::Prefill;
    };
    if (std::any_of(batch.begin(), batch.end(), is_prefill)) turns_.disturbed();
    for (const SelfDraftRows& part : batch) {
        const auto found = chains_.find(part.state->request());
        if (is_prefill(part) || found == chains_.end() || !found->second->tapped) continue;
        return tapped_.keep(part.state, part.rows);  // one request's are enough
    }
}

void SelfDraft::ran(bool verifies, Micros took) {
    decoding_ += took;
    metrics_.run_took(verifies, took);
}

void SelfDraft::verified(const RequestState& state,
                         std::span<const msg::BatchRow> rows,
                         const WalkResult& result) {
    if (result.tokens.empty()) return;
    const auto residuals = tapped_.of(state, result.last_row);
    if (!residuals) return;
    optimiser_->take_residuals(state, rows[result.last_row].position, *residuals);
    tapped_.clear();
}

// ---- Metrics

void SelfDraft::show() {
    const SkipSearch* search = optimiser_ ? optimiser_->search() : nullptr;
    const GainWatch& watch = turns_.watch(chains_.size());
    metrics_.show({.drafts = watch.drafting(),
                   .gain = watch.gain(),
                   .threshold = stops_.threshold(),
                   .matchness = search != nullptr ? search->matchness() : 0.0,
                   .trials = search != nullptr ? search->trials() : 0,
                   .skipped_count = path_->skipped.count(),
                   .skipped = path_->skipped});
}

}  // namespace paceline
