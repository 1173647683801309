#include "actors/draft/draft_cache.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace paceline {
namespace {

void free_all(DraftText::Cache& cache, const std::vector<DraftTree::Freed>& slots) {
    for (const DraftTree::Freed& freed : slots)
        cache.slots.free(freed.position - cache.begin, freed.slot);
}

}  // namespace

DraftCache::DraftCache(const Backend& backend, DraftCacheRules rules)
    : model_{backend.config()},
      rules_{rules},
      pool_{std::make_shared<DraftPool>(backend.kv_slots())} {}

void DraftCache::open(DraftText& text) const {
    const Position positions = std::min<Position>(text.context, model_.context_length);
    text.cache.emplace(DraftText::Cache{
        .pool = pool_,
        .slots =
            RequestSlots::on_demand(pool_->pages, positions, &pool_->prefixes, text.cache_salt),
        .positions = positions,
        .read_again = rules_.read_again,
        .waits = rules_.waits});
    const auto root = static_cast<std::size_t>(text.tree.root().position);
    const bool all_known = std::all_of(text.tokens.begin(), text.tokens.end(),
                                       [this](TokenId token) { return token < model_.vocab_size; });
    if (all_known) (void)text.cache->slots.share(std::span{text.tokens}.first(root));
    free_dropped(text);
}

bool DraftCache::knows(const DraftText& text) const {
    if (!text.cache) return false;
    const DraftText::Cache& cache = *text.cache;
    if (cache.waits) return false;
    if (cache.short_at == pool_->pages.releases()) return false;
    for (std::size_t i = cache.checked; i < text.tokens.size(); ++i) {
        if (text.tokens[i] >= model_.vocab_size) return false;
    }
    const auto length = static_cast<Position>(text.tokens.size());
    if (cache.begin > 0 && length < cache.begin + kEnoughText) return false;
    return text.tree.root().position - cache.begin < cache.positions;
}

Position DraftCache::behind(const DraftText& text) const {
    if (!knows(text)) return 0;
    return std::max(text.tree.root().position - text.cache->cached(), 0);
}

bool DraftCache::has_read(const DraftText& text, Position position) {
    return text.cache && text.cache->begin == 0 && text.cache->cached() >= position &&
           position < static_cast<Position>(text.tokens.size());
}

bool DraftCache::can_compute(const DraftText& text, const DraftNode& node) const {
    return node.token < model_.vocab_size &&
           node.position - text.cache->begin < text.cache->positions;
}

void DraftCache::free_dropped(DraftText& text) const {
    DraftText::Cache& cache = *text.cache;
    free_all(cache, text.tree.take_freed());
    free_all(cache, std::exchange(cache.given_up, {}));
    cache.became_text.clear();
    cache.slots.trim();
    if (cache.begin == 0) cache.slots.publish(text.tokens);
    std::size_t unknown = text.tokens.size();
    for (; cache.checked < text.tokens.size(); ++cache.checked) {
        if (text.tokens[cache.checked] >= model_.vocab_size) unknown = cache.checked;
    }
    if (unknown < text.tokens.size()) begin_behind(text, static_cast<Position>(unknown));
}

void DraftCache::begin_behind(DraftText& text, Position unknown) const {
    DraftText::Cache& cache = *text.cache;
    text.tree.drop_slots();
    free_all(cache, text.tree.take_freed());
    cache.slots.unshare();
    cache.begin = unknown + 1;
}

std::int32_t DraftCache::free_pages() const {
    return pool_->pages.free_pages() + pool_->prefixes.unheld();
}

}  // namespace paceline
