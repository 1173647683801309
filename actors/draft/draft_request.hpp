// DraftRequest: one request at a speculative stage: its text, its tree of candidates and how it
// grows.
//
// Follows the text by verdicts; takes in the candidates of a model, a source, an exit or the other
// speculative stage. Sends nothing and submits no job: that is DraftWork's part.
// Threads: the actor's loop; a job may hold the work's source (source_busy) or its text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/account/hit_rates.hpp"
#include "actors/account/pass_rule.hpp"
#include "actors/decoding/begin_payload.hpp"
#include "actors/decoding/growth.hpp"
#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_plan.hpp"
#include "actors/draft/phrases.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// What a speculative stage knows of costs and gains, for all its requests: what the dispatcher has
/// told it, and what it has seen itself.
struct DraftAccount {
    msg::Price price = {};  // generation 0: none yet
    HitRates rates = {};
    PassRule passes = {};

    [[nodiscard]] bool off() const { return price.mode == msg::SpeculationMode::Off; }
};

class DraftRequest {
public:
    /// `tools` and `account` are borrowed; the tools may be nothing but a model or a source.
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

    /// A proposal of an exit, or of the draft that grows the trunk. One for a future root is kept:
    /// its sender may have received the verdict first.
    void receive_candidates(const msg::Proposal& candidates);
    void receive_trunk(const msg::Proposal& trunk);
    /// Correct's branches. Kept until a verdict's new root is not in this tree: then Correct's
    /// candidates below that root are taken over, at once or when they arrive.
    void receive_branches(const msg::Proposal& branches);
    /// The node of the other draft's trunk at `position`; nothing if that is committed by now or
    /// unknown here.
    [[nodiscard]] std::optional<DraftNodeId> trunk_node_at(Position position) const;
    /// Whether the committed text equals the other draft's trunk up to `position`.
    [[nodiscard]] bool trunk_is_text_at(Position position) const;

    /// Of the model's own first choices that a verdict which comes next has judged, how many stood.
    struct Judged {
        int accepted = 0;
        int drafted = 0;
    };
    [[nodiscard]] Judged judged(const msg::Verdict& verdict) const;
    /// Tokens of the answer that are committed.
    [[nodiscard]] Position answer_tokens() const {
        return text->tree.root().position + 1 - finish_.answer_begin;
    }

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
    /// Adds to `wanted` what the model tries in the pass that expands wanted.front(). The trunk may
    /// grow by `tokens` in it.
    void add_tentative(std::int32_t tokens);
    /// The pass has ended, or there was none: the tree loses the tentative nodes that were wrong.
    void end_tentative(bool passed);
    /// These nodes are not expanded for now.
    void close(std::span<const DraftNodeId> nodes);
    /// The tokens between the root and this node, which are what a source continues.
    [[nodiscard]] std::vector<TokenId> path_to(DraftNodeId node) const;

    /// The tree as it stands, for the first segment; route.epoch is the sender's to fill.
    [[nodiscard]] msg::Proposal proposal(msg::ProposalState state) const;
    /// What was drawn after `node`, likewise.
    [[nodiscard]] msg::Draw draw(DraftNodeId node, const DrawnSiblings& drawn) const;
    /// Whether candidates are drawn. Then the first segment must have a node before it gets the
    /// Draw of its children, so the tree is sent as it grows.
    [[nodiscard]] bool draws() const { return text->draw_top > 0 && uses_model(); }
    /// Candidates below the root that could still be committed, and that the client lets in.
    [[nodiscard]] std::int32_t room() const;
    [[nodiscard]] bool uses_model() const;

    const RequestId id;
    const Attempt attempt;
    const std::shared_ptr<DraftText> text;
    Growth growth;
    std::unique_ptr<DraftSource> source;
    std::optional<Phrases> phrases;        // around the model
    CancelToken cancel;                    // of a job that has the source
    bool source_busy = false;              // a job has it
    bool source_due = false;               // beside a model: to be asked about this root
    bool missed = false;                   // missed a verdict: no growth until catch_up()
    bool in_pass = false;                  // the model is running rows of this request
    bool first_pass = true;                // none has ended since the last verdict
    bool changed = false;                  // the tree, since it was last sent
    std::vector<DraftNodeId> wanted = {};  // to be expanded in the next pass, or by the source
    bool wants_source = false;             // the latter
    std::int32_t wanted_chain = 0;
    DraftNodeId source_behind = kNoDraftNode;       // what a busy source was asked about
    std::optional<msg::ProposalState> unsent = {};  // found no room
    std::uint32_t waits = 0;  // for candidates so far: which one a timer belongs to

private:
    void go_on_with(std::span<const TokenId> tokens, std::int32_t accepted, std::int32_t could);
    void close_ends();
    [[nodiscard]] float least_path_log_prob() const;
    void weigh_passes();
    [[nodiscard]] std::vector<float> calibrated_paths() const;
    [[nodiscard]] float calibrated_path(DraftNodeId node) const;
    bool take_branches();
    [[nodiscard]] msg::Proposal rooted_at(Position position, const msg::Proposal& proposal) const;

    const DraftPlan& plan_;
    DraftAccount& account_;
    DraftModel* model_;
    bool drawn_;                       // the text has a temperature
    bool weighs_;                      // no published rule ends the chains
    std::optional<bool> begins_ = {};  // whether the first pass of this round pays
    FinishRule finish_;
    SpeculationLimits speculation_;
    std::vector<TokenId> uncommitted_;  // came while a job had the source
    std::optional<msg::Proposal> candidates_ahead_;
    std::optional<msg::Proposal> trunk_ahead_;
    std::optional<msg::Proposal> branches_;  // Correct's latest
    std::optional<Position> branches_root_;  // where they were last taken over
    Position told_root_ = 0;                 // the other draft's trunk, its root's token first
    std::vector<TokenId> told_;
};

}  // namespace paceline
