// ProtocolScene: one actor in a ScriptedContext. The body of a protocol test is the exchange of
// messages: tell(), run_job(), expect(); at its end no message is left that it does not explain.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/request.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/control_port.hpp"
#include "tests/support/toy/toy_oracle.hpp"
#include "tests/unit/actors/scripted_context.hpp"

namespace paceline::testing {

inline constexpr RequestId kSceneRequest{7};
inline constexpr msg::Route kSceneRoute{kSceneRequest, Attempt{1}, Epoch{1}};

/// A prompt of three tokens; plain_answer() knows how it goes on.
inline Request scene_request() {
    Request request;
    request.text = {3, 1, 4};
    request.max_tokens = 16;
    request.context = 64;
    return request;
}

/// A chain of candidates below the last token of `text`.
inline msg::Proposal scene_proposal(const std::vector<TokenId>& text,
                                    const std::vector<TokenId>& chain) {
    msg::Proposal proposal{};
    proposal.route = kSceneRoute;
    proposal.root_position = static_cast<Position>(text.size()) - 1;
    proposal.root_token = text.back();
    proposal.state = msg::ProposalState::Complete;
    for (const TokenId token : chain) {
        proposal.nodes[proposal.count] = {
            .token = token,
            .parent = static_cast<std::int16_t>(static_cast<int>(proposal.count) - 1),
            .origin = msg::Origin::Trunk,
            .log_prob = -0.1F};
        ++proposal.count;
    }
    return proposal;
}

/// Accepts `nodes` and commits `tokens`, one more, after `text`.
inline msg::Verdict scene_verdict(const std::vector<TokenId>& text,
                                  const std::vector<TokenId>& tokens,
                                  const std::vector<NodeId>& nodes) {
    msg::Verdict verdict{};
    verdict.route = kSceneRoute;
    verdict.base = static_cast<Position>(text.size());
    verdict.count = static_cast<std::uint32_t>(tokens.size());
    verdict.depth = verdict.count;
    verdict.batch_rows = verdict.depth + 1;
    std::copy(tokens.begin(), tokens.end(), verdict.tokens.begin());
    std::copy(nodes.begin(), nodes.end(), verdict.nodes.begin());
    return verdict;
}

template <class Stage>
class ProtocolScene {
public:
    template <class... Arguments>
    explicit ProtocolScene(StageId self, Arguments&&... arguments)
        : context{self}, actor{std::forward<Arguments>(arguments)...} {}

    void begin(const Request& request) {
        actor.on_start(context);
        actor.on_control(kConductor, control::Begin{.request = kSceneRequest,
                                                    .attempt = Attempt{1},
                                                    .payload = encode_begin({request})});
        REQUIRE_FALSE(context.failure);
    }
    template <class M>
    void tell(StageId from, const M& message) {
        actor.handle(from, static_cast<std::uint16_t>(M::kKind), msg::frame_of(message));
        REQUIRE_FALSE(context.failure);
    }
    void run_job(const std::string& name) {
        REQUIRE(context.jobs_waiting() == 1);
        CHECK(context.labels.back().name == name);
        REQUIRE(context.run_job());
        REQUIRE_FALSE(context.failure);
    }
    template <class M>
    [[nodiscard]] M expect(StageId to) {
        return context.expect<M>(to);
    }
    void expect_nothing_more() { CHECK(context.unexplained() == 0); }

    ScriptedContext context;
    Stage actor;
};

}  // namespace paceline::testing
