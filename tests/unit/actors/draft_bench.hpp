// DraftBench: a DraftActor in a ScriptedContext, the committed text beside it, and the plans and
// tools that its tests share.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/draft_actor.hpp"
#include "actors/prompt_lookup_source.hpp"
#include "runtime/control_port.hpp"
#include "tests/support/toy/toy_oracle.hpp"
#include "tests/unit/actors/scripted_context.hpp"

namespace paceline::testing {

inline constexpr StageId kDraftId{1};
inline constexpr StageId kCorrectId{2};
inline constexpr StageId kFirst{11};
inline constexpr StageId kJudge{12};
inline constexpr RequestId kRequest{7};

inline DraftPlan plan_of(const GrowthRule& growth) {
    DraftPlan plan;
    plan.first_segment = kFirst;
    plan.judge = kJudge;
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

/// A stage under test, and what it is told; keeps the committed text beside it.
struct DraftBench {
    DraftBench(DraftPlan plan, DraftTools tools, StageId self = kDraftId)
        : context{self}, actor{plan, std::move(tools)} {
        actor.on_start(context);
    }
    void begin(const Request& request, std::uint32_t attempt_number = 1) {
        spec = request;
        text = request.text;
        attempt = Attempt{attempt_number};
        actor.on_control(kConductor, control::Begin{.request = kRequest,
                                                    .attempt = attempt,
                                                    .payload = encode_request(request)});
    }
    template <class M>
    void deliver(StageId from, const M& message) {
        actor.handle(from, static_cast<std::uint16_t>(M::kKind),
                     std::as_bytes(std::span{&message, 1}));
    }
    [[nodiscard]] msg::Route route() const { return {kRequest, attempt, Epoch{1}}; }
    void verdict(const std::vector<TokenId>& tokens, std::uint32_t depth = 8) {
        msg::Verdict verdict{};
        verdict.route = route();
        verdict.base = static_cast<Position>(text.size());
        verdict.count = static_cast<std::uint32_t>(tokens.size());
        verdict.depth = std::max(depth, verdict.count - 1);
        verdict.wave_rows = verdict.depth + 1;
        std::copy(tokens.begin(), tokens.end(), verdict.tokens.begin());
        text.insert(text.end(), tokens.begin(), tokens.end());
        deliver(kJudge, verdict);
    }
    [[nodiscard]] std::vector<msg::Proposal> proposals() {
        return context.take<msg::Proposal>(kFirst);
    }
    [[nodiscard]] Position root() const { return static_cast<Position>(text.size()) - 1; }

    ScriptedContext context;
    DraftActor actor;
    Request spec;
    std::vector<TokenId> text;
    Attempt attempt{1};
};

}  // namespace paceline::testing
