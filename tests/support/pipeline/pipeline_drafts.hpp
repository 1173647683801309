// The drafts of a Pipeline or a Cluster, one for each Drafting.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "actors/draft/draft_actor.hpp"
#include "actors/draft/draft_model.hpp"
#include "tests/support/pipeline/pipeline_options.hpp"

namespace paceline::testing {

/// A draft actor and the backend that its model computes on.
class ModelDraft final : public Actor {
public:
    ModelDraft(DraftPlan plan,
               std::unique_ptr<FakeBackend> backend,
               DraftModelOptions options,
               DraftTools others = {});
    void on_start(StageContext& context) override { actor_.on_start(context); }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_room(StageId to) override { actor_.on_room(to); }
    void on_peer(StageId peer, PeerChange change) override { actor_.on_peer(peer, change); }
    [[nodiscard]] const DraftActor& actor() const;

private:
    std::unique_ptr<FakeBackend> backend_;
    DraftActor actor_;
};

/// The search of Drafting::Search, which keeps its state in `disk` and begins with what is there.
SearchTrialOptions search_of(std::uint64_t seed, const std::shared_ptr<std::string>& disk);
/// Sources for drafts that know these texts (prompt and answer), or need not know them.
DraftSourceFactory draft_sources(const PipelineOptions& options, Texts texts);
/// The draft of `options`, of any kind but Babble and Mute.
std::unique_ptr<Actor> draft_actor(const PipelineOptions& options, DraftSourceFactory sources);

/// Drafting::Babble. It sends too much: trees, several per verdict, some right, some for roots that
/// are stale or still to come, with probabilities and origins that mean nothing. So the target's
/// tree gets siblings of every kind, and rows arrive while batches are in flight. It knows these
/// texts, prompt and answer.
std::unique_ptr<Actor> babbling_draft(std::shared_ptr<const Texts> texts, std::uint64_t seed);
/// Drafting::Mute: it receives everything and sends nothing.
std::unique_ptr<Actor> mute_draft();

}  // namespace paceline::testing
