#include "actors/segment/verifier.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"
#include "model/sampling/sampler_scratch.hpp"

namespace paceline {

/// One request's walk, and where in the head's call the logits of its rows are.
struct Verifier::Walk {
    Walk(VerifyPart& verify_part, Chance* chance)
        : part{&verify_part},
          walk{{.rows = verify_part.rows,
                .committed = verify_part.committed,
                .sampling = verify_part.state.spec().sampling,
                .finish = verify_part.state.finish_rule(),
                .rule = verify_part.state.spec().acceptance,
                .chance = chance,
                .drawn_below = verify_part.drawn_below,
                .grammar = verify_part.state.grammar()}} {}

    VerifyPart* part;
    BatchWalk walk;
    std::vector<std::size_t> likely = {};                          // to be computed in this round
    std::vector<std::pair<std::size_t, std::size_t>> places = {};  // row, place in the head's call
    std::size_t fed = 0;                                           // of these, the first so many
    std::vector<TokenScores> scores = {};                          // of the committed tokens
};

/// A row whose token is drawn for its proposer.
struct Verifier::Observed {
    std::size_t walk;  // of its part
    VerifyPart* part;
    std::size_t row;
    std::optional<std::size_t> place = {};  // in the head's call
    bool known = false;                     // its token is in the part, or there is none
};

Verifier::Verifier(Backend& backend, VerifyOptions options)
    : backend_{backend}, options_{options}, scratch_{std::make_unique<SamplerScratch>()} {
    PACE_CHECK(options.head_rows >= 1 && options.head_rows <= kVerifyRowsMax,
               "head_rows must be 1 .. kVerifyRowsMax");
    const auto rows = static_cast<std::size_t>(options.head_rows);
    logits_.resize(rows * static_cast<std::size_t>(backend.config().vocab_size));
}

Verifier::~Verifier() = default;

void Verifier::verify(std::span<VerifyPart> parts) {
    std::vector<Walk> walks;
    walks.reserve(parts.size());
    for (VerifyPart& part : parts) {
        walks.emplace_back(part, options_.chance);
        if (!part.drawn.empty()) read_drawn(walks.back());
    }
    std::vector<Observed> observed = observed_rows(parts);
    // A walk without room in one round is the first in the next.
    for (std::size_t first = 0;;) {
        const auto next = [&]() -> std::optional<std::size_t> {
            for (std::size_t i = 0; i < walks.size(); ++i) {
                const std::size_t at = (first + i) % walks.size();
                if (walks[at].walk.wanted()) return at;
            }
            return std::nullopt;
        }();
        if (!next) break;
        compute(walks, *next, observed);
        feed(walks);
        take_observed(walks, observed);
        first = (*next + options_.head_rows) % walks.size();
    }
    for (Walk& walk : walks) {
        walk.part->result = walk.walk.take();
        walk.part->result.scores = std::move(walk.scores);
    }
    observe_rest(walks, observed);
}

bool Verifier::draws_behind_rows(const RequestState& state) const {
    const DeviceSampler* device = backend_.device_sampler();
    return device != nullptr && state.spec().acceptance == AcceptanceRule::Coupled &&
           !state.spec().needs_logits() && device->draws(state.spec().sampling);
}

DrawJob Verifier::job_behind(const RequestState& state, const msg::BatchRow& row) {
    return {&state.spec().sampling, row.position + 1};
}

/// The whole walk, over tokens that came with the rows.
void Verifier::read_drawn(Walk& walk) {
    PACE_CHECK(walk.part->drawn.size() == walk.part->rows.size(), "a token for each row");
    while (const std::optional<std::size_t> row = walk.walk.wanted())
        walk.walk.feed(walk.part->drawn[*row]);
}

/// One call of the head: the wanted row of each walk that has not ended, then, as long as there is
/// room, one more row of each likely path after the other; then rows that are observed.
void Verifier::compute(std::span<Walk> walks, std::size_t first, std::span<Observed> observed) {
    for (Walk& walk : walks) {
        const std::optional<std::size_t> row = walk.walk.wanted();
        walk.places.clear();
        walk.likely =
            row ? walk.walk.likely_path(*row, options_.head_rows) : std::vector<std::size_t>{};
    }
    head_rows_.clear();
    for (std::size_t depth = 0; depth < options_.head_rows; ++depth) {
        for (std::size_t i = 0; i < walks.size() && head_rows_.size() < options_.head_rows; ++i) {
            Walk& walk = walks[(first + i) % walks.size()];
            // A path is only of use from its first row on.
            if (depth >= walk.likely.size() || walk.places.size() != depth) continue;
            const std::size_t row = walk.likely[depth];
            walk.places.emplace_back(row, head_rows_.size());
            head_rows_.push_back({walk.part->hidden, row});
        }
    }
    drawn_ = device_draws(walks);
    add_observed(walks, observed);
    call_head(walks, observed);
}

void Verifier::call_head(std::span<const Walk> walks, std::span<const Observed> observed) {
    const auto vocab = static_cast<std::size_t>(backend_.config().vocab_size);
    const std::size_t count = head_rows_.size();
    const ConstHiddenRows hidden = backend_.in_order(head_rows_, head_hidden_);
    if (drawn_) {
        draw(walks, observed, hidden, count);
    } else {
        backend_.head(HeadId::Final, hidden, static_cast<int>(count),
                      std::span{logits_}.first(count * vocab));
    }
}

/// Whether no row of this walk needs more than its own hidden state to be drawn from.
bool Verifier::device_draws(const Walk& walk) const {
    const DeviceSampler* device = backend_.device_sampler();
    return device != nullptr && walk.walk.coupled() && !walk.part->state.spec().needs_logits() &&
           device->draws(walk.walk.sampling());
}

/// Of all rows of the call.
bool Verifier::device_draws(std::span<const Walk> walks) const {
    return backend_.device_sampler() != nullptr &&
           std::all_of(walks.begin(), walks.end(),
                       [&](const Walk& walk) { return walk.places.empty() || device_draws(walk); });
}

void Verifier::draw(std::span<const Walk> walks,
                    std::span<const Observed> observed,
                    ConstHiddenRows hidden,
                    std::size_t count) {
    jobs_.resize(count);
    tokens_.resize(count);
    for (const Walk& walk : walks) {
        for (const auto& [row, place] : walk.places)
            jobs_[place] = {&walk.walk.sampling(), walk.walk.position_behind(row)};
    }
    for (const Observed& each : observed) {
        if (!each.place) continue;
        jobs_[*each.place] = job_behind(each.part->state, each.part->rows[each.row]);
    }
    backend_.device_sampler()->draw(hidden, jobs_, tokens_);
}

/// Advances every walk as far as the call has its rows.
void Verifier::feed(std::span<Walk> walks) {
    const auto vocab = static_cast<std::size_t>(backend_.config().vocab_size);
    for (Walk& walk : walks) {
        walk.fed = 0;
        for (const auto& [row, place] : walk.places) {
            if (walk.walk.wanted() != row) break;
            ++walk.fed;
            if (drawn_) {
                walk.walk.feed(tokens_[place]);
                continue;
            }
            const std::span<float> logits = std::span{logits_}.subspan(place * vocab, vocab);
            if (walk.part->state.spec().scores.answer) {
                feed_scored(walk, logits);
            } else {
                walk.walk.feed(logits, *scratch_);
            }
        }
    }
}

/// The row is read before sampling changes it.
void Verifier::feed_scored(Walk& walk, std::span<float> logits) {
    row_scores_.read(logits, walk.part->state.spec().scores.top, *scratch_);
    const std::size_t before = walk.walk.tokens().size();
    walk.walk.feed(logits, *scratch_);
    const std::span<const TokenId> tokens = walk.walk.tokens();
    if (tokens.size() > before) walk.scores.push_back(row_scores_.of(tokens.back()));
}

void Verifier::score(ScoredRows& rows) {
    const auto vocab = static_cast<std::size_t>(backend_.config().vocab_size);
    const std::vector<TokenId>& text = rows.state.text();
    const auto dim = rows.hidden.size() / rows.count;
    for (std::size_t first = 0; first < rows.count; first += options_.head_rows) {
        const std::size_t count = std::min<std::size_t>(options_.head_rows, rows.count - first);
        backend_.head(HeadId::Final, rows.hidden.subspan(first * dim, count * dim),
                      static_cast<int>(count), std::span{logits_}.first(count * vocab));
        for (std::size_t i = 0; i < count; ++i) {
            row_scores_.read(std::span{logits_}.subspan(i * vocab, vocab),
                             rows.state.spec().scores.top, *scratch_);
            const std::size_t next = static_cast<std::size_t>(rows.base) + first + i + 1;
            rows.scores.push_back(row_scores_.of(text[next]));
        }
    }
}

namespace {

/// The token that the walk drew after this row, if it went there.
std::optional<TokenId> walked(const VerifyPart& part, std::size_t row) {
    if (part.state.spec().acceptance == AcceptanceRule::Rejection) return std::nullopt;
    const std::vector<NodeId>& nodes = part.result.nodes;
    const auto found = std::find(nodes.begin(), nodes.end(), part.rows[row].node);
    if (found == nodes.end()) return std::nullopt;
    return part.result.tokens[static_cast<std::size_t>(found - nodes.begin()) + 1];
}

/// The tokens from below the root to this row.
std::vector<TokenId> path_to(const VerifyPart& part, std::size_t row) {
    std::vector<TokenId> path;
    for (std::size_t at = row; at > 0;) {
        path.push_back(part.rows[at].token);
        const std::uint32_t parent = part.rows[at].parent;
        const auto above = std::find_if(
            part.rows.begin(), part.rows.begin() + static_cast<std::ptrdiff_t>(at),
            [parent](const msg::BatchRow& other) { return other.node.value == parent; });
        PACE_CHECK(above != part.rows.begin() + static_cast<std::ptrdiff_t>(at),
                   "a verified row whose parent is not in its part");
        at = static_cast<std::size_t>(above - part.rows.begin());
    }
    std::reverse(path.begin(), path.end());
    return path;
}

}  // namespace

std::vector<Verifier::Observed> Verifier::observed_rows(std::span<VerifyPart> parts) {
    std::vector<Observed> observed;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        VerifyPart& part = parts[i];
        part.own.clear();
        for (std::size_t row = 1; row < part.rows.size(); ++row) {
            if (part.rows[row].observe == 0) continue;
            observed.push_back({.walk = i, .part = &part, .row = row});
        }
    }
    return observed;
}

/// Those that the call has already, and others as long as it has room.
void Verifier::add_observed(std::span<const Walk> walks, std::span<Observed> observed) {
    for (Observed& each : observed) {
        each.place.reset();
        if (each.known || !each.part->drawn.empty()) continue;
        const Walk& walk = walks[each.walk];
        const auto found = std::find_if(walk.places.begin(), walk.places.end(),
                                        [&](const auto& place) { return place.first == each.row; });
        if (found != walk.places.end()) {
            each.place = found->second;
        } else if (head_rows_.size() < options_.head_rows && (!drawn_ || device_draws(walk))) {
            each.place = head_rows_.size();
            head_rows_.push_back({each.part->hidden, each.row});
        }
    }
}

/// What a walk has read is the walk's: it may have changed the logits.
void Verifier::take_observed(std::span<const Walk> walks, std::span<Observed> observed) {
    for (Observed& each : observed) {
        if (!each.place) continue;
        const Walk& walk = walks[each.walk];
        const auto fed = std::span{walk.places}.first(walk.fed);
        if (std::any_of(fed.begin(), fed.end(),
                        [&](const auto& place) { return place.first == each.row; }))
            continue;
        each.known = true;
        if (const std::optional<TokenId> own = own_token(each))
            each.part->own.push_back({each.part->rows[each.row].observe, *own});
    }
}

/// By what the call of the head says at its place.
std::optional<TokenId> Verifier::own_token(const Observed& each) {
    if (drawn_) return tokens_[*each.place];
    const auto vocab = static_cast<std::size_t>(backend_.config().vocab_size);
    const VerifyPart& part = *each.part;
    SamplingParams sampling = part.state.spec().sampling;
    if (part.state.spec().acceptance == AcceptanceRule::Rejection) sampling.temperature = 0.0F;
    const std::vector<TokenId> path = path_to(part, each.row);
    return sample(std::span{logits_}.subspan(*each.place * vocab, vocab),
                  part.rows[each.row].position + 1, {.committed = part.committed, .path = path},
                  sampling, *scratch_);
}

/// After the walks, of answers that go on. What is known already costs no call of the head.
void Verifier::observe_rest(std::span<Walk> walks, std::span<Observed> observed) {
    for (Walk& walk : walks) {
        walk.places.clear();
        walk.fed = 0;
    }
    for (Observed& each : observed) {
        VerifyPart& part = *each.part;
        if (part.result.finish != FinishReason::None) {
            part.own.clear();
            each.known = true;
        }
        if (each.known) continue;
        const std::optional<TokenId> own =
            part.drawn.empty() ? walked(part, each.row) : part.drawn[each.row];
        if (own) part.own.push_back({part.rows[each.row].observe, *own});
        each.known = own || !part.drawn.empty();
    }
    drawn_ = false;
    while (true) {
        head_rows_.clear();
        add_observed(walks, observed);
        if (head_rows_.empty()) return;
        call_head(walks, observed);
        take_observed(walks, observed);
    }
}

std::uint32_t depth_of(std::span<const msg::BatchRow> rows) {
    PACE_CHECK(!rows.empty(), "a batch without its root");
    Position deepest = rows.front().position;
    for (const msg::BatchRow& row : rows) deepest = std::max(deepest, row.position);
    return static_cast<std::uint32_t>(deepest - rows.front().position);
}

msg::Verdict make_verdict(const msg::Route& route,
                          BatchId batch,
                          Position base,
                          std::span<const msg::BatchRow> rows,
                          const WalkResult& result) {
    msg::Verdict verdict{};
    verdict.route = route;
    verdict.batch = batch;
    verdict.base = base;
    verdict.count = static_cast<std::uint32_t>(result.tokens.size());
    verdict.batch_rows = static_cast<std::uint32_t>(rows.size());
    verdict.depth = depth_of(rows);
    verdict.finish = result.finish;
    PACE_CHECK(result.tokens.size() <= verdict.tokens.size(), "a verdict of too many tokens");
    PACE_CHECK(result.nodes.size() + 1 == result.tokens.size() || result.tokens.empty(),
               "a verdict commits its accepted nodes and one token more");
    std::copy(result.tokens.begin(), result.tokens.end(), verdict.tokens.begin());
    std::copy(result.nodes.begin(), result.nodes.end(), verdict.nodes.begin());
    for (std::size_t i = 0; i < result.nodes.size(); ++i) {
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const msg::BatchRow& each) {
            return each.node == result.nodes[i];
        });
        if (row != rows.end()) verdict.origins[i] = row->origin;
    }
    return verdict;
}

}  // namespace paceline
