#include "launch/tools/skip_trials.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline {
namespace {

constexpr std::size_t kPrefillRows = 64;

std::int32_t slots_of(std::size_t tokens) {
    return pages_for(static_cast<Position>(tokens)) * kKvPageSlots;
}

}  // namespace

ExpectedGain expected_gain(double matchness, double cost, int length_max) {
    ExpectedGain best;
    double tokens = 1.0;  // of a round: the target's own, and those accepted before it
    double right = 1.0;
    for (int length = 1; length <= length_max; ++length) {
        right *= matchness;
        tokens += right;
        const double speed_up = tokens / (length * cost + 1.0);
        if (speed_up > best.speed_up) best = {.length = length, .speed_up = speed_up};
    }
    return best;
}

SkipTrials::SkipTrials(Backend& backend, SkipTrialOptions options)
    : backend_{backend}, options_{options}, candidates_{backend} {}

std::int32_t SkipTrials::slots(std::span<const std::vector<TokenId>> prompts,
                               const SkipTrialOptions& options) {
    std::int32_t all = slots_of(static_cast<std::size_t>(options.window));
    for (const std::vector<TokenId>& prompt : prompts)
        all += slots_of(prompt.size() + static_cast<std::size_t>(options.tokens));
    return all;
}

Status SkipTrials::prepare(std::span<const std::vector<TokenId>> prompts,
                           std::span<const TokenId> end_tokens) {
    PACE_CHECK(backend_.kv_slots() >= slots(prompts, options_), "a cache that is too small");
    KvSlot next = slots_of(static_cast<std::size_t>(options_.window));
    scratch_.resize(static_cast<std::size_t>(options_.window));
    std::iota(scratch_.begin(), scratch_.end(), 0);
    for (const std::vector<TokenId>& prompt : prompts) {
        Text text{.tokens = prompt, .answer = prompt.size()};
        text.slots.resize(prompt.size() + static_cast<std::size_t>(options_.tokens));
        std::iota(text.slots.begin(), text.slots.end(), next);
        next += slots_of(text.slots.size());
        std::size_t fed = 0;
        for (int i = 0; i < options_.tokens; ++i) {
            feed(text, fed, text.tokens.size());
            fed = text.tokens.size();
            const auto dim = static_cast<std::size_t>(backend_.config().dim);
            const std::size_t last = rows_.size() - 1;
            const TokenId token =
                next_token(hidden_.rows.subspan(last * dim, dim), static_cast<Position>(fed));
            text.tokens.push_back(token);
            if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) break;
        }
        compared_ += static_cast<int>(text.tokens.size() - text.answer);
        texts_.push_back(std::move(text));
    }
    if (compared_ > 0) return {};
    return Error{Errc::BadArgument, "the prompts have no answers to predict"};
}

TokenId SkipTrials::next_token(ConstHiddenRows hidden, Position position) {
    const DrawJob job{&greedy_, position, 1};
    const SeenTokens seen{};
    std::vector<Candidate> best;
    candidates_.find(HeadId::Final, hidden, {&seen, 1}, {&job, 1}, {&best, 1});
    return best.empty() ? 0 : best.front().token;
}

/// Tokens [begin, end) through the whole model, into the cache.
void SkipTrials::feed(const Text& text, std::size_t begin, std::size_t end) {
    for (std::size_t first = begin; first < end; first += kPrefillRows) {
        rows_.clear();
        for (std::size_t at = first; at < std::min(end, first + kPrefillRows); ++at) {
            rows_.push_back({.token = text.tokens[at],
                             .position = static_cast<Position>(at),
                             .slot = text.slots[at],
                             .prefix_slots = text.slots.data(),
                             .prefix_count = static_cast<std::int32_t>(at) + 1,
                             .last = backend_.config().sublayers()});
        }
        (void)backend_.run_layers(rows_, backend_.rows_of(hidden_, rows_.size()), nullptr);
    }
}

double SkipTrials::matchness(const SkipSet& set) {
    const SublayerMask mask = set.mask();
    int right = 0;
    for (const Text& text : texts_) {
        const auto window = static_cast<std::size_t>(options_.window);
        for (std::size_t begin = text.answer - 1; begin + 1 < text.tokens.size(); begin += window)
            right += right_in(text, begin, mask);
    }
    return static_cast<double>(right) / compared_;
}

/// Tokens that the window from `begin` on predicts: row i of it the token after it.
int SkipTrials::right_in(const Text& text, std::size_t begin, const SublayerMask& mask) {
    const std::size_t end =
        std::min(begin + static_cast<std::size_t>(options_.window), text.tokens.size() - 1);
    rows_.clear();
    for (std::size_t at = begin; at < end; ++at) {
        rows_.push_back({.token = text.tokens[at],
                         .position = static_cast<Position>(at),
                         .slot = scratch_[at - begin],
                         .prefix_slots = text.slots.data(),
                         .prefix_count = static_cast<std::int32_t>(begin),
                         .path_slots = scratch_.data(),
                         .path_count = static_cast<std::int32_t>(at - begin) + 1,
                         .last = backend_.config().sublayers(),
                         .mask = &mask});
    }
    (void)backend_.run_layers(rows_, backend_.rows_of(hidden_, rows_.size()), nullptr);
    int right = 0;
    for (std::size_t first = 0; first < rows_.size(); first += HeadCandidates::kRows) {
        const std::size_t count = std::min(HeadCandidates::kRows, rows_.size() - first);
        std::vector<RowSource> sources;
        std::vector<DrawJob> jobs;
        const std::vector<SeenTokens> seen(count);
        std::vector<std::vector<Candidate>> best(count);
        for (std::size_t i = first; i < first + count; ++i) {
            sources.push_back({hidden_.rows, i});
            jobs.push_back({&greedy_, rows_[i].position + 1, 1});
        }
        candidates_.find(HeadId::Final, backend_.in_order(sources, head_hidden_), seen, jobs, best);
        for (std::size_t i = 0; i < count; ++i) {
            const TokenId next = text.tokens[begin + first + i + 1];
            right += !best[i].empty() && best[i].front().token == next ? 1 : 0;
        }
    }
    return right;
}

double SkipTrials::cost(const SkipSet& set) const {
    const ModelConfig& c = backend_.config();
    const double attention = 2.0 * c.dim * (c.q_dim() + c.kv_dim());
    const double mlp = 3.0 * c.dim * c.ffn_dim;
    const double head = static_cast<double>(c.dim) * c.vocab_size;
    double kept = head;
    for (int s = 0; s < c.sublayers(); ++s) {
        if (!set.skips(s)) kept += s % 2 == 0 ? attention : mlp;
    }
    return kept / (c.layers * (attention + mlp) + head);
}

}  // namespace paceline
