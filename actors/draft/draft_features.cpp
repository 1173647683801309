#include "actors/draft/draft_features.hpp"

namespace paceline {
namespace {

constexpr Position kUnknownRowsMax = 64;  // without a feature, read before the first candidate
static_assert(kUnknownRowsMax >= DraftCache::kEnoughText, "or the text behind them is not served");

}  // namespace

DraftFeatures::DraftFeatures(Backend& backend, bool expected)
    : backend_{backend}, slots_{backend.feature_slots()}, expected_{expected} {}

bool DraftFeatures::receive(DraftText& text,
                            Position first,
                            ConstHiddenRows rows,
                            std::size_t width) {
    if (slots_ == nullptr) return expected_;  // a simulated model has no use
    if (width != slots_->width() || rows.size() % width != 0) return false;
    if (!text.cache) return true;
    auto& features = text.cache->features;
    if (rows.on_device()) {  // at once: a row is too little for a wait
        copied_.resize(rows.size());
        backend_.copy(rows, copied_);
        rows = ConstHiddenRows{std::span<const float>{copied_}};
    }
    for (std::size_t row = 0; row < rows.size() / width; ++row) {
        const Position at = first + static_cast<Position>(row);
        if (at < 0 || at >= text.cache->positions) continue;
        if (!features.contains(at) && kept_count() >= kFeaturesKeptMax) {
            if (features.empty() || features.begin()->first > at) continue;
            features.erase(features.begin());  // the draft's own output takes its place
        }
        KeptFeature& kept = features[at];
        kept.counted = counted_;
        const std::span<const float> states = rows.subspan(row * width, width).host();
        kept.states.assign(states.begin(), states.end());
    }
    return true;
}

/// A row behind one without a feature needs that one's output, so such rows run one after the
/// other. They are many at a draft that was restarted, and behind a prefix that the target alone
/// has cached.
std::optional<Position> DraftFeatures::not_worth_reading(const DraftText& text) const {
    if (slots_ == nullptr || !expected_) return std::nullopt;
    const DraftText::Cache& cache = *text.cache;
    Position unknown = 0;
    for (Position at = text.tree.root().position - 1; at >= cache.cached(); --at) {
        if (!cache.features.contains(at) && ++unknown > kUnknownRowsMax) return at;
    }
    return std::nullopt;
}

void DraftFeatures::place(std::span<const PassRow> rows) {
    if (slots_ == nullptr) return;
    for (const PassRow& row : rows) {
        if (row.allocated) slots_->forget(row.slot);
    }
    const DraftText* last = nullptr;
    for (const PassRow& row : rows) {
        if (row.text.get() != last) place(row.text);
        last = row.text.get();
    }
}

void DraftFeatures::place(const std::shared_ptr<DraftText>& text) {
    const DraftText::Cache& cache = *text->cache;
    const std::vector<KvSlot>& slots = cache.slots.committed();
    for (const auto& [position, kept] : cache.features) {
        if (position >= cache.cached()) return;
        placed_.emplace_back(text, position);
        if (position < cache.begin) continue;
        slots_->give(slots[static_cast<std::size_t>(position - cache.begin)], kept.states);
    }
}

void DraftFeatures::finish(RunOutcome outcome) {
    if (outcome == RunOutcome::Done) {
        for (const auto& [text, position] : placed_) text->cache->features.erase(position);
    }
    placed_.clear();
}

}  // namespace paceline
