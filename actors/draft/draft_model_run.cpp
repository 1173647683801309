// The job of DraftModel: the layers of a pass, and the candidates from its heads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "actors/draft/draft_model.hpp"
#include "actors/self_draft/scratch_rows.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

RunOutcome DraftModel::run(const CancelToken* cancel) {
    if (drawn_with_layers()) return run_and_draw(cancel);
    const HiddenRows hidden = backend_.rows_of(hidden_, rows_.size());
    if (backend_.run_layers(rows_, hidden, cancel) == RunOutcome::Cancelled) {
        return RunOutcome::Cancelled;
    }
    for (std::size_t first = 0; first < heads_.size(); first += kHeadsAtOnce) {
        give_candidates(first, std::min(kHeadsAtOnce, heads_.size() - first));
    }
    return RunOutcome::Done;
}

/// Whether the device can draw all candidates where it computes the rows: a pass is one wait then.
bool DraftModel::drawn_with_layers() const {
    if (!device_draws(heads_)) return false;
    // A row that is asked for twice has two jobs.
    std::vector<bool> asked(rows_.size(), false);
    return std::none_of(heads_.begin(), heads_.end(), [&](const PassHead& head) {
        const bool before = asked[head.row];
        asked[head.row] = true;
        return before;
    });
}

RunOutcome DraftModel::run_and_draw(const CancelToken* cancel) {
    std::vector<DrawJob> jobs(rows_.size());
    for (const PassHead& head : heads_) jobs[head.row] = job_of(head);
    std::vector<std::vector<Candidate>> best(rows_.size());
    const RunOutcome outcome = backend_.device_sampler()->run_and_draw_candidates(
        options_.head, rows_, {}, {.jobs = jobs}, best, cancel);
    for (PassHead& head : heads_) take_drawn(head, std::move(best[head.row]));
    return outcome;
}

void DraftModel::give_candidates(std::size_t first, std::size_t count) {
    std::vector<RowSource> states;
    for (const PassHead& head : std::span{heads_}.subspan(first, count))
        states.push_back({hidden_.rows, head.row});
    const ConstHiddenRows hidden = backend_.in_order(states, head_hidden_);
    if (draw_candidates(first, count, hidden)) return;
    const std::span<const TokenId> list = short_list_;
    const std::size_t width =
        list.empty() ? static_cast<std::size_t>(backend_.config().vocab_size) : list.size();
    const auto logits = std::span{logits_}.first(count * width);
    if (list.empty()) {
        backend_.head(options_.head, hidden, static_cast<int>(count), logits);
    } else {
        backend_.head_listed(options_.head, hidden, static_cast<int>(count), logits);
    }
    for (std::size_t i = 0; i < count; ++i) {
        PassHead& head = heads_[first + i];
        const std::span<float> row = logits.subspan(i * width, width);
        if (head.draw_top > 0) {
            draw_siblings_of(head, row);
        } else {
            head.candidates = candidates_of(head, row);
        }
    }
}

DrawJob DraftModel::job_of(const PassHead& head) const {
    const PassRow& row = pass_[head.row];
    return {&row.text->sampling, row.position + 1, head.count};
}

/// Whether the candidates of these heads need nothing that only the host has.
bool DraftModel::device_draws(std::span<const PassHead> heads) const {
    // Another vocabulary than the target's, smaller or larger, needs the whole row here. A short
    // list has none but the target's tokens.
    const bool same = backend_.config().vocab_size == options_.vocab_size;
    const DeviceSampler* device = backend_.device_sampler();
    if (device == nullptr || (short_list_.empty() && !same)) return false;
    return std::all_of(heads.begin(), heads.end(), [&](const PassHead& head) {
        return head.draw_top == 0 && head.count <= device->candidates_max() &&
               device->draws(pass_[head.row].text->sampling);
    });
}

/// What a device has drawn. It does not know which rows of the embedding are padding.
void DraftModel::take_drawn(PassHead& head, std::vector<Candidate> drawn) const {
    head.candidates = std::move(drawn);
    std::erase_if(head.candidates, [this](const Candidate& one) {
        return static_cast<std::size_t>(one.token) >= vocab_both_;
    });
}

/// The candidates of `count` heads from `first` on, whose hidden states these are, where the device
/// can draw them; false if it cannot.
bool DraftModel::draw_candidates(std::size_t first, std::size_t count, ConstHiddenRows hidden) {
    const auto heads = std::span{heads_}.subspan(first, count);
    if (!device_draws(heads)) return false;
    std::vector<DrawJob> jobs;
    for (const PassHead& head : heads) jobs.push_back(job_of(head));
    std::vector<std::vector<Candidate>> best(count);
    backend_.device_sampler()->draw_candidates(options_.head, hidden, jobs, best);
    for (std::size_t i = 0; i < count; ++i) take_drawn(heads[i], std::move(best[i]));
    return true;
}

/// `logits`: of the short list, or of the model's whole vocabulary.
std::vector<Candidate> DraftModel::candidates_of(const PassHead& head, std::span<float> logits) {
    const PassRow& row = pass_[head.row];
    const SeenTokens seen{.committed = head.seen, .path = {}};
    const SamplingParams& params = row.text->sampling;
    const Position at = row.position + 1;
    if (!short_list_.empty()) {
        return listed_candidates(logits, short_list_, target_row_, at, seen, params, head.count,
                                 scratch_);
    }
    return candidates(target_logits(logits), at, seen, params, head.count, scratch_);
}

/// A row of the target's vocabulary: tokens that are not shared cannot be drawn.
std::span<float> DraftModel::target_logits(std::span<float> logits) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    if (!short_list_.empty()) {
        std::fill(target_row_.begin(), target_row_.end(), kNever);
        for (std::size_t i = 0; i < short_list_.size(); ++i)
            target_row_[static_cast<std::size_t>(short_list_[i])] = logits[i];
        return target_row_;
    }
    if (!target_row_.empty()) {
        std::copy_n(logits.begin(), vocab_both_, target_row_.begin());
        logits = target_row_;
    }
    logits = logits.first(static_cast<std::size_t>(options_.vocab_size));
    std::fill(logits.begin() + static_cast<std::ptrdiff_t>(vocab_both_), logits.end(), kNever);
    return logits;
}

/// log_prob is that of q, as far as the list goes: it orders candidates and ends chains.
void DraftModel::draw_siblings_of(PassHead& head, std::span<float> logits) {
    const PassRow& row = pass_[head.row];
    const SamplingParams& params = row.text->sampling;
    const SeenTokens seen{.committed = head.seen, .path = {}};
    head.drawn = draw_siblings(target_logits(logits), seen, params,
                               {.position = row.position + 1,
                                .parent = rows_[head.row].token,
                                .top = head.draw_top,
                                .count = static_cast<std::size_t>(head.count),
                                .chance = options_.chance},
                               scratch_);
    if (head.drawn == nullptr) return;
    for (const msg::TokenWeight& one : std::span{head.drawn->support}.first(head.drawn->drawn))
        head.candidates.push_back({.token = one.token, .log_prob = std::log(one.weight)});
}

// ---- One layer alone

void DraftModel::reserve_scratch(std::int32_t rows) {
    scratch_slots_.emplace(RequestSlots::make(pool_->pages, rows).value());
    scratch_assigned_ = allocate_scratch(*scratch_slots_, rows);
}

bool DraftModel::has_read(const DraftText& text, Position position) const {
    return text.cache && text.cache->begin == 0 && text.cache->cached() >= position &&
           position < static_cast<Position>(text.tokens.size());
}

RunOutcome DraftModel::run_layer(const DraftText& text,
                                 Position position,
                                 int layer,
                                 std::span<float> states) {
    return run_one_layer(backend_, layer, text.cache->slots.committed(), position,
                         scratch_assigned_, states);
}

void DraftModel::set_skip(const SkipSet& skip) {
    PACE_CHECK(!running_ && options_.whole_text, "another set in the middle, or for a text too");
    options_.skip = skip;
    mask_ = skip.mask();
}

}  // namespace paceline
