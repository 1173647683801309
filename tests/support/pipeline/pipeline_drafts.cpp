#include "tests/support/pipeline/pipeline_drafts.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "actors/protocol/message_checks.hpp"
#include "tests/support/toy/toy_grammar.hpp"
#include "tests/support/toy/toy_guesses.hpp"
#include "tests/support/toy/toy_oracle.hpp"

namespace paceline::testing {
namespace {

class Babbler final : public Actor {
public:
    /// It knows these texts, prompt and answer.
    Babbler(std::shared_ptr<const Texts> texts, std::uint64_t seed)
        : texts_{std::move(texts)}, random_{seed} {}
    void on_start(StageContext& context) override { context_ = &context; }
    void on_control(StageId, const control::Message& message) override {
        const auto& begin = std::get<control::Begin>(message);
        const BeginPayload request = decode_begin(begin.payload).value();
        const auto known = std::find_if(texts_->begin(), texts_->end(), [&](const auto& text) {
            return text.size() >= request.text.size() &&
                   std::equal(request.text.begin(), request.text.end(), text.begin());
        });
        if (known == texts_->end()) return;
        told_[begin.request] = {.route = {.request = begin.request,
                                          .attempt = begin.attempt,
                                          .epoch = context_->epoch()},
                                .text = *known,
                                .root = request.text.size() - 1};
        babble(told_[begin.request]);
    }
    void handle(StageId, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (kind != static_cast<std::uint16_t>(msg::Kind::Verdict)) return;
        const auto verdict = decode_message<msg::Verdict>(bytes).value();
        const auto found = told_.find(verdict.route.request);
        if (found == told_.end() || found->second.route.attempt != verdict.route.attempt) return;
        found->second.root += verdict.count;
        babble(found->second);
    }

private:
    struct Told {
        msg::Route route{};
        std::vector<TokenId> text;
        std::size_t root = 0;
    };

    void babble(const Told& told) {
        for (int i = std::uniform_int_distribution<int>{0, 3}(random_); i > 0; --i) {
            std::size_t root = told.root;
            if (random_() % 4 == 0) root -= std::min<std::size_t>(root, 2);
            if (random_() % 4 == 0) root += random_() % 4;
            if (root >= told.text.size()) return;
            const msg::Proposal proposal = tree_below(told, root);
            const auto bytes = std::as_bytes(std::span{&proposal, 1});
            (void)context_->send(kFirstSegment, static_cast<std::uint16_t>(msg::Kind::Proposal),
                                 bytes);
        }
    }
    msg::Proposal tree_below(const Told& told, std::size_t root) {
        msg::Proposal proposal{};
        proposal.route = told.route;
        proposal.root_position = static_cast<Position>(root);
        proposal.root_token = told.text[root];
        proposal.state = static_cast<msg::ProposalState>(random_() % 3);
        proposal.count = static_cast<std::uint32_t>(random_() % 10);
        std::vector<std::size_t> depths;
        for (std::uint32_t k = 0; k < proposal.count; ++k) {
            // Mostly a chain; sometimes anywhere.
            auto parent = static_cast<std::int16_t>(static_cast<int>(k) - 1);
            if (random_() % 3 == 0) {
                parent = static_cast<std::int16_t>(static_cast<int>(random_() % (k + 1)) - 1);
            }
            const std::size_t depth = parent < 0 ? 0 : depths[static_cast<std::size_t>(parent)] + 1;
            depths.push_back(depth);
            const std::size_t at = root + 1 + depth;
            const bool right = random_() % 4 != 0 && at < told.text.size();
            proposal.nodes[k] = {
                .token = right ? told.text[at] : static_cast<TokenId>(random_() % kFakeVocab),
                .parent = parent,
                .origin = static_cast<msg::Origin>(random_() % msg::kOrigins),
                .observe = static_cast<std::uint8_t>(random_() % 3 == 0 ? random_() % 256 : 0),
                .log_prob = -static_cast<float>(random_() % 1000) / 200.0F};
        }
        return proposal;
    }

    std::shared_ptr<const Texts> texts_;
    std::mt19937_64 random_;
    StageContext* context_ = nullptr;
    std::map<RequestId, Told> told_;
};

class Mute final : public Actor {
public:
    void on_start(StageContext&) override {}
    void handle(StageId, std::uint16_t, std::span<const std::byte>) override {}
};

DraftTools with_model(DraftTools tools, FakeBackend& backend, const DraftModelOptions& options) {
    tools.model = std::make_unique<DraftModel>(backend, options);
    return tools;
}

/// Some sub-layers at random, the text read with all layers or not, thresholds that adapt or not,
/// phrases around the model or none.
std::unique_ptr<Actor> skip_draft(DraftPlan plan, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    DraftModelOptions options{.vocab_size = kFakeVocab, .skip = SkipSet{kFakeLayers}};
    for (int s = 0; s < 2 * kFakeLayers; ++s) options.skip.set(s, random() % 4 == 0);
    options.whole_text = random() % 2 == 0;
    plan.growth.threshold_adapts = random() % 2 == 0;
    plan.growth.confidence_min = 0.3F;
    plan.growth.draft_reach_min = random() % 2 == 0 ? 0.02F : 1e-3F;
    DraftTools tools;
    if (seed % 2 == 1) {
        tools.phrases = PhraseOptions{
            .phrases = static_cast<std::int32_t>(seed % 4),
            .lookahead = {
                .window = 2, .ngram = 3, .guesses = 2, .pool_from_prompt = seed % 3 == 0}};
        if (seed % 5 == 0) tools.phrase_pool = tools.phrases->make_pool();
    }
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, 1024);
    return std::make_unique<ModelDraft>(std::move(plan), std::move(backend), options,
                                        std::move(tools));
}

std::unique_ptr<Actor> programme_draft(DraftPlan plan, std::uint64_t seed) {
    const LayerSkipDpOptions programme{.layers = kFakeLayers,
                                       .skip = 1 + static_cast<int>(seed % 6)};
    DraftModelOptions options{.vocab_size = kFakeVocab,
                              .skip = SkipSet::uniform(kFakeLayers, 2 * programme.skip, 1, 1),
                              .whole_text = true};
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, 1024);
    DraftTools tools;
    tools.programme = programme;
    return std::make_unique<ModelDraft>(std::move(plan), std::move(backend), options,
                                        std::move(tools));
}

std::unique_ptr<Actor> eagle_draft(DraftPlan plan, const PipelineOptions& of) {
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, 1024);
    backend->features = std::make_shared<FakeFeatures>(
        std::max<std::size_t>(1, of.feature_layers.size()) * kFakeDim);
    *of.features = backend->features;
    return std::make_unique<ModelDraft>(
        std::move(plan), std::move(backend),
        DraftModelOptions{.vocab_size = kFakeVocab, .target_features = true});
}

std::unique_ptr<Actor> search_draft(DraftPlan plan, const PipelineOptions& of) {
    DraftModelOptions options{
        .vocab_size = kFakeVocab, .skip = SkipSet{kFakeLayers}, .whole_text = true};
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, 1024);
    DraftTools tools;
    tools.search = search_of(of.seed, of.search_disk);
    return std::make_unique<ModelDraft>(std::move(plan), std::move(backend), options,
                                        std::move(tools));
}

}  // namespace

SearchTrialOptions search_of(std::uint64_t seed, const std::shared_ptr<std::string>& disk) {
    SearchTrialOptions options{
        .search = {.layers = kFakeLayers,
                   .ratio = 0.4,
                   .bayes_every = 3,
                   .matchness_stop = seed % 3 == 0 ? 0.95 : 2.0,  // in the end, or never
                   .seed = seed},
        .window = 1 + static_cast<int>(seed % 8),
        .interval = 1 + static_cast<int>(seed % 2),
        .optimise_share = 1.0};
    options.state = *disk;
    options.save = [disk](const std::string& state) { *disk = state; };
    return options;
}

ModelDraft::ModelDraft(DraftPlan plan,
                       std::unique_ptr<FakeBackend> backend,
                       DraftModelOptions options,
                       DraftTools others)
    : backend_{std::move(backend)},
      actor_{std::move(plan), with_model(std::move(others), *backend_, options)} {}

void ModelDraft::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    static_cast<Actor&>(actor_).handle(from, kind, bytes);
}

void ModelDraft::on_control(StageId from, const control::Message& message) {
    static_cast<Actor&>(actor_).on_control(from, message);
}

const DraftActor& ModelDraft::actor() const {
    return actor_;
}

DraftSourceFactory draft_sources(const PipelineOptions& options, Texts texts) {
    if (options.sources) return options.sources;
    return [=](const Request& request) -> std::unique_ptr<DraftSource> {
        if (options.drafting == Drafting::Lookup) {
            return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
        }
        if (options.drafting == Drafting::Guesses)
            return guessing_source(options.seed + request.text.size());
        const auto known = std::find_if(texts.begin(), texts.end(), [&](const auto& text) {
            return text.size() >= request.text.size() &&
                   std::equal(request.text.begin(), request.text.end(), text.begin());
        });
        const bool slow = options.drafting == Drafting::SlowOracle;
        const double right = options.drafting == Drafting::Adversary ? 0.0 : slow ? 0.8 : 1.0;
        return std::make_unique<OracleSource>(known == texts.end() ? request.text : *known, right,
                                              slow ? DraftCost::Compute : DraftCost::Instant,
                                              options.seed);
    };
}
std::unique_ptr<Actor> draft_actor(const PipelineOptions& options, DraftSourceFactory sources) {
    DraftPlan plan{.first_segment = kFirstSegment,
                   .verifier = segment_id(options.segments),
                   .vocab_size = kFakeVocab};
    if (options.exit_at > 0 && options.exit.sends_candidates)
        plan.exit = segment_id(options.exit_at);
    plan.growth.pace = options.dispatch.start == StartRule::AtOnce     ? DraftPace::Ahead
                       : options.dispatch.start == StartRule::Lockstep ? DraftPace::Lockstep
                                                                       : DraftPace::Sequential;
    plan.growth.gamma = options.gamma;
    plan.growth.exit_alternatives = 2;
    if (options.drafting == Drafting::SkipLayers) return skip_draft(plan, options.seed);
    if (options.drafting == Drafting::Programme) return programme_draft(plan, options.seed);
    if (options.drafting == Drafting::Search) return search_draft(plan, options);
    if (options.drafting == Drafting::Eagle) return eagle_draft(plan, options);
    DraftTools tools{.source = std::move(sources), .grammars = toy_grammars()};
    if (options.drafting == Drafting::Guesses) {
        plan.growth.draft_reach_min = options.seed % 2 == 0 ? 0.0F : 1e-3F;
        return std::make_unique<CarelessInbox>(std::make_unique<DraftActor>(plan, std::move(tools)),
                                               options.seed);
    }
    return std::make_unique<DraftActor>(plan, std::move(tools));
}

std::unique_ptr<Actor> babbling_draft(std::shared_ptr<const Texts> texts, std::uint64_t seed) {
    return std::make_unique<Babbler>(std::move(texts), seed);
}

std::unique_ptr<Actor> mute_draft() {
    return std::make_unique<Mute>();
}

}  // namespace paceline::testing
