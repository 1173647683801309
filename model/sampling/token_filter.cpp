#include "model/sampling/token_filter.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "model/sampling/fixed_math.hpp"

namespace paceline {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kSortAtOnce = 512;  // fewer tokens than this are simply sorted
constexpr std::uint32_t kBuckets = 2048;  // of one pass over more
constexpr float kFirstProbe = -3.0f;      // most often, few tokens this near hold the mass
constexpr int kProbesMax = 12;
constexpr std::int32_t kFewTokens = 256;
constexpr std::size_t kHeapGroupsMax = 256;  // beyond, the k-th group maximum is not worth a heap

/// An integer whose order is the ranking: higher logit first, then lower id.
std::uint64_t rank_key(float logit, TokenId id) {
    const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 ranks as 0
    const std::uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
    return (std::uint64_t{ordered} << 32) | (0xFFFFFFFFU - static_cast<std::uint32_t>(id));
}

Cutoff cutoff_at(std::uint64_t key) {
    const auto ordered = static_cast<std::uint32_t>(key >> 32);
    const std::uint32_t bits = (ordered >> 31) != 0 ? ordered & 0x7FFFFFFFU : ~ordered;
    const auto id = static_cast<TokenId>(0xFFFFFFFFU - static_cast<std::uint32_t>(key));
    return {.logit_min = std::bit_cast<float>(bits), .last_id = id};
}

bool ranks_before(const RankedToken& a, const RankedToken& b) {
    return a.key > b.key;
}

float scaled(const FoldedRow& row, float logit) {
    return (logit - row.max_logit) * row.inverse_temperature;
}

/// Ranks the tokens with low <= logit < high; their weights come from scratch.weights if asked.
enum class Weights : std::uint8_t { Unknown, OfRow };
void rank_between(
    const FoldedRow& row, float low, float high, Weights weights, SamplerScratch& scratch) {
    const int count =
        scratch.kernels->collect(row.logits.data(), static_cast<int>(row.logits.size()), low, high,
                                 scratch.collected.data());
    scratch.ranked.clear();
    for (int i = 0; i < count; ++i) {
        const TokenId token = scratch.collected[static_cast<std::size_t>(i)];
        const auto id = static_cast<std::size_t>(token);
        const std::uint32_t weight = weights == Weights::OfRow ? scratch.weights[id] : 0;
        scratch.ranked.push_back({rank_key(row.logits[id], token), weight});
    }
}

/// A logit that at least k tokens reach: the k-th largest group maximum, or the lowest finite
/// number where groups are too few to tell.
float reached_by(std::size_t k, const FoldedRow& row, std::vector<float>& heap) {
    const float lowest = std::numeric_limits<float>::lowest();
    if (k > row.group_max.size() || k > kHeapGroupsMax) return lowest;
    heap.assign(row.group_max.begin(), row.group_max.begin() + static_cast<std::ptrdiff_t>(k));
    std::make_heap(heap.begin(), heap.end(), std::greater<>{});
    for (std::size_t group = k; group < row.group_max.size(); ++group) {
        if (row.group_max[group] <= heap.front()) continue;
        std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
        heap.back() = row.group_max[group];
        std::push_heap(heap.begin(), heap.end(), std::greater<>{});
    }
    return std::max(heap.front(), lowest);
}

/// The k first tokens, ranked, in scratch.ranked; fewer where fewer are above -inf.
void select_top_k(const FoldedRow& row, std::size_t k, SamplerScratch& scratch) {
    std::vector<RankedToken>& ranked = scratch.ranked;
    const float floor = reached_by(k, row, scratch.heap);
    rank_between(row, floor, kInfinity, Weights::Unknown, scratch);
    if (ranked.size() > k) {
        const auto kth = ranked.begin() + static_cast<std::ptrdiff_t>(k);
        std::nth_element(ranked.begin(), kth, ranked.end(), ranks_before);
        ranked.erase(kth, ranked.end());
    }
}

/// How much weight the kept tokens must reach: at least 1, at most `total`.
std::uint64_t needed(float top_p, std::uint64_t total) {
    const double part = std::ceil(static_cast<double>(top_p) * static_cast<double>(total));
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(part), 1, total);
}

/// The key of the token with which the weights, added in the order of the ranking, reach `need`.
/// Reorders `tokens`, whose weights reach it together. Expected time is linear: each pass cuts
/// the range of keys into buckets and keeps the one in which the sum gets there.
std::uint64_t key_reaching(std::uint64_t need, std::vector<RankedToken>& tokens) {
    while (tokens.size() > kSortAtOnce) {
        std::uint64_t low = tokens.front().key;
        std::uint64_t high = low;
        for (const RankedToken& token : tokens) {
            low = std::min(low, token.key);
            high = std::max(high, token.key);
        }
        const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - 11);
        std::array<std::uint64_t, kBuckets> sums{};
        for (const RankedToken& token : tokens) sums[(high - token.key) >> shift] += token.weight;
        std::uint64_t bucket = 0;
        while (sums[bucket] < need) need -= sums[bucket++];
        std::erase_if(tokens, [&](const RankedToken& token) {
            return (high - token.key) >> shift != bucket;
        });
    }
    std::sort(tokens.begin(), tokens.end(), ranks_before);
    std::size_t last = 0;
    while (tokens[last].weight < need) need -= tokens[last++].weight;
    return tokens[last].key;
}

/// The cut of top-p over the whole row. Probes of the mass above a logit close in on the cut,
/// until few tokens are left to be ranked; where the probes lie changes the time, not the cut.
std::uint64_t whole_row_top_p(const FoldedRow& row,
                              const SamplingParams& params,
                              SamplerScratch& scratch) {
    const int vocab = static_cast<int>(row.logits.size());
    const std::uint64_t total = scratch.kernels->weigh(
        row.logits.data(), vocab, row.max_logit, row.inverse_temperature, scratch.weights.data());
    const std::uint64_t need = needed(params.top_p, total);

    float high = kInfinity;  // the mass of the tokens from here on up does not reach `need`
    Mass above{};
    float low = std::numeric_limits<float>::lowest();  // that of the tokens from here on up does
    std::int32_t count = vocab;
    float z_high = 0.0f;
    float z_low = noise::kWeightZero;
    float z = kFirstProbe;
    for (int probe = 0; probe < kProbesMax && count - above.count > kFewTokens; ++probe) {
        const float logit = row.max_logit + z * params.temperature;
        if (!(logit > low && logit < high)) break;
        const Mass mass =
            scratch.kernels->mass_from(row.logits.data(), scratch.weights.data(), vocab, logit);
        if (mass.weight >= need) {
            low = logit;
            z_low = z;
            count = mass.count;
        } else {
            high = logit;
            z_high = z;
            above = mass;
        }
        z = 0.5f * (z_low + z_high);
    }
    rank_between(row, low, high, Weights::OfRow, scratch);
    return key_reaching(need - above.weight, scratch.ranked);
}

std::uint64_t top_p_of_ranked(const FoldedRow& row, float top_p, std::vector<RankedToken>& ranked) {
    std::uint64_t total = 0;
    for (RankedToken& token : ranked) {
        token.weight = weight_of(scaled(row, cutoff_at(token.key).logit_min));
        total += token.weight;
    }
    return key_reaching(needed(top_p, total), ranked);
}

}  // namespace

Cutoff find_cutoff(const FoldedRow& row, const SamplingParams& params, SamplerScratch& scratch) {
    Cutoff cutoff;
    const bool cut_mass = params.top_p < 1.0f;
    if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < row.logits.size()) {
        select_top_k(row, static_cast<std::size_t>(params.top_k), scratch);
        const auto last =
            std::max_element(scratch.ranked.begin(), scratch.ranked.end(), ranks_before);
        cutoff =
            cutoff_at(cut_mass ? top_p_of_ranked(row, params.top_p, scratch.ranked) : last->key);
    } else if (cut_mass) {
        cutoff = cutoff_at(whole_row_top_p(row, params, scratch));
    }
    if (params.min_p > 0.0f) cutoff.z_min = fixed_log(params.min_p);
    return cutoff;
}

}  // namespace paceline
