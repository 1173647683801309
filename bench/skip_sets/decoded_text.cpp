#include "bench/skip_sets/decoded_text.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "actors/self_draft/scratch_rows.hpp"
#include "ipc/base/check.hpp"

namespace paceline::skip_sets {
namespace {

// Rows whose logits are in memory at a time.
constexpr std::size_t kHeadRows = 8;

std::size_t winner(std::span<const float> logits) {
    return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

/// Calls use(row, its logits) for each residual.
template <class Use>
void for_each_logits(Backend& backend, std::span<const float> hidden, const Use& use) {
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    const auto vocab = static_cast<std::size_t>(backend.config().vocab_size);
    std::vector<float> logits(kHeadRows * vocab);
    const std::size_t all = hidden.size() / dim;
    for (std::size_t begin = 0; begin < all; begin += kHeadRows) {
        const std::size_t count = std::min(kHeadRows, all - begin);
        backend.head(HeadId::Final, hidden.subspan(begin * dim, count * dim),
                     static_cast<int>(count), std::span{logits}.first(count * vocab));
        for (std::size_t i = 0; i < count; ++i)
            use(begin + i, std::span<const float>{logits}.subspan(i * vocab, vocab));
    }
}

}  // namespace

DecodedText::DecodedText(Backend& backend,
                         std::vector<TokenId> prompt,
                         int count,
                         std::span<const TokenId> ends,
                         int text_max)
    : backend_{backend},
      tokens_{std::move(prompt)},
      first_{static_cast<Position>(tokens_.size()) - 1},
      slots_(static_cast<std::size_t>(text_max)),
      scratch_(static_cast<std::size_t>(backend.kv_slots() - text_max)) {
    PACE_CHECK(!tokens_.empty() && static_cast<int>(tokens_.size()) + count <= text_max,
               "a text longer than its slots");
    std::iota(slots_.begin(), slots_.end(), 0);
    std::iota(scratch_.begin(), scratch_.end(), text_max);
    std::vector<Row> rows;
    for (Position p = 0; p < first_; ++p) rows.push_back(row(p));
    std::vector<float> hidden(std::max<std::size_t>(rows.size(), 1) * dim());
    if (!rows.empty()) run(rows, std::span{hidden}.first(rows.size() * dim()));
    const auto layers = static_cast<std::size_t>(backend_.config().layers);
    std::vector<float> residuals(2 * layers * dim());
    hidden.resize(dim());
    for (int i = 0; i < count; ++i) {
        Row newest = row(static_cast<Position>(tokens_.size()) - 1);
        newest.stack = residuals.data();
        run({&newest, 1}, hidden);
        stacks_.resize(stacks_.size() + dim(), 0.0F);
        for (std::size_t layer = 0; layer < layers; ++layer) {
            const auto after = std::span{residuals}.subspan((2 * layer + 1) * dim(), dim());
            stacks_.insert(stacks_.end(), after.begin(), after.end());
        }
        tokens_.push_back(likeliest(hidden).front());
        if (std::find(ends.begin(), ends.end(), tokens_.back()) != ends.end()) break;
    }
}

std::size_t DecodedText::dim() const {
    return static_cast<std::size_t>(backend_.config().dim);
}

Row DecodedText::row(Position position) const {
    return {.token = tokens_[static_cast<std::size_t>(position)],
            .position = position,
            .slot = slots_[static_cast<std::size_t>(position)],
            .prefix_slots = slots_.data(),
            .prefix_count = position + 1,
            .last = backend_.config().sublayers()};
}

void DecodedText::run(std::span<const Row> rows, std::span<float> hidden) {
    PACE_CHECK(backend_.run_layers(rows, hidden, nullptr) == RunOutcome::Done,
               "a study is not cancelled");
}

std::span<const float> DecodedText::stack(Position position) const {
    const std::size_t size = (static_cast<std::size_t>(backend_.config().layers) + 1) * dim();
    return std::span{stacks_}.subspan(static_cast<std::size_t>(position - first_) * size, size);
}

std::vector<float> DecodedText::without(Position position, std::span<const SublayerMask> masks) {
    PACE_CHECK(masks.size() <= scratch_.size(), "more masks than scratch slots");
    std::vector<Row> rows;
    for (std::size_t i = 0; i < masks.size(); ++i) {
        Row drafted = row(position);
        drafted.slot = scratch_[i];
        drafted.prefix_count = position;
        drafted.path_slots = &scratch_[i];
        drafted.path_count = 1;
        drafted.mask = &masks[i];
        rows.push_back(drafted);
    }
    std::vector<float> hidden(masks.size() * dim());
    run(rows, hidden);
    return hidden;
}

void DecodedText::run_layer(Position position, int layer, std::span<float> states) {
    PACE_CHECK(
        run_one_layer(backend_, layer, slots_, position, scratch_, states) == RunOutcome::Done,
        "a study is not cancelled");
}

std::vector<float> DecodedText::window(Position begin, int rows, const SublayerMask& mask) {
    std::vector<Row> drafted;
    add_window(drafted, {tokens_, slots_}, begin,
               std::span{scratch_}.first(static_cast<std::size_t>(rows)), mask, backend_.config());
    std::vector<float> hidden(drafted.size() * dim());
    run(drafted, hidden);
    return hidden;
}

std::vector<int> DecodedText::ranks(Position begin, std::span<const float> hidden) {
    std::vector<int> ranks;
    for_each_logits(backend_, hidden, [&](std::size_t i, std::span<const float> logits) {
        const TokenId next = tokens_[static_cast<std::size_t>(begin) + i + 1];
        const float own = logits[static_cast<std::size_t>(next)];
        ranks.push_back(static_cast<int>(
            std::count_if(logits.begin(), logits.end(), [&](float each) { return each > own; })));
    });
    return ranks;
}

std::vector<TokenId> DecodedText::likeliest(std::span<const float> hidden) {
    std::vector<TokenId> tokens;
    for_each_logits(backend_, hidden, [&](std::size_t, std::span<const float> logits) {
        tokens.push_back(static_cast<TokenId>(winner(logits)));
    });
    return tokens;
}

}  // namespace paceline::skip_sets
