// GrammarSource: what the grammar of an answer forces; where it forces nothing, what another source
// proposes, as far as the grammar allows it. With GrammarUse::Masked it proposes no forced tokens.
//
// Braces, names and separators of a schema's JSON are forced: proposing them costs no pass of a
// draft. Of the other source's tree the nodes that the grammar forbids are left out, and what is
// below them, since the target will not draw that; no own token comes of what is observed
// among them. Owns the other source; the loader outlives it. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/begin_payload.hpp"
#include "actors/decoding/grammar/answer_grammar.hpp"
#include "actors/draft/draft_source.hpp"

namespace paceline {

/// What proposals do with the grammar of an answer. It changes the speed of an answer alone.
enum class GrammarUse : std::uint8_t {
    MaskedForced,  // forced tokens first, then candidates of the source that the grammar allows
    Masked,        // the latter alone
    Off,           // the source's candidates as they are: there is no GrammarSource
};

class GrammarSource final : public DraftSource {
public:
    /// `spec` has a compiled grammar. `next` may be nullptr. `use` is not Off.
    GrammarSource(GrammarLoader& loader,
                  const BeginPayload& spec,
                  std::unique_ptr<DraftSource> next,
                  GrammarUse use = GrammarUse::MaskedForced);

    /// The first use loads the grammar, a replay follows the whole answer: nothing for a loop.
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Compute; }
    void commit(std::span<const TokenId> tokens) override;
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t depth,
                                               const CancelToken& cancel) override;
    void observe(std::span<const msg::OwnToken> own) override {
        if (next_ != nullptr) next_->observe(own);
    }
    [[nodiscard]] bool observes() const override { return next_ != nullptr && next_->observes(); }
    /// Of the last proposal: all of it has one.
    [[nodiscard]] msg::Origin origin() const override { return origin_; }

private:
    [[nodiscard]] std::optional<std::vector<SourceNode>> forced(std::span<const TokenId> path,
                                                                std::int32_t most);
    [[nodiscard]] std::vector<SourceNode> allowed(std::span<const TokenId> path,
                                                  std::span<const SourceNode> nodes);

    AnswerGrammar grammar_;
    std::unique_ptr<DraftSource> next_;
    bool forces_;                // proposes what is forced
    std::vector<TokenId> text_;  // prompt and answer
    msg::Origin origin_ = msg::Origin::Forced;
    bool broken_ = false;  // it cannot follow the text: the other source proposes alone
};

}  // namespace paceline
