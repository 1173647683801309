// Drafts that guess from the target's own tokens: a source that a seed draws, and an inbox in front
// of a draft's actor that treats OwnTokens as a bad network would.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "actors/draft/jacobi_source.hpp"
#include "actors/draft/lookahead_source.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/draft/sources_in_turn.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline::testing {

/// Jacobi or Lookahead, alone or after prompt lookup.
inline std::unique_ptr<DraftSource> guessing_source(std::uint64_t seed) {
    std::mt19937_64 random{seed * 31 + 7};
    std::unique_ptr<DraftSource> guesses;
    if (random() % 3 == 0) {
        guesses = std::make_unique<JacobiSource>(static_cast<std::int32_t>(1 + random() % 12));
    } else {
        guesses = std::make_unique<LookaheadSource>(
            LookaheadOptions{.window = static_cast<std::int32_t>(1 + random() % 6),
                             .ngram = static_cast<std::int32_t>(3 + random() % 3),
                             .guesses = static_cast<std::int32_t>(random() % 5),
                             .pool_from_prompt = random() % 2 == 0});
    }
    if (random() % 2 == 0) return guesses;
    return std::make_unique<SourcesInTurn>(
        std::make_unique<PromptLookupSource>(PromptLookup::make({}).value()), std::move(guesses));
}

/// The draft's inbox: of the own tokens some are lost, some come twice, and some after the next
/// message.
class CarelessInbox final : public Actor {
public:
    CarelessInbox(std::unique_ptr<Actor> draft, std::uint64_t seed)
        : draft_{std::move(draft)}, random_{seed} {}
    void on_start(StageContext& context) override { draft_->on_start(context); }
    void on_control(StageId from, const control::Message& message) override {
        draft_->on_control(from, message);
    }
    void on_room(StageId to) override { draft_->on_room(to); }
    void on_peer(StageId peer, PeerChange change) override {
        late_.clear();  // a lost sender's messages are gone
        draft_->on_peer(peer, change);
    }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        const bool own = kind == static_cast<std::uint16_t>(msg::Kind::OwnTokens);
        const std::uint64_t delivery = own ? random_() % 8 : 7;
        if (delivery == 0) return;
        if (delivery == 1) {
            late_.assign(bytes.begin(), bytes.end());
            late_from_ = from;
            return;
        }
        draft_->handle(from, kind, bytes);
        if (delivery == 2) draft_->handle(from, kind, bytes);
        if (own || late_.empty()) return;
        const std::vector<std::byte> late = std::exchange(late_, {});
        draft_->handle(late_from_, static_cast<std::uint16_t>(msg::Kind::OwnTokens), late);
    }

private:
    std::unique_ptr<Actor> draft_;
    std::mt19937_64 random_;
    std::vector<std::byte> late_;
    StageId late_from_ = {};
};

}  // namespace paceline::testing
