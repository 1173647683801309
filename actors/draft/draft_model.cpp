#include "actors/draft/draft_model.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr std::size_t kTreeNodesMax = 2 * kProposalNodesMax;
constexpr std::size_t kEnoughText = 16;   // tokens after an unknown one that make a context again
constexpr Position kUnknownRowsMax = 64;  // without a feature, read before the first candidate
static_assert(kUnknownRowsMax >= kEnoughText);

/// The tokens that penalties of the token after `path` may look at.
std::vector<TokenId> seen_by(const DraftText& text, std::span<const DraftNode* const> path) {
    if (!text.sampling.has_penalties()) return {};
    std::vector<TokenId> seen = text.tokens;
    for (const DraftNode* node : path.subspan(1)) seen.push_back(node->token);
    return seen;
}

}  // namespace

DraftText::DraftText(const Request& request)
    : tokens{request.text},
      tree{kTreeNodesMax},
      sampling{request.sampling},
      context{request.context},
      cache_salt{request.cache_salt} {
    tree.plant(tokens.back(), static_cast<Position>(tokens.size()) - 1);
}

DraftTreeUpdate DraftText::follow(std::span<const TokenId> more) {
    Position root = tree.root().position;
    DraftTreeUpdate followed = tree.follow(more);
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (cache) {
        cache->waits = false;
        for (const KvSlot slot : followed.kept) {
            if (cache->read_again) {
                cache->given_up.push_back({.position = root++, .slot = slot});
            } else {
                cache->slots.commit(slot);
            }
        }
        cache->became_text.insert(cache->became_text.end(), followed.committed.begin(),
                                  followed.committed.end());
    }
    return followed;
}

DraftModel::DraftModel(Backend& backend, DraftModelOptions options)
    : backend_{backend},
      features_{backend.feature_slots()},
      options_{std::move(options)},
      mask_{options_.skip.mask()},
      pool_{std::make_shared<DraftPool>(backend.kv_slots())},
      head_{backend,
            {.head = options_.head,
             .vocab_size = options_.vocab_size,
             .shared_tokens = options_.shared_tokens,
             .chance = options_.chance}} {
    PACE_CHECK(backend.first_layer() == 0, "a draft model starts at layer 0");
    PACE_CHECK(options_.rows_max > 0, "a draft model of no rows");
    hidden_ = backend.make_rows(options_.rows_max);
}

DraftModel::~DraftModel() = default;

void DraftModel::open(DraftText& text) {
    const Position positions = std::min<Position>(text.context, backend_.config().context_length);
    text.cache.emplace(DraftText::Cache{
        .pool = pool_,
        .slots =
            RequestSlots::on_demand(pool_->pages, positions, &pool_->prefixes, text.cache_salt),
        .positions = positions,
        .read_again = options_.whole_text || options_.target_features,
        .waits = options_.target_features});
    const auto root = static_cast<std::size_t>(text.tree.root().position);
    const auto known = std::find_if(text.tokens.begin(), text.tokens.end(), [this](TokenId token) {
        return token >= backend_.config().vocab_size;
    });
    if (known == text.tokens.end())
        (void)text.cache->slots.share(std::span{text.tokens}.first(root));
    free_dropped(text);
}

bool DraftModel::knows(const DraftText& text) const {
    if (!text.cache) return false;
    const DraftText::Cache& cache = *text.cache;
    if (cache.waits) return false;
    if (cache.short_at == pool_->pages.releases()) return false;
    for (std::size_t i = cache.checked; i < text.tokens.size(); ++i) {
        if (text.tokens[i] >= backend_.config().vocab_size) return false;
    }
    const auto begin = static_cast<std::size_t>(cache.begin);
    if (begin > 0 && text.tokens.size() < begin + kEnoughText) return false;
    return text.tree.root().position - cache.begin < cache.positions;
}

Position DraftModel::behind(const DraftText& text) const {
    if (!knows(text)) return 0;
    return std::max(text.tree.root().position - text.cache->cached(), 0);
}

/// Frees the slots of dropped nodes; no pass is running.
void DraftModel::free_dropped(DraftText& text) const {
    DraftText::Cache& cache = *text.cache;
    for (const DraftTree::Freed& freed : text.tree.take_freed()) {
        cache.slots.free(freed.position - cache.begin, freed.slot);
    }
    for (const DraftTree::Freed& freed : std::exchange(cache.given_up, {})) {
        cache.slots.free(freed.position - cache.begin, freed.slot);
    }
    cache.became_text.clear();
    cache.slots.trim();
    if (cache.begin == 0) cache.slots.publish(text.tokens);
    std::size_t unknown = text.tokens.size();
    for (; cache.checked < text.tokens.size(); ++cache.checked) {
        if (text.tokens[cache.checked] >= backend_.config().vocab_size) unknown = cache.checked;
    }
    if (unknown < text.tokens.size()) begin_behind(text, unknown);
}

void DraftModel::begin_behind(DraftText& text, std::size_t unknown) const {
    DraftText::Cache& cache = *text.cache;
    text.tree.drop_slots();
    for (const DraftTree::Freed& freed : text.tree.take_freed()) {
        cache.slots.free(freed.position - cache.begin, freed.slot);
    }
    cache.slots.unshare();
    cache.begin = static_cast<Position>(unknown) + 1;
}

bool DraftModel::can_compute(const DraftText& text, const DraftNode& node) const {
    return node.token < backend_.config().vocab_size &&
           node.position - text.cache->begin < text.cache->positions;
}

const DraftModel::PassRow* DraftModel::row_of(const DraftText& text, DraftNodeId id) const {
    for (const PassRow& row : pass_) {
        if (row.text.get() == &text && row.node == id) return &row;
    }
    return nullptr;
}

bool DraftModel::prepare(std::span<const Expansion> expansions) {
    PACE_CHECK(!running_, "a pass prepared while another one runs");
    for (const Expansion& expansion : expansions) {
        if (room() == 0) break;
        add(expansion);
    }
    running_ = !pass_.empty();
    if (features_ != nullptr) place_features();
    build_rows();
    return running_;
}

void DraftModel::add(const Expansion& expansion) {
    if (!expansion.text->cache) return;
    free_dropped(*expansion.text);
    if (!knows(*expansion.text) || !catch_up(expansion.text)) return;
    for (const DraftNodeId id : expansion.expand) {
        if (!add_node(expansion, id)) return;
    }
}

/// A row behind one without a feature needs that one's output, so such rows run one after the
/// other. Where many are to be read (a draft that was restarted, a prefix that the target alone
/// has cached) the text begins behind all but the last of them.
void DraftModel::pass_over_unknown(DraftText& text) const {
    const DraftText::Cache& cache = *text.cache;
    Position unknown = 0;
    for (Position at = text.tree.root().position - 1; at >= cache.cached(); --at) {
        if (cache.features.contains(at) || ++unknown <= kUnknownRowsMax) continue;
        begin_behind(text, static_cast<std::size_t>(at));
        return;
    }
}

/// The text up to the root; false if the root's row does not fit after it into this pass.
bool DraftModel::catch_up(const std::shared_ptr<DraftText>& text) {
    DraftText::Cache& cache = *text->cache;
    const Position root = text->tree.root().position;
    if (features_ != nullptr && options_.target_features) pass_over_unknown(*text);
    if (cache.cached() < root) {
        chunks_.push_back({text, static_cast<Position>(cache.slots.committed().size())});
    }
    while (cache.cached() < root && room() > 0) {
        const Position at = cache.cached() - cache.begin;
        const Result<KvSlot> slot = cache.slots.allocate(at);
        if (!slot) {
            cache.short_at = pool_->pages.releases();
            return false;
        }
        cache.slots.commit(slot.value());
        pass_.push_back(
            {.text = text, .position = cache.begin + at, .slot = slot.value(), .allocated = true});
    }
    return cache.cached() == root && room() > 0;
}

/// The node's row, with those above it that are not in the cache. False: the pass is full.
bool DraftModel::add_node(const Expansion& expansion, DraftNodeId id) {
    DraftText& text = *expansion.text;
    if (text.tree.find(id) == nullptr) return true;
    const std::vector<const DraftNode*> path = text.tree.path(id);
    std::vector<const DraftNode*> missing;
    for (const DraftNode* node : path) {
        if (!can_compute(text, *node)) {
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

void DraftModel::build_rows() {
    rows_.clear();
    for (const PassRow& row : pass_) {
        const DraftText::Cache& cache = *row.text->cache;
        const Position at = row.position - cache.begin;
        const DraftNode* node = row.text->tree.find(row.node);
        const TokenId token = row.node != kNoDraftNode
                                  ? node->token
                                  : row.text->tokens[static_cast<std::size_t>(row.position)];
        rows_.push_back({.token = token,
                         .position = at,
                         .slot = row.slot,
                         .prefix_slots = cache.slots.committed().data(),
                         .prefix_count = at + 1 - static_cast<std::int32_t>(row.path_size),
                         .path_slots = paths_.data() + row.path,
                         .path_count = static_cast<std::int32_t>(row.path_size),
                         .last = 2 * backend_.last_layer(),
                         .mask = skips(row) ? &mask_ : nullptr});
    }
}

/// Slots that rows of this pass have taken lose what they had of other tokens, and get what is
/// known of these.
void DraftModel::place_features() {
    for (const PassRow& row : pass_) {
        if (row.allocated) features_->forget(row.slot);
    }
    const DraftText* last = nullptr;
    for (const PassRow& row : pass_) {
        if (row.text.get() != last) place_features(row.text);
        last = row.text.get();
    }
}

void DraftModel::place_features(const std::shared_ptr<DraftText>& text) {
    const DraftText::Cache& cache = *text->cache;
    const std::vector<KvSlot>& slots = cache.slots.committed();
    for (const auto& [position, kept] : cache.features) {
        if (position >= cache.cached()) return;
        placed_.emplace_back(text, position);
        if (position < cache.begin) continue;
        features_->give(slots[static_cast<std::size_t>(position - cache.begin)], kept.states);
    }
}

bool DraftModel::receive(DraftText& text, Position first, ConstHiddenRows rows, std::size_t width) {
    if (features_ == nullptr) return options_.target_features;  // a simulated model has no use
    if (width != features_->width() || rows.size() % width != 0) return false;
    if (!text.cache) return true;
    auto& features = text.cache->features;
    for (std::size_t row = 0; row < rows.size() / width; ++row) {
        const Position at = first + static_cast<Position>(row);
        if (at < 0 || at >= text.cache->positions) continue;
        if (!features.contains(at) && pool_->features_kept() >= kFeaturesKeptMax) {
            if (features.empty() || features.begin()->first > at) continue;
            features.erase(features.begin());  // the draft's own output takes its place
        }
        KeptFeature& kept = features[at];
        kept.counted = pool_->kept_features;
        kept.states.resize(width);
        backend_.copy(rows.subspan(row * width, width), kept.states);
    }
    return true;
}

/// Whether a row skips sub-layers, as rows of candidates do.
bool DraftModel::skips(const PassRow& row) const {
    return options_.skip.count() > 0 && (row.node != kNoDraftNode || !options_.whole_text);
}

std::uint32_t DraftModel::layers() const {
    int sublayers = 0;
    for (int s = 0; s < 2 * backend_.last_layer(); ++s) sublayers += mask_.skips(s) ? 0 : 1;
    return static_cast<std::uint32_t>((sublayers + 1) / 2);
}

std::int32_t DraftModel::context() const {
    std::int32_t longest = 0;
    for (const Row& row : rows_) longest = std::max(longest, row.position + 1);
    return longest;
}

DraftModel::Taken DraftModel::take(RunOutcome outcome) {
    PACE_CHECK(running_, "a pass taken that was not prepared");
    running_ = false;
    Taken taken;
    if (outcome == RunOutcome::Cancelled) {
        undo();
    } else {
        for (const auto& [text, position] : placed_) text->cache->features.erase(position);
        for (const PassRow& row : pass_) {
            if (row.node != kNoDraftNode) place(row, taken);
        }
        for (PassHead& head : heads_) {
            const PassRow& row = pass_[head.row];
            taken.said.push_back(
                {row.text, row.node, std::move(head.candidates), std::move(head.drawn)});
        }
    }
    pass_.clear();
    placed_.clear();
    heads_.clear();
    chunks_.clear();
    paths_.clear();
    rows_.clear();
    return taken;
}

void DraftModel::place(const PassRow& row, Taken& taken) {
    DraftText& text = *row.text;
    DraftText::Cache& cache = *text.cache;
    const Position at = row.position - cache.begin;
    const DraftNode* node = text.tree.find(row.node);
    if (node != nullptr) taken.computed.push_back({row.text, row.node});
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

void DraftModel::undo() {
    for (const PassRow& row : pass_) {
        DraftText::Cache& cache = *row.text->cache;
        if (row.node != kNoDraftNode && row.allocated) {
            cache.slots.free(row.position - cache.begin, row.slot);
        }
    }
    // Where a chunk was in the pass nothing after it was in the cache, so nothing has joined it.
    for (const Chunk& chunk : chunks_) chunk.text->cache->slots.cut(chunk.length);
}

bool DraftModel::write_kv(DraftText& text, DraftNodeId id, ConstKvBytes bytes) {
    const DraftNode* node = text.tree.find(id);
    if (!text.cache || node == nullptr || node->slot != kNoSlot || row_of(text, id) != nullptr ||
        !can_compute(text, *node)) {
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
    if (!text.cache || running_ || text.cache->read_again) return false;
    free_dropped(text);
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

}  // namespace paceline
