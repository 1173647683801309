// DraftRequest: one request at a speculative stage: its text, its tree of candidates and how it
// grows.
//
// Follows the text by verdicts; takes in the candidates of a model, a source, an exit or the other
// speculative stage. Its parts (request/) keep what each of these needs. Sends nothing and submits
// no job: that is the part of DraftWork.
// Threads: the actor's loop; a job may hold the work's source (LentSource) or its text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/begin_payload.hpp"
#include "actors/decoding/growth.hpp"
#include "actors/draft/draft_account.hpp"
#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_plan.hpp"
#include "actors/draft/phrases.hpp"
#include "actors/draft/request/candidate_limits.hpp"
#include "actors/draft/request/lent_source.hpp"
#include "actors/draft/request/pass_worth.hpp"
#include "actors/draft/request/peer_proposals.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// What a request waits for.
struct RequestWaits {
    std::vector<DraftNodeId> wanted = {};  // to be expanded in the next pass, or by the source
    bool wants_source = false;             // the latter
    std::int32_t wanted_chain = 0;         // of the source, below wanted.front()
    bool in_pass = false;                  // the model is running rows of this request
    bool for_begin = false;                // missed a verdict: no growth until catch_up()
    std::uint32_t candidates = 0;          // such waits so far: which one a timer belongs to
};

/// What the first segment has not received.
struct UnsentTree {
    bool changed = false;                          // the tree, since it was last sent
    std::optional<msg::ProposalState> state = {};  // of a proposal that found no room
};

class DraftRequest {
public:
    /// The account and the tools' model are borrowed; the tools may be nothing but a model or a
    /// source.
    DraftRequest(const control::Begin& begin,
                 const BeginPayload& spec,
                 const DraftPlan& plan,
                 const DraftTools& tools,
                 DraftAccount& account);

    /// Whether the verdict continues this text; else it is old, or there is a gap before it.
    enum class Fit : std::uint8_t { Old, Next, Gap };
    [[nodiscard]] Fit fit(const msg::Verdict& verdict) const;
    void follow(const msg::Verdict& verdict);
    /// For the source; those of another root, or while a job has the source, are dropped.
    void receive_own(const msg::OwnTokens& own);
    /// After missed verdicts: `now` is the whole committed text. Cached state is kept, only new
    /// tokens are read. False: `now` does not begin with the text that is known here.
    [[nodiscard]] bool catch_up(std::span<const TokenId> now);

    /// Proposals of an exit, of the draft that grows the trunk, and of Correct (PeerProposals).
    void receive_candidates(const msg::Proposal& candidates);
    void receive_trunk(const msg::Proposal& trunk);
    void receive_branches(const msg::Proposal& branches);

    /// Tokens of the answer that are committed.
    [[nodiscard]] Position answer_tokens() const {
        return text->tree.root().position + 1 - limits_.finish.answer_begin;
    }
    /// Candidates below the root that could still be committed, and that the client lets in.
    [[nodiscard]] std::int32_t room() const { return limits_.room(text->tree.root().position); }
    [[nodiscard]] bool uses_model() const;
    /// Whether candidates are drawn. Then the first segment must have a node before it gets the
    /// Draw of its children, so the tree is sent as it grows.
    [[nodiscard]] bool draws() const { return text->draw_top > 0 && uses_model(); }

    /// What to do next, see Growth; chains end as `stop` says.
    [[nodiscard]] Growth::Step next(const ChainStop& stop);
    /// Whether `stop` has ended the trunk at `depth` or above.
    [[nodiscard]] bool stopped(const ChainStop& stop, std::int32_t depth) const;
    void take(const NodeCandidates& said);
    /// Takes a source's candidates below a node, at most `asked` deep. A path ends as `stop` says,
    /// or before a token outside the target's vocabulary.
    void take_candidates(DraftNodeId behind,
                         std::span<const SourceNode> candidates,
                         std::int32_t asked,
                         const ChainStop& stop);
    /// The round's trunk is complete: phrases below its end, and names for its rows.
    void add_phrases();
    /// Adds to what the pass that expands waits.wanted.front() expands what the model tries in it.
    /// The trunk may grow by `tokens` in it.
    void add_tentative(std::int32_t tokens);
    /// The pass has ended, or there was none: the tree loses the tentative nodes that were wrong.
    void end_tentative(bool passed);

    /// The tree as it stands, for the first segment; route.epoch is the sender's to fill.
    [[nodiscard]] msg::Proposal proposal(msg::ProposalState state) const;
    /// What was drawn after `node`, likewise.
    [[nodiscard]] msg::Draw draw(DraftNodeId node, const DrawnSiblings& drawn) const;

    const RequestId id;
    const Attempt attempt;
    const std::shared_ptr<DraftText> text;
    Growth growth;
    LentSource source;
    PassWorth worth;
    PeerProposals peers;
    RequestWaits waits = {};
    UnsentTree unsent = {};

private:
    void go_on_with(std::span<const TokenId> tokens, std::int32_t accepted, std::int32_t could);
    bool take_branches();

    DraftModel* model_;
    std::optional<Phrases> phrases_;  // around the model
    CandidateLimits limits_;
};

}  // namespace paceline
