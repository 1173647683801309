// What a draft proposes for an answer with a grammar, with each setting of [draft] grammar.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/grammar/grammar_store.hpp"
#include "actors/draft/grammar_source.hpp"
#include "tests/support/toy/toy_grammar.hpp"
#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

constexpr std::int32_t kGamma = 4;
constexpr std::size_t kTokens = 24;  // of each answer

/// Proposes the same tokens behind any text, whatever a grammar says.
class Stubborn final : public DraftSource {
public:
    explicit Stubborn(std::vector<TokenId> tokens) : tokens_{std::move(tokens)} {}
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> /*tokens*/) override {}
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> /*path*/,
                                               std::int32_t gamma,
                                               const CancelToken& /*cancel*/) override {
        const auto count = std::min(tokens_.size(), static_cast<std::size_t>(gamma));
        return {tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(count)};
    }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

private:
    std::vector<TokenId> tokens_;
};

/// No end token: nothing is proposed below one.
std::vector<TokenId> stubborn_tokens(std::uint64_t seed) {
    std::vector<TokenId> tokens;
    for (std::uint64_t i = 0; i < kGamma; ++i)
        tokens.push_back(static_cast<TokenId>(6 + (seed * 7 + i * 11) % (kFakeVocab - 6)));
    return tokens;
}

Request constrained(std::uint64_t seed) {
    Request request = request_of(seed);
    make_constrained(request, seed);
    return request;
}

/// With the grammar's bytes, as the conductor sends them.
void begin_with_grammar(DraftBench& bench, const Request& request) {
    bench.spec = request;
    bench.text = request.text;
    BeginPayload payload{request};
    SentGrammars sent;
    sent.add(kDraftId, *request.compiled, payload);
    bench.actor.on_control(kConductor, control::Begin{.request = kRequest,
                                                      .attempt = bench.attempt,
                                                      .payload = encode_begin(payload)});
}

/// The proposal for each root while the answer grows token by token.
std::vector<msg::Proposal> proposals_along(const Request& request,
                                           DraftTools tools,
                                           std::span<const TokenId> answer) {
    DraftBench bench{plan_of({.gamma = kGamma}), std::move(tools)};
    begin_with_grammar(bench, request);
    std::vector<msg::Proposal> found;
    for (const TokenId token : answer) {
        while (bench.context.run_job()) {
        }
        const std::vector<msg::Proposal> sent = bench.proposals();
        REQUIRE_FALSE(bench.context.failure);
        REQUIRE_FALSE(sent.empty());
        REQUIRE(sent.back().root_position == bench.root());
        found.push_back(sent.back());
        bench.verdict({token});
    }
    return found;
}

DraftTools stubborn_tools(std::uint64_t seed, GrammarUse use) {
    DraftTools tools;
    tools.source = [seed](const Request&) {
        return std::make_unique<Stubborn>(stubborn_tokens(seed));
    };
    tools.grammars = toy_grammars();
    tools.grammar_use = use;
    return tools;
}

std::vector<TokenId> answer_of(const Request& request) {
    std::vector<TokenId> answer = plain_answer(request).answer;
    while (!answer.empty() && answer.back() == kToyEnd) answer.pop_back();
    answer.resize(std::min(answer.size(), kTokens));
    return answer;
}

std::unique_ptr<GrammarMatcher> matcher_behind(const Request& request,
                                               std::span<const TokenId> answer) {
    auto matcher = toy_grammars()->match(request.compiled, request.end_tokens).value();
    for (const TokenId token : answer) REQUIRE(matcher->accept(token));
    return matcher;
}

/// As far as the grammar allows it after `answer`.
std::vector<TokenId> masked(const Request& request,
                            std::span<const TokenId> answer,
                            const std::vector<TokenId>& chain) {
    const auto matcher = matcher_behind(request, answer);
    const auto end = std::find_if(chain.begin(), chain.end(),
                                  [&](TokenId token) { return !matcher->accept(token); });
    return {chain.begin(), end};
}

}  // namespace

TEST_CASE("[draft] grammar: each setting proposes what it says, and nothing else") {
    std::size_t cut = 0;     // by the mask
    std::size_t forced = 0;  // proposals of forced tokens
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const Request request = constrained(seed);
        const std::vector<TokenId> chain = stubborn_tokens(seed);
        const std::vector<TokenId> answer = answer_of(request);
        const auto along = [&](GrammarUse use) {
            return proposals_along(request, stubborn_tools(seed, use), answer);
        };
        const auto both = along(GrammarUse::MaskedForced);
        const auto mask = along(GrammarUse::Masked);
        const auto off = along(GrammarUse::Off);
        for (std::size_t i = 0; i < answer.size(); ++i) {
            CAPTURE(i);
            const std::span before = std::span{answer}.first(i);
            const std::vector<TokenId> allowed = masked(request, before, chain);
            CHECK(chain_of(off[i]) == chain);
            CHECK(chain_of(mask[i]) == allowed);
            const std::vector<TokenId> must =
                matcher_behind(request, before)->forced_tokens(kGamma);
            CHECK(chain_of(both[i]) == (must.empty() ? allowed : must));
            cut += allowed.size() < chain.size() ? 1 : 0;
            forced += must.empty() ? 0 : 1;
            if (!must.empty()) CHECK(both[i].nodes[0].token == answer[i]);
        }
    }
    CHECK(cut > 100);
    CHECK(forced > 50);
}

TEST_CASE("[draft] grammar: candidates of a model are not masked, forced tokens precede them") {
    std::size_t differ = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        const Request request = constrained(seed);
        const std::vector<TokenId> answer = answer_of(request);
        const auto along = [&](GrammarUse use) {
            FakeBackend backend{0, kFakeLayers, 4096};
            DraftTools tools = with_model(backend);
            tools.grammars = toy_grammars();
            tools.grammar_use = use;
            return proposals_along(request, std::move(tools), answer);
        };
        const auto both = along(GrammarUse::MaskedForced);
        const auto mask = along(GrammarUse::Masked);
        const auto off = along(GrammarUse::Off);
        for (std::size_t i = 0; i < answer.size(); ++i) {
            CAPTURE(i);
            CHECK(chain_of(mask[i]) == chain_of(off[i]));
            differ += chain_of(both[i]) == chain_of(off[i]) ? 0 : 1;
        }
    }
    CHECK(differ > 0);
}
