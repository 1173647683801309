#include "launch/cli/skip_trials.hpp"

#include <algorithm>
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
    : backend_{backend}, options_{options}, candidates_{backend}, match_{backend, HeadId::Final} {}

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
    const HeadRow row{.hidden = {hidden, 0}, .job = {&greedy_, position, 1}};
    const std::vector<Candidate> best = candidates_.find(HeadId::Final, {&row, 1}).front();
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
        const auto end = static_cast<Position>(text.tokens.size()) - 1;
        for (auto begin = static_cast<Position>(text.answer) - 1; begin < end;
             begin += options_.window) {
            right += match_
                         .right({.text = {text.tokens, text.slots},
                                 .begin = begin,
                                 .count = std::min(options_.window, end - begin),
                                 .sampling = &greedy_},
                                {&mask, 1}, scratch_)
                         .front();
        }
    }
    return static_cast<double>(right) / compared_;
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
