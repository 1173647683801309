#include "tests/sim/sim_actors.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "actors/draft/draft_actor.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/segment/segment_actor.hpp"
#include "model/kv_layout.hpp"
#include "runtime/loop/control_port.hpp"
#include "tests/support/toy/toy_careless_features.hpp"
#include "tests/support/toy/toy_frail.hpp"
#include "tests/support/toy/toy_grammar.hpp"
#include "tests/support/toy/toy_guesses.hpp"

namespace paceline::testing {
namespace {

/// Proposes the true continuation of a text that is known, each token right with a probability.
class TextDraft final : public DraftSource {
public:
    TextDraft(std::shared_ptr<const SimTexts> texts,
              double right,
              DraftCost cost,
              std::uint64_t seed)
        : texts_{std::move(texts)}, right_{right}, cost_{cost}, random_{seed} {}
    [[nodiscard]] DraftCost cost() const override { return cost_; }
    void commit(std::span<const TokenId> tokens) override {
        so_far_.insert(so_far_.end(), tokens.begin(), tokens.end());
    }
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken& /*cancel*/) override {
        const std::vector<TokenId>* known = nullptr;
        for (const auto& text : *texts_) {
            const bool continues = text.size() > so_far_.size() &&
                                   std::equal(so_far_.begin(), so_far_.end(), text.begin());
            if (continues) known = &text;
        }
        std::vector<TokenId> tokens;
        for (std::int32_t i = 0; i < gamma; ++i) {
            const std::size_t at = so_far_.size() + path.size() + static_cast<std::size_t>(i);
            const bool right = random_.chance(static_cast<std::uint32_t>(100 * right_));
            const auto candidate = static_cast<TokenId>(random_.below(kFakeVocab));
            tokens.push_back(right && known != nullptr && at < known->size() ? (*known)[at]
                                                                             : candidate);
        }
        return tokens;
    }

private:
    std::shared_ptr<const SimTexts> texts_;
    double right_;
    DraftCost cost_;
    SimRandom random_;
    std::vector<TokenId> so_far_;
};

/// The actors of one process on fresh backends.
class ToyBody final : public SimBody {
public:
    [[nodiscard]] Actor& actor(StageId id) override { return *actors_.at(id).frail; }
    void add(StageId id, ToyActor made, const OnPoison& on_poison) {
        auto frail = std::make_unique<FrailActor>(
            *made.actor,
            [](const Request& request) { return request.text.front() == kPoisonToken; },
            [id, on_poison] {
                if (*on_poison) (*on_poison)(id);
            });
        actors_.emplace(id, Inside{std::move(made), std::move(frail)});
    }

private:
    struct Inside {
        ToyActor toy;
        std::unique_ptr<FrailActor> frail;
    };
    std::map<StageId, Inside> actors_;
};

ToyActor make_segment(const SimBodyParts& parts, StageId id) {
    const ToyPlan& plan = parts.plan;
    const int index = id.value;
    SegmentPlan segment;
    segment.count = plan.segments;
    if (index > 1) segment.previous = toy_segment(index - 1);
    if (index < plan.segments) segment.next = toy_segment(index + 1);
    segment.draft = toy_draft(plan);
    segment.verifier = toy_segment(plan.segments);
    // The draft first: its candidate and the verdict itself race to the first segment.
    if (segment.draft) segment.verdict_to.push_back(*segment.draft);
    segment.verdict_to.push_back(kConductor);
    for (int i = 1; i < plan.segments; ++i) segment.verdict_to.push_back(toy_segment(i));
    if (segment.draft) segment.speculative = {*segment.draft};
    segment.first_segment = toy_segment(1);
    segment.dispatch = parts.dispatch;
    segment.hold_limit = parts.hold_limit;
    for (int i = 1; i < plan.segments && parts.retained_slots > 0; ++i) {
        segment.retained.push_back(
            {.stage = toy_segment(i),
             .end = 2 * static_cast<std::uint32_t>(kFakeLayers * i / plan.segments),
             .slots = parts.retained_slots});
    }
    if (segment.next) segment.retained_slots = parts.retained_slots;
    if (!segment.next) segment.verify.grammars = toy_grammars();
    if (!segment.next && plan.draft == ToyDraft::Eagle)
        segment.features = FeatureOptions{*segment.draft, feature_layers_of(plan)};
    if (parts.exit.at == index) segment.exit = parts.exit.options;
    if (index == 1 && parts.self_draft) {
        segment.self_draft = parts.self_draft;
        segment.self_draft->state = *parts.disk;
        segment.self_draft->save = [disk = parts.disk](const std::string& state) { *disk = state; };
    }
    auto backend =
        std::make_unique<FakeBackend>(kFakeLayers * (index - 1) / plan.segments,
                                      kFakeLayers * index / plan.segments, plan.kv_slots);
    backend->candidate_right = parts.candidate_right;
    if (index == 1 && parts.self_draft && parts.self_draft->adapter)
        backend->adapter_after = parts.self_draft->exit;
    auto actor = std::make_unique<SegmentActor>(std::move(segment), *backend);
    return {std::move(backend), std::move(actor)};
}

/// The target without some sub-layers, which it searches; after a restart from what is on disk.
ToyActor make_searching_draft(const SimBodyParts& parts, const DraftPlan& plan) {
    SearchTrialOptions search = *parts.search;
    search.state = *parts.disk;
    search.save = [disk = parts.disk](const std::string& state) { *disk = state; };
    const std::int32_t scratch = pages_for(search.scratch_slots()) * kKvPageSlots;
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, parts.plan.kv_slots + scratch);
    DraftTools tools;
    tools.grammars = toy_grammars();
    tools.model = std::make_unique<DraftModel>(
        *backend, DraftModelOptions{
                      .vocab_size = kFakeVocab, .skip = SkipSet{kFakeLayers}, .whole_text = true});
    tools.search = std::move(search);
    return {std::move(backend), std::make_unique<DraftActor>(plan, std::move(tools))};
}

/// The target's own layers, led by its features; they come as over a bad network.
ToyActor make_eagle(const SimBodyParts& parts, const DraftPlan& plan) {
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, parts.plan.kv_slots);
    const std::size_t layers = feature_layers_of(parts.plan).size();
    backend->features = std::make_shared<FakeFeatures>(std::max<std::size_t>(1, layers) * kFakeDim);
    if (layers == 0) backend->features->counts = parts.features;
    DraftTools tools;
    tools.grammars = toy_grammars();
    tools.model = std::make_unique<DraftModel>(
        *backend, DraftModelOptions{.vocab_size = kFakeVocab, .target_features = true});
    auto actor = std::make_unique<DraftActor>(plan, std::move(tools));
    return {std::move(backend),
            std::make_unique<CarelessFeatures>(std::move(actor), parts.plan.seed, parts.features)};
}

ToyActor make_draft(const SimBodyParts& parts) {
    const ToyPlan& plan = parts.plan;
    DraftPlan draft{.first_segment = toy_segment(1),
                    .verifier = toy_segment(plan.segments),
                    .vocab_size = kFakeVocab,
                    .growth = parts.growth};
    if (parts.exit.at > 0 && parts.exit.options.sends_candidates)
        draft.exit = toy_segment(parts.exit.at);
    if (parts.search) return make_searching_draft(parts, draft);
    if (plan.draft == ToyDraft::Eagle) return make_eagle(parts, draft);
    DraftTools tools;
    tools.grammars = toy_grammars();
    tools.source = [parts](const Request& request) -> std::unique_ptr<DraftSource> {
        if (parts.plan.draft == ToyDraft::Lookup)
            return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
        if (parts.plan.draft == ToyDraft::Guesses)
            return guessing_source(parts.plan.seed + request.text.size());
        return std::make_unique<TextDraft>(parts.texts, parts.plan.right, parts.draft_cost,
                                           parts.plan.seed + request.text.size());
    };
    auto actor = std::make_unique<DraftActor>(draft, std::move(tools));
    if (plan.draft != ToyDraft::Guesses) return {nullptr, std::move(actor)};
    return {nullptr, std::make_unique<CarelessInbox>(std::move(actor), plan.seed)};
}

}  // namespace

std::unique_ptr<SimBody> make_body(const SimBodyParts& parts,
                                   const std::vector<StageId>& home,
                                   const OnPoison& on_poison) {
    const std::optional<StageId> draft = toy_draft(parts.plan);
    auto body = std::make_unique<ToyBody>();
    for (const StageId id : home)
        body->add(id, id == draft ? make_draft(parts) : make_segment(parts, id), on_poison);
    return body;
}

}  // namespace paceline::testing
