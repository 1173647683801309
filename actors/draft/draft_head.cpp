#include "actors/draft/draft_head.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/device_sampler.hpp"

namespace paceline {
namespace {

DrawJob job_of(const PassHead& head) {
    return {head.sampling, head.position + 1, head.count};
}

}  // namespace

DraftHead::DraftHead(Backend& backend, const DraftHeadOptions& options)
    : backend_{backend}, options_{options}, hidden_{backend.make_rows(kHeadsAtOnce)} {
    PACE_CHECK(backend.has_head(options_.head), "a draft model without its head");
    PACE_CHECK(options_.vocab_size > 0, "a draft model of no vocabulary");
    const ModelConfig& config = backend.config();
    logits_.resize(kHeadsAtOnce * static_cast<std::size_t>(config.vocab_size));
    const int shared = options_.shared_tokens > 0 ? options_.shared_tokens : options_.vocab_size;
    const int both = std::min({config.vocab_size, options_.vocab_size, shared});
    vocab_both_ = static_cast<std::size_t>(both);
    const std::span<const TokenId> list = backend.short_list(options_.head);
    if (!list.empty() && list.back() < both) short_list_ = list;
    if (!short_list_.empty() || options_.vocab_size > config.vocab_size) {
        target_row_.resize(static_cast<std::size_t>(options_.vocab_size));
    }
}

bool DraftHead::draws_with_layers(std::span<const PassHead> heads, std::size_t rows) const {
    if (!device_draws(heads)) return false;
    // A row that is asked for twice has two jobs.
    std::vector<bool> asked(rows, false);
    return std::none_of(heads.begin(), heads.end(), [&](const PassHead& head) {
        const bool before = asked[head.row];
        asked[head.row] = true;
        return before;
    });
}

RunOutcome DraftHead::run_and_draw(std::span<const Row> rows,
                                   std::span<PassHead> heads,
                                   const CancelToken* cancel) {
    std::vector<DrawJob> jobs(rows.size());
    for (const PassHead& head : heads) jobs[head.row] = job_of(head);
    std::vector<std::vector<Candidate>> best(rows.size());
    const RunOutcome outcome = backend_.device_sampler()->run_and_draw_candidates(
        options_.head, rows, {}, {.jobs = jobs}, best, cancel);
    for (PassHead& head : heads) take_drawn(head, std::move(best[head.row]));
    return outcome;
}

void DraftHead::give_candidates(const RowMemory& hidden, std::span<PassHead> heads) {
    for (std::size_t first = 0; first < heads.size(); first += kHeadsAtOnce)
        give(hidden, heads.subspan(first, std::min(kHeadsAtOnce, heads.size() - first)));
}

/// At most kHeadsAtOnce.
void DraftHead::give(const RowMemory& hidden, std::span<PassHead> heads) {
    const std::size_t count = heads.size();
    std::vector<RowSource> states;
    for (const PassHead& head : heads) states.push_back({hidden.rows, head.row});
    const ConstHiddenRows in_order = backend_.in_order(states, hidden_);
    if (draw_candidates(heads, in_order)) return;
    const std::span<const TokenId> list = short_list_;
    const std::size_t width =
        list.empty() ? static_cast<std::size_t>(backend_.config().vocab_size) : list.size();
    const auto logits = std::span{logits_}.first(count * width);
    if (list.empty()) {
        backend_.head(options_.head, in_order, static_cast<int>(count), logits);
    } else {
        backend_.head_listed(options_.head, in_order, static_cast<int>(count), logits);
    }
    for (std::size_t i = 0; i < count; ++i) {
        PassHead& head = heads[i];
        const std::span<float> row = logits.subspan(i * width, width);
        if (head.draw_top > 0) {
            draw_siblings_of(head, row);
        } else {
            head.candidates = candidates_of(head, row);
        }
    }
}

/// Whether the candidates of these heads need nothing that only the host has.
bool DraftHead::device_draws(std::span<const PassHead> heads) const {
    // Another vocabulary than the target's, smaller or larger, needs the whole row here. A short
    // list has none but the target's tokens.
    const bool same = backend_.config().vocab_size == options_.vocab_size;
    const DeviceSampler* device = backend_.device_sampler();
    if (device == nullptr || (short_list_.empty() && !same)) return false;
    return std::all_of(heads.begin(), heads.end(), [&](const PassHead& head) {
        return head.draw_top == 0 && head.count <= device->candidates_max() &&
               device->draws(*head.sampling);
    });
}

/// What a device has drawn. It does not know which rows of the embedding are padding.
void DraftHead::take_drawn(PassHead& head, std::vector<Candidate> drawn) const {
    head.candidates = std::move(drawn);
    std::erase_if(head.candidates, [this](const Candidate& one) {
        return static_cast<std::size_t>(one.token) >= vocab_both_;
    });
}

/// The candidates of heads whose hidden states these are, where the device can draw them; false if
/// it cannot.
bool DraftHead::draw_candidates(std::span<PassHead> heads, ConstHiddenRows hidden) {
    if (!device_draws(heads)) return false;
    std::vector<DrawJob> jobs;
    for (const PassHead& head : heads) jobs.push_back(job_of(head));
    std::vector<std::vector<Candidate>> best(heads.size());
    backend_.device_sampler()->draw_candidates(options_.head, hidden, jobs, best);
    for (std::size_t i = 0; i < heads.size(); ++i) take_drawn(heads[i], std::move(best[i]));
    return true;
}

/// `logits`: of the short list, or of the model's whole vocabulary.
std::vector<Candidate> DraftHead::candidates_of(const PassHead& head, std::span<float> logits) {
    const SeenTokens seen{.committed = head.seen, .path = {}};
    const SamplingParams& params = *head.sampling;
    const Position at = head.position + 1;
    if (!short_list_.empty()) {
        return listed_candidates(logits, short_list_, target_row_, at, seen, params, head.count,
                                 scratch_);
    }
    return candidates(target_logits(logits), at, seen, params, head.count, scratch_);
}

/// A row of the target's vocabulary: tokens that are not shared cannot be drawn.
std::span<float> DraftHead::target_logits(std::span<float> logits) {
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
void DraftHead::draw_siblings_of(PassHead& head, std::span<float> logits) {
    const SamplingParams& params = *head.sampling;
    const SeenTokens seen{.committed = head.seen, .path = {}};
    head.drawn = draw_siblings(target_logits(logits), seen, params,
                               {.position = head.position + 1,
                                .parent = head.token,
                                .top = head.draw_top,
                                .count = static_cast<std::size_t>(head.count),
                                .chance = options_.chance},
                               scratch_);
    if (head.drawn == nullptr) return;
    for (const msg::TokenWeight& one : std::span{head.drawn->support}.first(head.drawn->drawn))
        head.candidates.push_back({.token = one.token, .log_prob = std::log(one.weight)});
}

}  // namespace paceline
