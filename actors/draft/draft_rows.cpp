#include "actors/draft/draft_rows.hpp"

#include <algorithm>
#include <utility>

namespace paceline {
namespace {

/// The tokens that penalties of the token after `path` may look at.
std::vector<TokenId> seen_by(const DraftText& text, std::span<const DraftNode* const> path) {
    if (!text.sampling.has_penalties()) return {};
    std::vector<TokenId> seen = text.tokens;
    for (const DraftNode* node : path.subspan(1)) seen.push_back(node->token);
    return seen;
}

}  // namespace

DraftRows::DraftRows(const DraftCache& cache, std::uint32_t rows_max)
    : cache_{cache}, rows_max_{rows_max} {}

bool DraftRows::catch_up(const std::shared_ptr<DraftText>& text) {
    DraftText::Cache& cache = *text->cache;
    const Position root = text->tree.root().position;
    while (cache.cached() < root && room() > 0) {
        const Position at = cache.cached() - cache.begin;
        const Result<KvSlot> slot = cache.slots.allocate(at);
        if (!slot) {
            cache.short_at = cache.pool->pages.releases();
            return false;
        }
        cache.slots.commit(slot.value());
        pass_.push_back(
            {.text = text, .position = cache.begin + at, .slot = slot.value(), .allocated = true});
    }
    return cache.cached() == root && room() > 0;
}

bool DraftRows::add_node(const DraftExpansion& expansion, DraftNodeId id) {
    DraftText& text = *expansion.text;
    if (text.tree.find(id) == nullptr) return true;
    const std::vector<const DraftNode*> path = text.tree.path(id);
    std::vector<const DraftNode*> missing;
    for (const DraftNode* node : path) {
        if (!cache_.can_compute(text, *node)) {
            text.tree.close(id);
            return true;
        }
        const bool needed = node->id == id || node->slot == kNoSlot;
        if (needed && row_of(text, node->id) == nullptr) missing.push_back(node);
    }
    if (missing.size() > room()) return false;
    for (const DraftNode* node : missing) {
        PassRow row{.text = expansion.text,
                    .node = node->id,
                    .position = node->position,
                    .slot = node->slot};
        if (row.slot == kNoSlot) {
            const Result<KvSlot> slot =
                text.cache->slots.allocate(node->position - text.cache->begin);
            if (!slot) {
                text.tree.close(id);  // the cache is full; its trunk still finds its homes
                return true;
            }
            row.slot = slot.value();
            row.allocated = true;
        }
        pass_.push_back(std::move(row));
        PassRow& added = pass_.back();
        added.path = paths_.size();
        for (const DraftNode* step : path) {
            const PassRow* in_pass = row_of(text, step->id);
            paths_.push_back(in_pass != nullptr ? in_pass->slot : step->slot);
            if (step == node) break;
        }
        added.path_size = paths_.size() - added.path;
    }
    const DraftNode& wanted = *text.tree.find(id);
    heads_.push_back({.sampling = &text.sampling,
                      .row = static_cast<std::size_t>(row_of(text, id) - pass_.data()),
                      .position = wanted.position,
                      .token = wanted.token,
                      .count = expansion.candidates,
                      .draw_top = wanted.drawn ? 0 : text.draw_top,
                      .seen = seen_by(text, path)});
    return true;
}

void DraftRows::build(std::int32_t sublayers, const PassMasks& masks) {
    rows_.clear();
    for (const PassRow& row : pass_) {
        const DraftText::Cache& cache = *row.text->cache;
        const Position at = row.position - cache.begin;
        const bool of_text = row.node == kNoDraftNode;
        const TokenId token = of_text ? row.text->tokens[static_cast<std::size_t>(row.position)]
                                      : row.text->tree.find(row.node)->token;
        rows_.push_back({.token = token,
                         .position = at,
                         .slot = row.slot,
                         .prefix_slots = cache.slots.committed().data(),
                         .prefix_count = at + 1 - static_cast<std::int32_t>(row.path_size),
                         .path_slots = paths_.data() + row.path,
                         .path_count = static_cast<std::int32_t>(row.path_size),
                         .last = sublayers,
                         .mask = of_text ? masks.text : masks.candidates});
    }
}

DraftPassResult DraftRows::finish(RunOutcome outcome) {
    DraftPassResult result;
    if (outcome == RunOutcome::Cancelled) {
        undo();
    } else {
        for (const PassRow& row : pass_) {
            if (row.node != kNoDraftNode) place(row, result);
        }
        for (PassHead& head : heads_) {
            const PassRow& row = pass_[head.row];
            result.candidates.push_back(
                {row.text, row.node, std::move(head.candidates), std::move(head.drawn)});
        }
    }
    pass_.clear();
    heads_.clear();
    paths_.clear();
    rows_.clear();
    return result;
}

std::int32_t DraftRows::context() const {
    std::int32_t longest = 0;
    for (const Row& row : rows_) longest = std::max(longest, row.position + 1);
    return longest;
}

const PassRow* DraftRows::row_of(const DraftText& text, DraftNodeId id) const {
    for (const PassRow& row : pass_) {
        if (row.text.get() == &text && row.node == id) return &row;
    }
    return nullptr;
}

void DraftRows::place(const PassRow& row, DraftPassResult& result) {
    DraftText& text = *row.text;
    DraftText::Cache& cache = *text.cache;
    const Position at = row.position - cache.begin;
    const DraftNode* node = text.tree.find(row.node);
    if (node != nullptr) result.computed.push_back({row.text, row.node});
    if (!row.allocated) return;
    const auto& became = cache.became_text;
    if (node != nullptr) {
        text.tree.set_slot(row.node, row.slot);
    } else if (!cache.read_again &&
               std::find(became.begin(), became.end(), row.node) != became.end() &&
               static_cast<std::size_t>(at) == cache.slots.committed().size()) {
        cache.slots.commit(row.slot);
    } else {
        cache.slots.free(at, row.slot);
    }
}

void DraftRows::undo() const {
    for (const PassRow& row : pass_) {
        DraftText::Cache& cache = *row.text->cache;
        if (row.node != kNoDraftNode && row.allocated) {
            cache.slots.free(row.position - cache.begin, row.slot);
        }
    }
    // From a text's first row in the pass on nothing was in the cache, so nothing has joined it.
    const DraftText* cut = nullptr;
    for (const PassRow& row : pass_) {
        if (row.node != kNoDraftNode || row.text.get() == cut) continue;
        cut = row.text.get();
        row.text->cache->slots.cut(row.position - row.text->cache->begin);
    }
}

}  // namespace paceline
