// The rejection rule with the candidates of a target that drafts for itself: point masses, in
// chains and trees. The distribution of the answers is that of plain sampling, by exact enumeration
// of what the verifier may decide, and by counting with its own chance.
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/protocol/counters.hpp"
#include "model/sampling/candidates.hpp"
#include "tests/support/parity.hpp"
#include "tests/unit/actors/exact_answers.hpp"
#include "tests/unit/actors/rejection/every_way.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

using Text = std::vector<TokenId>;

constexpr int kAnswer = 3;

BeginPayload request_of(std::uint64_t seed) {
    BeginPayload request;
    request.text = {5, 3};
    request.sampling = {.temperature = 1.0F, .top_k = 3, .seed = seed};
    request.max_tokens = kAnswer;
    request.context = 64;
    request.acceptance = AcceptanceRule::Rejection;
    return request;
}

PipelineOptions options_of(bool skips, bool tree, std::uint64_t seed) {
    PipelineOptions options{.seed = seed, .kv_slots = 512};
    options.dispatch.start = StartRule::AtOnce;
    options.dispatch.shape = tree ? BatchShape::Tree : BatchShape::Chain;
    options.candidate_right = 0.7;
    SelfDraftOptions& self = options.self_draft.emplace();
    self.head = HeadId::Adapter;
    self.gamma = 3;
    self.auto_off = false;
    if (tree) self.tree.emplace().candidates = {3, 3, 5, 10};
    if (!skips) {
        self.exit = 3;
        return options;
    }
    self.skip = SkipSet{kFakeLayers};
    for (const int sublayer : {3, 6, 8, 9}) self.skip.set(sublayer, true);
    return options;
}

/// The target's logits after a text.
std::vector<float> logits_after(const Text& text) {
    FakeBackend backend{0, kFakeLayers, 64};
    const std::vector<float> logits = sequence_logits(backend, text, static_cast<int>(text.size()));
    return {logits.end() - kFakeVocab, logits.end()};
}

/// Plain sampling's distribution of the answers, token by token.
void add_plain(const Request& request,
               const Text& text,
               double probability,
               Distribution& distribution) {
    if (text.size() == request.text.size() + kAnswer) {
        distribution[text] += probability;
        return;
    }
    std::vector<float> logits = logits_after(text);
    std::vector<float> p(kFakeVocab);
    SamplerScratch scratch;
    REQUIRE(probabilities(logits, {.committed = text, .path = {}}, request.sampling, p, scratch));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (TokenId token = 0; token < kFakeVocab; ++token) {
        const double own = static_cast<double>(p[static_cast<std::size_t>(token)]) / sum;
        if (own <= 0.0) continue;
        Text longer = text;
        longer.push_back(token);
        add_plain(request, longer, probability * own, distribution);
    }
}

Distribution plain_distribution() {
    Distribution distribution;
    const BeginPayload request = request_of(0);
    add_plain(request, request.text, 1.0, distribution);
    return distribution;
}

/// The first verify batch after a text, as the first segment sends it: the root, and what was
/// drafted.
std::vector<msg::BatchRow> batch_after(const PipelineOptions& options,
                                       const BeginPayload& request,
                                       const Text& text) {
    BeginPayload asked = request;
    asked.text = text;
    asked.replayed = static_cast<Position>(text.size() - request.text.size());
    Pipeline pipeline{options, Texts{text}};
    std::vector<msg::BatchRow> batch;
    pipeline.backends.front()->on_rows = [&](std::span<const Row> rows) {
        const bool verifies = rows.front().path_count > 0 && rows.back().mask == nullptr &&
                              rows.front().last == 2 * kFakeLayers;
        if (!verifies || !batch.empty()) return;
        std::map<KvSlot, std::uint32_t> nodes;
        for (const Row& row : rows) {
            const auto node = static_cast<std::uint32_t>(batch.size());
            const bool is_root = row.path_count == 1;
            const std::uint32_t parent =
                is_root ? msg::kNoParent : nodes.at(row.path_slots[row.path_count - 2]);
            nodes[row.slot] = node;
            batch.push_back({NodeId{node}, parent, row.token, row.position, row.slot});
        }
    };
    pipeline.open_and_begin(kOne, asked);
    pipeline.run_until_finished();
    REQUIRE(!batch.empty());
    return batch;
}

struct Drafts {
    PipelineOptions options;
    BeginPayload request;
    std::map<Text, std::vector<msg::BatchRow>> batches = {};
    std::map<Text, std::vector<float>> logits = {};
    std::size_t drafted = 0;  // candidates in all batches

    const std::vector<msg::BatchRow>& after(const Text& text) {
        const auto found = batches.find(text);
        if (found != batches.end()) return found->second;
        const auto made = batches.emplace(text, batch_after(options, request, text)).first;
        drafted += made->second.size() - 1;
        return made->second;
    }
    const std::vector<float>& logits_of(const Text& text) {
        const auto found = logits.find(text);
        return found != logits.end() ? found->second
                                     : logits.emplace(text, logits_after(text)).first->second;
    }
    /// What a batch after `text` commits, one way of it.
    WalkResult walk(const Text& text, Chance& chance) {
        const std::vector<msg::BatchRow>& rows = after(text);
        const FinishRule rule = request.finish_rule();
        BatchWalk walk{{.rows = rows,
                        .committed = text,
                        .sampling = request.sampling,
                        .finish = rule,
                        .rule = AcceptanceRule::Rejection,
                        .chance = &chance}};
        SamplerScratch scratch;
        while (const auto at = walk.wanted()) {
            Text path;
            for (std::uint32_t node = static_cast<std::uint32_t>(*at);
                 rows[node].parent != msg::kNoParent; node = rows[node].parent) {
                path.push_back(rows[node].token);
            }
            Text whole = text;
            whole.insert(whole.end(), path.rbegin(), path.rend());
            std::vector<float> row = logits_of(whole);
            walk.feed(row, scratch);
        }
        return walk.take();
    }
    void add(const Text& text, double probability, Distribution& distribution) {
        EveryWay ways;
        do {
            const WalkResult result = walk(text, ways);
            Text longer = text;
            longer.insert(longer.end(), result.tokens.begin(), result.tokens.end());
            const double own = probability * ways.probability();
            if (result.finish != FinishReason::None) {
                distribution[longer] += own;
            } else {
                add(longer, own, distribution);
            }
        } while (ways.next());
    }
};

}  // namespace

TEST_CASE(
    "the candidates of a target that drafts for itself leave the target's distribution as it is") {
    const Distribution plain = plain_distribution();
    REQUIRE(plain.size() == 27);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        for (const bool skips : {false, true}) {
            for (const bool tree : {false, true}) {
                CAPTURE(seed);
                CAPTURE(skips);
                CAPTURE(tree);
                // What is drafted depends on the request's noise: each seed has other candidates.
                Drafts drafts{options_of(skips, tree, seed), request_of(seed)};
                Distribution distribution;
                drafts.add(drafts.request.text, 1.0, distribution);
                CHECK(drafts.drafted >= (tree ? 9U : 4U));
                CHECK(distance(distribution, plain) < 1e-9);
                CHECK(distribution.size() == plain.size());
            }
        }
    }
}

TEST_CASE(
    "with the counter's own chance, self-drafted answers are as frequent as the distribution "
    "says") {
    // The noise that candidates are drawn with and the verifier's decisions come from one seed.
    constexpr int kRuns = 500;
    constexpr int kAtOnce = 8;
    const Distribution plain = plain_distribution();
    for (const bool skips : {false, true}) {
        for (const bool tree : {false, true}) {
            CAPTURE(skips);
            CAPTURE(tree);
            Distribution counted;
            std::size_t drafted = 0;
            for (int run = 0; run < kRuns; ++run) {
                Pipeline pipeline{options_of(skips, tree, static_cast<std::uint64_t>(run) + 1),
                                  Texts{}};
                for (int i = 1; i <= kAtOnce; ++i) {
                    const auto id = static_cast<std::uint64_t>(i);
                    pipeline.open_and_begin(RequestId{id},
                                            request_of(static_cast<std::uint64_t>(run) * 100 + id));
                }
                pipeline.run_until_finished(kAtOnce);
                for (int i = 1; i <= kAtOnce; ++i) {
                    Text text = request_of(0).text;
                    const Text answer =
                        answer_of(pipeline, RequestId{static_cast<std::uint64_t>(i)});
                    text.insert(text.end(), answer.begin(), answer.end());
                    counted[text] += 1.0 / (kRuns * kAtOnce);
                }
                drafted += pipeline.world.counted(kFirstSegment, counters::kDraftRows);
            }
            CHECK(drafted > kRuns * kAtOnce);
            CHECK(counted.size() <= plain.size());
            for (const auto& [text, p] : plain) {
                const double deviation = std::sqrt(p * (1.0 - p) / (kRuns * kAtOnce));
                CHECK(std::abs(counted[text] - p) < 5.0 * deviation + 1e-9);
            }
        }
    }
}
