#include "actors/draft/draft_model.hpp"

#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

DraftModel::DraftModel(Backend& backend, DraftModelOptions options)
    : backend_{backend},
      options_{std::move(options)},
      mask_{options_.skip.mask()},
      cache_{backend,
             {.read_again = options_.whole_text || options_.target_features,
              .waits = options_.target_features}},
      features_{backend, options_.target_features},
      head_{backend,
            {.head = options_.head,
             .vocab_size = options_.vocab_size,
             .shared_tokens = options_.shared_tokens,
             .chance = options_.chance}},
      rows_{cache_, options_.rows_max} {
    PACE_CHECK(backend.first_layer() == 0, "a draft model starts at layer 0");
    PACE_CHECK(options_.rows_max > 0, "a draft model of no rows");
    hidden_ = backend.make_rows(options_.rows_max);
}

bool DraftModel::prepare(std::span<const DraftExpansion> expansions) {
    PACE_CHECK(rows_.empty(), "a pass prepared while another one runs");
    for (const DraftExpansion& expansion : expansions) {
        if (rows_.full()) break;
        add(expansion);
    }
    features_.place(rows_.pass_rows());
    const SublayerMask* const skips = options_.skip.count() > 0 ? &mask_ : nullptr;
    rows_.build(2 * backend_.last_layer(),
                {.text = options_.whole_text ? nullptr : skips, .candidates = skips});
    return !rows_.empty();
}

void DraftModel::add(const DraftExpansion& expansion) {
    DraftText& text = *expansion.text;
    if (!text.cache) return;
    cache_.free_dropped(text);
    if (!cache_.knows(text)) return;
    if (const auto last = features_.not_worth_reading(text)) cache_.begin_behind(text, *last);
    if (!rows_.catch_up(expansion.text)) return;
    for (const DraftNodeId id : expansion.expand) {
        if (!rows_.add_node(expansion, id)) return;
    }
}

RunOutcome DraftModel::run(const CancelToken* cancel) {
    const std::span<const Row> rows = rows_.rows();
    if (head_.draws_with_layers(rows_.heads(), rows.size()))
        return head_.run_and_draw(rows, rows_.heads(), cancel);
    const HiddenRows hidden = backend_.rows_of(hidden_, rows.size());
    if (backend_.run_layers(rows, hidden, cancel) == RunOutcome::Cancelled) {
        return RunOutcome::Cancelled;
    }
    head_.give_candidates(hidden_, rows_.heads());
    return RunOutcome::Done;
}

DraftPassResult DraftModel::take(RunOutcome outcome) {
    PACE_CHECK(!rows_.empty(), "a pass taken that was not prepared");
    features_.finish(outcome);
    return rows_.finish(outcome);
}

// ---- Keys and values of another process

bool DraftModel::write_kv(DraftText& text, DraftNodeId id, ConstKvBytes bytes) {
    const DraftNode* node = text.tree.find(id);
    if (!text.cache || node == nullptr || node->slot != kNoSlot || rows_.has(text, id) ||
        !cache_.can_compute(text, *node)) {
        return false;
    }
    const DraftNode* parent = text.tree.find(node->parent);
    const bool in_order =
        parent != nullptr ? parent->slot != kNoSlot : text.cache->cached() == node->position;
    if (!in_order || text.cache->checked < text.tokens.size()) return false;
    const Result<KvSlot> slot = text.cache->slots.allocate(node->position - text.cache->begin);
    if (!slot) return false;
    backend_.write_kv(slot.value(), bytes);
    text.tree.set_slot(id, slot.value());
    return true;
}

bool DraftModel::write_kv_at(DraftText& text, Position position, ConstKvBytes bytes) {
    if (!text.cache || !rows_.empty() || text.cache->read_again) return false;
    cache_.free_dropped(text);
    DraftText::Cache& cache = *text.cache;
    if (position != cache.cached() || position >= text.tree.root().position ||
        position - cache.begin >= cache.positions) {
        return false;
    }
    const Result<KvSlot> slot = cache.slots.allocate(position - cache.begin);
    if (!slot) return false;
    cache.slots.commit(slot.value());
    backend_.write_kv(slot.value(), bytes);
    return true;
}

// ---- Skipped sub-layers

void DraftModel::set_skip(const SkipSet& skip) {
    PACE_CHECK(rows_.empty() && options_.whole_text,
               "another set in the middle, or for a text too");
    options_.skip = skip;
    mask_ = skip.mask();
}

std::uint32_t DraftModel::layers() const {
    int sublayers = 0;
    for (int s = 0; s < 2 * backend_.last_layer(); ++s) sublayers += mask_.skips(s) ? 0 : 1;
    return static_cast<std::uint32_t>((sublayers + 1) / 2);
}

}  // namespace paceline
