// DraftBench, CorrectBench: a speculative stage in a ScriptedContext, the committed text beside it,
// the plans and tools that their tests share, and what must hold of any proposal.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/draft/correct_actor.hpp"
#include "actors/draft/draft_actor.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/protocol/message_checks.hpp"
#include "runtime/loop/control_port.hpp"
#include "tests/support/toy/toy_oracle.hpp"
#include "tests/unit/actors/scripted_context.hpp"

namespace paceline::testing {

inline constexpr StageId kDraftId{1};
inline constexpr StageId kCorrectId{2};
inline constexpr StageId kFirst{11};
inline constexpr StageId kVerifier{12};
inline constexpr RequestId kRequest{7};

inline DraftPlan plan_of(const GrowthRule& growth) {
    DraftPlan plan;
    plan.first_segment = kFirst;
    plan.verifier = kVerifier;
    plan.vocab_size = kFakeVocab;
    plan.exit = kFirst;
    plan.growth = growth;
    return plan;
}

inline DraftTools with_model(FakeBackend& backend) {
    DraftTools tools;
    tools.model =
        std::make_unique<DraftModel>(backend, DraftModelOptions{.vocab_size = kFakeVocab});
    return tools;
}

inline DraftTools with_lookup() {
    DraftTools tools;
    tools.source = [](const Request&) {
        return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
    };
    return tools;
}

/// The next token of a text, by plain decoding.
inline TokenId plain_next(const Request& spec, std::vector<TokenId> text) {
    Request request = spec;
    request.text = std::move(text);
    request.max_tokens = 1;
    request.end_tokens.clear();
    return plain_answer(request).answer.at(0);
}

/// A stage under test, and what it is told; keeps the committed text beside it. `peer`: the other
/// speculative stage.
template <class Stage>
struct StageBench {
    template <class... Peer>
    StageBench(StageId self, DraftPlan plan, DraftTools tools, Peer... peer)
        : context{self}, actor{plan, std::move(tools), peer...} {
        actor.on_start(context);
    }
    void begin(const Request& request, std::uint32_t attempt_number = 1) {
        spec = request;
        text = request.text;
        attempt = Attempt{attempt_number};
        actor.on_control(kConductor, control::Begin{.request = kRequest,
                                                    .attempt = attempt,
                                                    .payload = encode_begin({request})});
    }
    template <class M>
    void deliver(StageId from, const M& message) {
        actor.handle(from, static_cast<std::uint16_t>(M::kKind), msg::frame_of(message));
    }
    [[nodiscard]] msg::Route route() const { return {kRequest, attempt, Epoch{1}}; }
    void verdict(const std::vector<TokenId>& tokens, std::uint32_t depth = 8) {
        msg::Verdict verdict{};
        verdict.route = route();
        verdict.base = static_cast<Position>(text.size());
        verdict.count = static_cast<std::uint32_t>(tokens.size());
        verdict.depth = std::max(depth, verdict.count - 1);
        verdict.batch_rows = verdict.depth + 1;
        std::copy(tokens.begin(), tokens.end(), verdict.tokens.begin());
        text.insert(text.end(), tokens.begin(), tokens.end());
        deliver(kVerifier, verdict);
    }
    [[nodiscard]] std::vector<msg::Proposal> proposals() {
        return context.take<msg::Proposal>(kFirst);
    }
    [[nodiscard]] Position root() const { return static_cast<Position>(text.size()) - 1; }

    ScriptedContext context;
    Stage actor;
    Request spec;
    std::vector<TokenId> text;
    Attempt attempt{1};
};

struct DraftBench : StageBench<DraftActor> {
    DraftBench(DraftPlan plan, DraftTools tools, std::optional<StageId> correct = {})
        : StageBench{kDraftId, plan, std::move(tools), correct} {}
};
struct CorrectBench : StageBench<CorrectActor> {
    CorrectBench(DraftPlan plan, DraftTools tools)
        : StageBench{kCorrectId, plan, std::move(tools), kDraftId} {}
};

inline std::vector<TokenId> chain_of(const msg::Proposal& proposal) {
    std::vector<TokenId> tokens;
    for (std::uint32_t i = 0; i < proposal.count; ++i) tokens.push_back(proposal.nodes[i].token);
    return tokens;
}

/// The tokens from the proposal's root down to node `index`.
inline std::vector<TokenId> path_in(const msg::Proposal& proposal, std::int32_t index) {
    std::vector<TokenId> tokens;
    for (; index >= 0; index = proposal.nodes[static_cast<std::size_t>(index)].parent) {
        tokens.insert(tokens.begin(), proposal.nodes[static_cast<std::size_t>(index)].token);
    }
    return tokens;
}

inline Request request_of(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    Request request;
    for (std::uint64_t i = 0; i < 1 + seed % 80; ++i) {
        request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
    }
    request.context = 300;
    request.sampling.seed = seed;
    if (seed % 2 == 0) request.sampling.temperature = 0.9F;
    return request;
}

/// Form, and: what the model calls its first choice is what plain decoding takes there.
template <class Stage>
void check_proposal(const StageBench<Stage>& bench,
                    const msg::Proposal& proposal,
                    std::mt19937_64& random) {
    const MessageLimits limits{.vocab_size = kFakeVocab, .kv_slots = 1 << 20, .context = 300};
    REQUIRE(check_message(proposal, limits).ok());
    REQUIRE(proposal.root_position <= bench.root());
    const auto at = static_cast<std::size_t>(proposal.root_position);
    CHECK(bench.text[at] == proposal.root_token);
    if (proposal.count == 0) return;
    const auto pick = static_cast<std::int32_t>(random() % proposal.count);
    std::vector<TokenId> text(bench.text.begin(),
                              bench.text.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    for (const TokenId token : path_in(proposal, pick)) text.push_back(token);
    CHECK(text.size() < 300);  // room for the target's own token
    if (proposal.nodes[static_cast<std::size_t>(pick)].origin != msg::Origin::Trunk) return;
    const TokenId last = text.back();
    text.pop_back();
    if (text.size() < bench.text.size()) {
        CHECK(last == bench.text[text.size()]);  // it became text while the round went on
    } else {
        CHECK(last == plain_next(bench.spec, text));
    }
}

/// What an exit may say of a batch: the rows of some of the tree, and candidates after them.
template <class Stage>
msg::Proposal candidates_for(const StageBench<Stage>& bench,
                             const msg::Proposal& last,
                             std::mt19937_64& random) {
    msg::Proposal candidates{};
    candidates.route = bench.route();
    candidates.root_position = last.root_position;
    candidates.root_token = last.root_token;
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(last.count, 6); ++i) {
        candidates.nodes[candidates.count] = last.nodes[i];
        candidates.nodes[candidates.count++].origin = msg::Origin::RunnerUp;
    }
    const std::uint32_t rows = candidates.count;
    for (std::uint32_t i = 0; i < 6; ++i) {
        candidates.nodes[candidates.count++] = {
            .token = static_cast<TokenId>(random() % kFakeVocab),
            .parent =
                static_cast<std::int16_t>(static_cast<std::int32_t>(random() % (rows + 1)) - 1),
            .origin = msg::Origin::Exit,
            .log_prob = -static_cast<float>(random() % 4)};
    }
    return candidates;
}

}  // namespace paceline::testing
