#include "actors/self_draft/draft_pass.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ipc/base/limits.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "model/device_sampler.hpp"

namespace paceline {

// ---- Its rows

bool DraftPass::takes(const DraftChain& chain) const {
    return members_.size() < kVerifyRowsMax && (!path_ || path_ == chain.path);
}

void DraftPass::add(const ChainPtr& chain, KvSlot slot, const DraftPath& path) {
    const RequestState& state = *chain->state;
    const TreeNode& node = *state.tree().find(chain->nodes.back());
    chain->slots.push_back(slot);
    path_slots_.insert(path_slots_.end(), chain->slots.begin(), chain->slots.end());
    rows_.push_back({.token = node.token,
                     .position = node.position,
                     .slot = slot,
                     .prefix_slots = state.slots().data(),
                     .prefix_count = chain->root,
                     .path_count = static_cast<std::int32_t>(chain->slots.size()),
                     .last = path.last,
                     .mask = path.masked ? &path.mask : nullptr});
    path_ = chain->path;
    Member member{
        .chain = chain,
        .at_start = chain->at_start,
        .index = chain->slots.size() - 1,
        .committed = std::span{state.text()}.first(static_cast<std::size_t>(chain->root) + 1)};
    for (const NodeId above : std::span{chain->nodes}.subspan(1))
        member.path.push_back(state.tree().find(above)->token);
    members_.push_back(std::move(member));
}

void DraftPass::prepare(StageContext& context) {
    std::size_t at = 0;
    for (Row& row : rows_) {
        row.path_slots = path_slots_.data() + at;
        at += static_cast<std::size_t>(row.path_count);
    }
    if (members_.size() != 1) return;
    const RequestState& state = *members_.front().chain->state;
    cancel_.watch(context.cancel_word(state.request()),
                  CancelBoard::mark_of(state.request(), state.attempt()));
}

JobLabel DraftPass::label() const {
    JobLabel label{.name = "draft",
                   .request = members_.front().chain->state->request(),
                   .id = static_cast<std::uint32_t>(members_.front().chain->root),
                   .rows = static_cast<std::uint32_t>(rows_.size()),
                   .layers = static_cast<std::uint32_t>(std::lround(path_->layers)),
                   .heads = static_cast<std::uint32_t>(rows_.size())};
    for (const Row& row : rows_) label.context = std::max(label.context, row.position + 1);
    return label;
}

std::optional<float> DraftPass::score(std::size_t member) const {
    return scores_.empty() ? std::nullopt : std::optional{scores_[member]};
}

// ---- The job

RunOutcome DraftPass::run() {
    const bool drawn = drawn_with_layers();
    (void)tools_.backend.rows_of(tools_.hidden, rows_.size());
    if (path_->start > 0) {
        for (Row& row : rows_) row.last = path_->start;
        if (run_rows(drawn && path_->last == path_->start) == RunOutcome::Cancelled)
            return RunOutcome::Cancelled;
        keep_start();
    }
    if (tools_.adapter &&
        tools_.adapter->run(rows_, tools_.backend.rows_of(tools_.hidden, rows_.size()), &cancel_) ==
            RunOutcome::Cancelled)
        return RunOutcome::Cancelled;
    if (path_->last > path_->start) {
        for (Row& row : rows_) {
            row.first = path_->start;
            row.last = path_->last;
        }
        if (run_rows(drawn) == RunOutcome::Cancelled) return RunOutcome::Cancelled;
    }
    if (!drawn) find_candidates();
    if (tools_.options.probes) find_scores();
    return RunOutcome::Done;
}

/// Whether the device can draw all candidates where it computes the rows: one wait less.
bool DraftPass::drawn_with_layers() const {
    const DeviceSampler* device = tools_.backend.device_sampler();
    if (tools_.adapter) return false;  // it comes in between
    return device != nullptr && candidates_wanted() <= device->candidates_max() &&
           std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
               return device->draws(member.chain->state->spec().sampling);
           });
}

/// The rows' sub-layers; with `draw` the candidates after them as well.
RunOutcome DraftPass::run_rows(bool draw) {
    const HiddenRows hidden = tools_.backend.rows_of(tools_.hidden, rows_.size());
    if (!draw) return tools_.backend.run_layers(rows_, hidden, &cancel_);
    std::vector<DrawJob> jobs;
    for (std::size_t i = 0; i < rows_.size(); ++i) jobs.push_back(job_of(i));
    best_.resize(rows_.size());
    return tools_.backend.device_sampler()->run_and_draw_candidates(
        tools_.options.head, rows_, hidden, {.jobs = jobs, .hidden = true}, best_, &cancel_);
}

int DraftPass::candidates_wanted() const {
    return tools_.options.tree ? tools_.options.tree->most() : 1;
}

DrawJob DraftPass::job_of(std::size_t member) const {
    return {&members_[member].chain->state->spec().sampling, rows_[member].position + 1,
            candidates_wanted()};
}

/// Keeps the residuals before DraftPath::start: verification continues from them.
void DraftPass::keep_start() {
    const auto dim = static_cast<std::size_t>(tools_.backend.config().dim);
    for (std::size_t i = 0; i < members_.size(); ++i) {
        const Member& member = members_[i];
        tools_.backend.copy(tools_.hidden.rows.subspan(i * dim, dim),
                            member.at_start->rows.subspan(member.index * dim, dim));
    }
}

/// What the head reads: states after the last sub-layer, or what the adapter made of them.
ConstHiddenRows DraftPass::head_rows() const {
    return tools_.adapter ? tools_.adapter->out() : ConstHiddenRows{tools_.hidden.rows};
}

void DraftPass::find_candidates() {
    std::vector<HeadRow> rows;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const Member& member = members_[i];
        rows.push_back({.hidden = {head_rows(), i},
                        .seen = {.committed = member.committed, .path = member.path},
                        .job = job_of(i)});
    }
    best_ = tools_.candidates.find(tools_.options.head, rows);
}

/// The probe's score of each row's candidate.
void DraftPass::find_scores() {
    const ModelConfig& config = tools_.backend.config();
    const auto dim = static_cast<std::size_t>(config.dim);
    std::vector<float> hidden(rows_.size() * dim);
    tools_.backend.copy(tools_.hidden.rows.first(hidden.size()), hidden);
    scores_.clear();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const bool greedy = members_[i].chain->state->spec().sampling.greedy();
        const Probe& probe =
            greedy ? tools_.options.probes->greedy : tools_.options.probes->sampled;
        scores_.push_back(static_cast<float>(
            probe_score(std::span{hidden}.subspan(i * dim, dim), probe, config.norm_epsilon)));
    }
}

}  // namespace paceline
