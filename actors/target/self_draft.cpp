#include "actors/target/self_draft.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {

SelfDraft::SelfDraft(SegmentHost& host,
                     Backend& backend,
                     Dispatcher& dispatcher,
                     SelfDraftOptions options)
    : host_{host},
      backend_{backend},
      dispatcher_{dispatcher},
      options_{std::move(options)},
      stops_{{.confidence_min = options_.confidence_min, .product_min = options_.reach_min},
             options_.threshold_adapts ? std::optional{options_.acceptance_target} : std::nullopt},
      turns_{options_.auto_off},
      account_{host, options_.on_auto_off},
      candidates_{backend} {
    PACE_CHECK(validate(options_, backend.config().layers).ok(),
               "self-draft options that were not validated");
    PACE_CHECK(backend.first_layer() == 0 && backend.has_head(options_.head),
               "a segment drafts that has no first layer or no head");
    if (options_.choice != SkipChoice::Fixed) {
        Result<RequestSlots> scratch =
            dispatcher_.scheduler().scratch_slots(options_.scratch_slots());
        PACE_CHECK(scratch.ok(), "no KV slots for the search of a skip set");
        optimiser_.emplace(options_, backend_, std::move(scratch).value());
    }
    path_ = path_of(optimiser_ ? optimiser_->set() : options_.skip);
}

std::shared_ptr<const DraftPath> SelfDraft::path_of(const SkipSet& set) const {
    auto path = std::make_shared<DraftPath>();
    path->skipped = SkipSet{backend_.config().layers};
    if (options_.early_exit()) {
        path->start = path->last = 2 * options_.exit;
        path->layers = options_.exit;
        for (int layer = options_.exit; layer < backend_.config().layers; ++layer)
            path->skipped.skip_layer(layer);
        return path;
    }
    path->skipped = set;
    path->mask = set.mask();
    path->masked = true;
    path->start = set.first_skipped();
    path->last = backend_.config().sublayers();
    path->layers = (path->last - set.count()) / 2.0;
    return path;
}

// ---- Requests

void SelfDraft::begin(const std::shared_ptr<RequestState>& state) {
    auto chain = std::make_shared<DraftChain>();
    chain->state = state;
    chains_[state->request()] = std::move(chain);
    show();
}

void SelfDraft::forget_ended() {
    std::erase_if(chains_,
                  [&](const auto& entry) { return host_.requests.gone(*entry.second->state); });
}

void SelfDraft::follow(const RequestState& state, const TreeStep& step) {
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
        // A runner-up may be accepted one token deeper than the chain, if the tree was full: what counts
        // is the rate of the chain.
        const bool stopped = drafted < options_.gamma && chain.candidates < chain.round.candidates;
        stops_.verified(std::min(accepted, drafted), drafted, stopped);
        const bool changed =
            optimiser_ && optimiser_->verified(std::min(accepted, drafted), drafted);
        if (changed) path_ = path_of(optimiser_->set());
    }
    account_.verified(chain, step);
    show();
    chain.end(now);
}

/// Whether the text's root is new and waits for its batch.
bool SelfDraft::may_begin(const DraftChain& chain) const {
    const RequestState& state = *chain.state;
    const TreeNode& root = state.tree().root();
    return state.prefilled() && !root.sent() && chain.root != root.position;
}

/// The most candidates of a chain: what is allowed, and could be committed.
std::int32_t SelfDraft::limit(const DraftChain& chain) const {
    const RequestState& state = *chain.state;
    const std::int32_t room = state.finish_rule().room_at(chain.root + 1) - 1;
    return std::min(options_.gamma, room);
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
        backend_.make_rows(static_cast<std::size_t>(options_.gamma) + 1));
}

// ---- Jobs

std::optional<JobLabel> SelfDraft::next_job() {
    PACE_CHECK(job_ == Job::None, "a draft is prepared while another one runs");
    forget_ended();
    std::optional<JobLabel> label = optimiser_job();
    if (!label) label = pass_job();
    started_ = host_.context->now();
    return label;
}

std::optional<JobLabel> SelfDraft::optimiser_job() {
    if (!optimiser_) return std::nullopt;
    for (const auto& [request, chain] : chains_) {
        if (!may_begin(*chain)) continue;
        const auto affords = [&](Micros job) { return turns_.affords(chains_.size(), job); };
        std::optional<JobLabel> label = optimiser_->next(chain->state, decoding_, affords);
        if (!label) continue;
        job_ = Job::Optimise;
        job_requests_ = chains_.size();
        return label;
    }
    return std::nullopt;
}

std::optional<JobLabel> SelfDraft::pass_job() {
    auto pass = std::make_unique<Pass>();
    std::swap(pass_, pass);
    for (const auto& [request, chain] : chains_) {
        if (may_begin(*chain)) begin_chain(*chain);
        if (chain->ended || pass_->members.size() >= kVerifyRowsMax) continue;
        // Those with another skip set follow in the next pass.
        if (pass_->path && pass_->path != chain->path) continue;
        const std::optional<KvSlot> slot =
            dispatcher_.scheduler().name_ahead(request, chain->nodes.back());
        if (!slot) {
            chain->ended = true;
            continue;
        }
        add_row(chain, *slot);
    }
    if (pass_->members.empty()) return std::nullopt;
    std::size_t at = 0;
    for (std::size_t i = 0; i < pass_->rows.size(); ++i) {
        pass_->rows[i].path_slots = pass_->path_slots.data() + at;
        at += static_cast<std::size_t>(pass_->rows[i].path_count);
    }
    if (pass_->members.size() == 1) {
        const RequestState& state = *pass_->members.front().chain->state;
        pass_->cancel.watch(host_.context->cancel_word(state.request()),
                            CancelBoard::mark_of(state.request(), state.attempt()));
    }
    job_ = Job::Pass;
    account_.pass(*pass_->path, pass_->rows.size());
    return pass_label();
}

void SelfDraft::add_row(const ChainPtr& chain, KvSlot slot) {
    const RequestState& state = *chain->state;
    const TreeNode& node = *state.tree().find(chain->nodes.back());
    const DraftPath& path = planted(PlantedBug::DraftPathChanges) ? *path_ : *chain->path;
    chain->slots.push_back(slot);
    pass_->path_slots.insert(pass_->path_slots.end(), chain->slots.begin(), chain->slots.end());
    pass_->rows.push_back({.token = node.token,
                           .position = node.position,
                           .slot = slot,
                           .prefix_slots = state.slots().data(),
                           .prefix_count = chain->root,
                           .path_count = static_cast<std::int32_t>(chain->slots.size()),
                           .last = path.last,
                           .mask = path.masked ? &path.mask : nullptr});
    pass_->path = chain->path;
    Member member{
        .chain = chain,
        .at_start = chain->at_start,
        .index = chain->slots.size() - 1,
        .committed = std::span{state.text()}.first(static_cast<std::size_t>(chain->root) + 1)};
    for (const NodeId above : std::span{chain->nodes}.subspan(1))
        member.path.push_back(state.tree().find(above)->token);
    pass_->members.push_back(std::move(member));
}

JobLabel SelfDraft::pass_label() const {
    JobLabel label{.name = "draft",
                   .request = pass_->members.front().chain->state->request(),
                   .id = static_cast<std::uint32_t>(pass_->members.front().chain->root),
                   .rows = static_cast<std::uint32_t>(pass_->rows.size()),
                   .layers = static_cast<std::uint32_t>(std::lround(pass_->path->layers)),
                   .heads = static_cast<std::uint32_t>(pass_->rows.size())};
    for (const Row& row : pass_->rows) label.context = std::max(label.context, row.position + 1);
    return label;
}

RunOutcome SelfDraft::run() {
    return job_ == Job::Optimise ? optimiser_->run() : run_pass();
}

RunOutcome SelfDraft::run_pass() {
    Pass& pass = *pass_;
    const DraftPath& path = *pass.path;
    const bool drawn = drawn_with_layers();
    (void)backend_.rows_of(hidden_, pass.rows.size());
    if (path.start > 0) {
        for (Row& row : pass.rows) row.last = path.start;
        if (run_rows(drawn && path.last == path.start) == RunOutcome::Cancelled)
            return RunOutcome::Cancelled;
        keep_start();
    }
    if (path.last > path.start) {
        for (Row& row : pass.rows) {
            row.first = path.start;
            row.last = path.last;
        }
        if (run_rows(drawn) == RunOutcome::Cancelled) return RunOutcome::Cancelled;
    }
    if (!drawn) find_candidates();
    if (options_.probes) score();
    return RunOutcome::Done;
}

/// Whether the device can draw all candidates where it computes the rows: one wait less.
bool SelfDraft::drawn_with_layers() const {
    const DeviceSampler* device = backend_.device_sampler();
    return device != nullptr && candidates_wanted() <= device->candidates_max() &&
           std::all_of(pass_->members.begin(), pass_->members.end(), [&](const Member& member) {
               return device->draws(member.chain->state->spec().sampling);
           });
}

/// The rows' sub-layers; with `draw` the candidates after them as well.
RunOutcome SelfDraft::run_rows(bool draw) {
    Pass& pass = *pass_;
    const HiddenRows hidden = backend_.rows_of(hidden_, pass.rows.size());
    if (!draw) return backend_.run_layers(pass.rows, hidden, &pass.cancel);
    std::vector<DrawJob> jobs;
    for (std::size_t i = 0; i < pass.rows.size(); ++i) jobs.push_back(job_of(i));
    pass.best.resize(pass.rows.size());
    return backend_.device_sampler()->run_and_draw_candidates(
        options_.head, pass.rows, hidden, {.jobs = jobs, .hidden = true}, pass.best, &pass.cancel);
}

DrawJob SelfDraft::job_of(std::size_t member) const {
    return {&pass_->members[member].chain->state->spec().sampling, pass_->rows[member].position + 1,
            candidates_wanted()};
}

/// Keeps the residuals before path.start: verification continues from them.
void SelfDraft::keep_start() {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    for (std::size_t i = 0; i < pass_->members.size(); ++i) {
        const Member& member = pass_->members[i];
        backend_.copy(hidden_.rows.subspan(i * dim, dim),
                      member.at_start->rows.subspan(member.index * dim, dim));
    }
}

void SelfDraft::find_candidates() {
    std::vector<HeadRow> rows;
    for (std::size_t i = 0; i < pass_->rows.size(); ++i) {
        const Member& member = pass_->members[i];
        rows.push_back({.hidden = {hidden_.rows, i},
                        .seen = {.committed = member.committed, .path = member.path},
                        .job = job_of(i)});
    }
    pass_->best = candidates_.find(options_.head, rows);
}

/// The probe's score of each row's candidate.
void SelfDraft::score() {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    std::vector<float> hidden(pass_->rows.size() * dim);
    backend_.copy(hidden_.rows.first(hidden.size()), hidden);
    pass_->scores.clear();
    for (std::size_t i = 0; i < pass_->rows.size(); ++i) {
        const bool greedy = pass_->members[i].chain->state->spec().sampling.greedy();
        const Probe& probe = greedy ? options_.probes->greedy : options_.probes->sampled;
        pass_->scores.push_back(static_cast<float>(probe_score(
            std::span{hidden}.subspan(i * dim, dim), probe, backend_.config().norm_epsilon)));
    }
}

void SelfDraft::finish(RunOutcome outcome) {
    const Micros took = host_.context->now() - started_;
    const Job job = std::exchange(job_, Job::None);
    if (job == Job::Optimise) {
        account_.optimised(optimiser_->take_sublayers(), took);
        turns_.job_ended(job_requests_, took, host_.context->now());
        if (optimiser_->finish(outcome, took)) path_ = path_of(optimiser_->set());
        return show();
    }
    account_.pass_took(took);
    decoding_ += took;
    finish_pass(outcome);
}

void SelfDraft::finish_pass(RunOutcome outcome) {
    const std::unique_ptr<Pass> pass = std::move(pass_);
    for (std::size_t i = 0; i < pass->members.size(); ++i) {
        DraftChain& chain = *pass->members[i].chain;
        // Cancelled: the conductor has cancelled the attempt, and its Stop is under way.
        if (outcome == RunOutcome::Cancelled) chain.state->stop();
        if (host_.requests.gone(*chain.state)) {
            chain.ended = true;
            continue;
        }
        dispatcher_.scheduler().computed_ahead(chain.state->request(), chain.nodes.back(),
                                               static_cast<std::uint32_t>(chain.path->start),
                                               static_cast<std::uint32_t>(pass->members[i].index));
        extend(chain, pass->best[i],
               pass->scores.empty() ? std::nullopt : std::optional{pass->scores[i]});
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
    const int wanted = options_.tree ? options_.tree->candidates_at(probability) : 1;
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
    chain.reach *= own;
    const bool last =
        chain.state->finish_rule().after(best.front().token, position) != FinishReason::None;
    const ChainStop& stop = stops_.now();
    chain.ended = last || chain.drafted_tokens() >= limit(chain) ||
                  chain.candidates >= chain.round.candidates || own < stop.confidence_min ||
                  chain.reach < stop.product_min;
}

// ---- Batches

std::shared_ptr<RowMemory> SelfDraft::begun_rows(const RequestState& state) const {
    const auto found = chains_.find(state.request());
    if (found == chains_.end() || found->second->state.get() != &state) return nullptr;
    return found->second->slots.empty() ? nullptr : found->second->at_start;
}

void SelfDraft::prepare(SegmentRun& run) {
    tapped_.reset();
    const auto is_prefill = [](const RunPart& part) { return part.prefill(); };
    if (std::any_of(run.parts.begin(), run.parts.end(), is_prefill)) turns_.disturbed();
    for (const RunPart& part : run.parts) {
        const auto found = chains_.find(part.state->request());
        if (part.prefill() || found == chains_.end() || !found->second->tapped) continue;
        const auto row_floats = static_cast<std::size_t>(backend_.config().sublayers()) * run.dim();
        residuals_.resize(part.part.rows * row_floats);
        for (std::size_t i = 0; i < part.part.rows; ++i) {
            Row& row = run.job.rows[part.first + i];
            row.first = 0;
            row.stack = residuals_.data() + i * row_floats;
        }
        tapped_ = part.state;
        return;  // one request's are enough
    }
}

void SelfDraft::ran(const SegmentRun& run, Micros took) {
    decoding_ += took;
    account_.run_took(run, took);
}

void SelfDraft::verified(const VerifyPart& part) {
    if (!tapped_ || tapped_.get() != &part.state || part.result.tokens.empty()) return;
    const auto row_floats = static_cast<std::size_t>(backend_.config().sublayers()) *
                            static_cast<std::size_t>(backend_.config().dim);
    const std::size_t last = part.result.last_row;
    optimiser_->take_residuals(part.state, part.rows[last].position,
                               std::span{residuals_}.subspan(last * row_floats, row_floats));
    tapped_.reset();
}

// ---- Figures

void SelfDraft::show() {
    const SkipSearch* search = optimiser_ ? optimiser_->search() : nullptr;
    const GainWatch& watch = turns_.watch(chains_.size());
    account_.show({.drafts = watch.drafting(),
                   .gain = watch.gain(),
                   .threshold = stops_.threshold(),
                   .matchness = search != nullptr ? search->matchness() : 0.0,
                   .trials = search != nullptr ? search->trials() : 0,
                   .skipped_count = path_->skipped.count(),
                   .skipped = path_->skipped});
}

}  // namespace paceline
