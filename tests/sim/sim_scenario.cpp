// Long because a scenario is drawn from one stream of random numbers, part by part.
#include "tests/sim/sim_scenario.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "actors/draft/draft_actor.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/segment/segment_actor.hpp"
#include "model/kv_layout.hpp"
#include "runtime/loop/control_port.hpp"
#include "tests/support/toy/toy_frail.hpp"

namespace paceline::testing {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};
constexpr Position kContext = 96;  // of every request
constexpr Position kLongContext = 704;

Position context_in(const ToyPlan& plan) {
    return has_long_prompts(plan) ? kLongContext : kContext;
}

std::uint32_t prefill_rows_in(const ToyPlan& plan) {
    if (!has_long_prompts(plan)) return 16;
    return std::array{kVerifyRowsMax, 200U, kBatchRowsMax}[plan.seed / 8 % 3];
}

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

using OnPoison = std::shared_ptr<std::function<void(StageId)>>;

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

struct BodyParts {
    ToyPlan plan;
    DispatchOptions dispatch = {};
    GrowthRule growth = {};
    SimExit exit = {};
    std::optional<SelfDraftOptions> self_draft = {};
    std::optional<SearchTrialOptions> search = {};
    std::shared_ptr<std::string> disk = {};  // what is kept of either search
    Micros hold_limit{1};
    double candidate_right = 0.5;
    DraftCost draft_cost = DraftCost::Compute;
    std::shared_ptr<SimTexts> texts;
    std::int32_t retained_slots = 0;
};

ToyActor make_segment(const BodyParts& parts, StageId id) {
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
    auto actor = std::make_unique<SegmentActor>(std::move(segment), *backend);
    return {std::move(backend), std::move(actor)};
}

/// The target without some sub-layers, which it searches; after a restart from what is on disk.
ToyActor make_searching_draft(const BodyParts& parts, const DraftPlan& plan) {
    SearchTrialOptions search = *parts.search;
    search.state = *parts.disk;
    search.save = [disk = parts.disk](const std::string& state) { *disk = state; };
    const std::int32_t scratch = pages_for(search.scratch_slots()) * kKvPageSlots;
    auto backend = std::make_unique<FakeBackend>(0, kFakeLayers, parts.plan.kv_slots + scratch);
    DraftTools tools;
    tools.model = std::make_unique<DraftModel>(
        *backend, DraftModelOptions{
                      .vocab_size = kFakeVocab, .skip = SkipSet{kFakeLayers}, .whole_text = true});
    tools.search = std::move(search);
    return {std::move(backend), std::make_unique<DraftActor>(plan, std::move(tools))};
}

ToyActor make_draft(const BodyParts& parts) {
    const ToyPlan& plan = parts.plan;
    DraftPlan draft{.first_segment = toy_segment(1),
                    .verifier = toy_segment(plan.segments),
                    .vocab_size = kFakeVocab,
                    .growth = parts.growth};
    if (parts.exit.at > 0 && parts.exit.options.sends_candidates)
        draft.exit = toy_segment(parts.exit.at);
    if (parts.search) return make_searching_draft(parts, draft);
    DraftTools tools;
    tools.source = [parts](const Request& request) -> std::unique_ptr<DraftSource> {
        if (parts.plan.draft == ToyDraft::Lookup) {
            return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
        }
        return std::make_unique<TextDraft>(parts.texts, parts.plan.right, parts.draft_cost,
                                           parts.plan.seed + request.text.size());
    };
    return {nullptr, std::make_unique<DraftActor>(draft, std::move(tools))};
}

/// An exit after some segment, for some of its uses.
SimExit draw_exit(SimRandom& random, const ToyPlan& plan) {
    SimExit exit;
    if (random.chance(40)) return exit;
    const bool ahead = plan.segments == 1 || random.chance(20);
    exit.at =
        ahead ? plan.segments
              : static_cast<int>(1 + random.below(static_cast<std::uint64_t>(plan.segments - 1)));
    ExitOptions& options = exit.options;
    options.gate = 0.25F * static_cast<float>(random.below(5));
    options.top = static_cast<std::uint32_t>(1 + random.below(kExitTopMax));
    options.early_max = static_cast<std::uint32_t>(1 + random.below(8));
    if (ahead) {
        options.ahead = {HeadId{1}, HeadId{2}};
        options.ahead_top = static_cast<std::uint32_t>(1 + random.below(3));
        return exit;
    }
    options.sends_candidates = random.chance(50);
    if (toy_draft(plan)) options.candidates_to = {*toy_draft(plan)};
    options.proposes = random.chance(60);
    options.defers = options.proposes && random.chance(50);
    options.lockstep = exit.at == 1 && random.chance(20);
    return exit;
}

/// A random source of its own, so that the other scenarios stay what they were.
SimRandom self_draft_random(std::uint64_t seed) {
    return SimRandom{seed ^ 0x5e1fd4af7ULL};
}

SkipSet draw_skip_set(SimRandom& random) {
    SkipSet set{kFakeLayers};
    while (set.count() == 0) {
        for (int s = 0; s < 2 * kFakeLayers; ++s) set.set(s, random.chance(35));
    }
    return set;
}

/// A target that drafts for itself, in one pipeline of three: by an early exit, or without some
/// sub-layers, which stay the same, are searched, or follow from a programme.
std::optional<SelfDraftOptions> draw_self_draft(SimRandom& random, const ToyPlan& plan) {
    if (!random.chance(33)) return std::nullopt;
    SelfDraftOptions options;
    options.head = HeadId::Adapter;  // whose candidates are right as often as the scenario says
    options.gamma = static_cast<std::int32_t>(1 + random.below(8));
    if (random.chance(50)) options.confidence_min = 0.2F * static_cast<float>(random.below(5));
    if (random.chance(50)) options.reach_min = 0.1F * static_cast<float>(random.below(9));
    options.threshold_adapts = random.chance(50);
    options.auto_off = random.chance(30);
    if (random.chance(30)) options.tree.emplace();
    if (plan.segments > 1 || random.chance(25)) {
        const int first = std::min(kFakeLayers / plan.segments, kFakeLayers - 1);
        options.exit = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(first)));
        return options;
    }
    options.skip = draw_skip_set(random);
    options.choice =
        std::array{SkipChoice::Fixed, SkipChoice::Search, SkipChoice::Programme}[random.below(3)];
    options.window = static_cast<int>(1 + random.below(12));
    options.interval = static_cast<int>(1 + random.below(3));
    options.optimise_share = 1.0;
    options.search = {.layers = kFakeLayers, .ratio = 0.4, .bayes_every = 3, .seed = random.next()};
    options.programme_skip = static_cast<int>(1 + random.below(4));
    return options;
}

/// A draft that searches its skip set, in some of the pipelines with prompt lookup.
std::optional<SearchTrialOptions> draw_search(SimRandom& random, const ToyPlan& plan) {
    if (plan.draft != ToyDraft::Lookup || !random.chance(50)) return std::nullopt;
    return SearchTrialOptions{
        .search = {.layers = kFakeLayers, .ratio = 0.4, .bayes_every = 3, .seed = random.next()},
        .window = static_cast<int>(1 + random.below(12)),
        .interval = static_cast<int>(1 + random.below(3)),
        .optimise_share = 1.0};
}

/// How the target takes what is proposed, and how the draft grows it.
void draw_method(SimRandom& random, const SimScenario& scenario, BodyParts& parts) {
    static constexpr std::array kPaces{DraftPace::Sequential, DraftPace::Ahead,
                                       DraftPace::Lockstep};
    static constexpr std::array kStarts{StartRule::Sequential, StartRule::AtOnce,
                                        StartRule::Lockstep};
    DispatchOptions& dispatch = parts.dispatch;
    const std::uint64_t start = random.below(kStarts.size());
    dispatch.start = kStarts[start];
    parts.growth.pace = kPaces[random.chance(80) ? start : random.below(kPaces.size())];
    parts.growth.gamma = static_cast<std::int32_t>(1 + random.below(8));
    parts.growth.exit_alternatives = static_cast<std::int32_t>(random.below(4));
    dispatch.shape = random.chance(50) ? BatchShape::Tree : BatchShape::Chain;
    dispatch.proposal_wait = Micros{scenario.plan.proposal_wait_micros};
    dispatch.batches_in_flight_max = scenario.batches_in_flight;
    dispatch.rows_max = static_cast<std::uint32_t>(2 + random.below(7));
    dispatch.prefill_rows = prefill_rows_in(scenario.plan);
    dispatch.requests_max = static_cast<std::uint32_t>(1 + random.below(4));
    dispatch.prompt_share = static_cast<float>(random.below(10)) / 10.0F;
    parts.hold_limit = Micros{static_cast<std::int64_t>(1 + random.below(20'000))};
    parts.candidate_right = 0.25 * static_cast<double>(random.below(5));
}

Request draw_request(SimRandom& random, const ToyPlan& plan, bool first_turn) {
    Request request;
    if (has_long_prompts(plan) && first_turn && random.chance(70)) {
        for (std::uint64_t i = 100 + random.below(400); i > 0; --i)
            request.text.push_back(static_cast<TokenId>(random.below(kFakeVocab)));
    }
    const std::uint64_t length = 1 + random.below(first_turn ? 30 : 6);
    for (std::uint64_t i = 0; i < length; ++i) {
        request.text.push_back(static_cast<TokenId>(random.below(kFakeVocab)));
    }
    request.max_tokens = static_cast<std::int32_t>(1 + random.below(first_turn ? 50 : 20));
    request.context = context_in(plan);
    if (random.chance(50)) make_toy_sampled(request, random.next());
    if (random.chance(20)) request.end_tokens = {static_cast<TokenId>(random.below(kFakeVocab))};
    if (random.chance(25)) {
        request.speculation.on = random.chance(60);
        request.speculation.gamma = static_cast<std::int32_t>(random.below(6));
        if (random.chance(30)) request.speculation.confidence_min = 0.3F;
        if (random.chance(30)) request.speculation.verify_reach_min = 0.1F;
    }
    return request;
}

SimClient draw_client(SimRandom& random, const ToyPlan& plan) {
    SimClient client;
    client.begins = random.chance(50) ? SimTime{0} : random.log_uniform(SimTime{1'000}, kSecond);
    client.turns.resize(1 + random.below(3));
    for (SimTurn& turn : client.turns) {
        turn.request = draw_request(random, plan, &turn == client.turns.data());
        turn.pause = random.chance(50) ? SimTime{0} : random.log_uniform(SimTime{1'000}, kSecond);
        if (random.chance(15)) turn.stop_after = 1 + random.below(20);
        if (random.chance(15)) turn.cancel_after = random.log_uniform(SimTime{1'000}, kSecond);
        turn.polled = random.chance(50);
    }
    return client;
}

/// A prompt of one token needs no prefill: its drafts begin while others are under way.
void shorten_prompt(SimRandom& random, SimClient& client) {
    if (random.chance(50)) client.turns.front().request.text.resize(1);
}

/// Prompts that begin alike, some under a salt of their client's own.
void share_prompts(std::uint64_t seed, SimScenario& scenario) {
    SimRandom random{seed ^ 0x7ab1e5ULL};
    const std::uint64_t common = kKvPageSlots + random.below(10);
    for (std::size_t i = 0; i < scenario.clients.size(); ++i) {
        std::vector<TokenId>& text = scenario.clients[i].turns.front().request.text;
        const bool fits = text.size() + common + 4 < static_cast<std::size_t>(kContext);
        if (!random.chance(50) || !fits) continue;
        for (std::uint64_t at = common; at > 0; --at)
            text.insert(text.begin(), static_cast<TokenId>(1 + at % 3));
        if (!random.chance(20)) continue;
        for (SimTurn& turn : scenario.clients[i].turns)
            turn.request.cache_salt = "client " + std::to_string(i);
    }
}

void draw_edges(SimRandom& random, SimScenario& scenario) {
    scenario.edges = toy_edges(scenario.plan);
    const std::optional<StageId> draft = toy_draft(scenario.plan);
    const StageId exit = toy_segment(scenario.exit.at);
    if (scenario.exit.at > 0 && draft && scenario.exit.at < scenario.plan.segments) {
        scenario.edges.push_back({.from = exit, .to = *draft});
    }
    const auto is_there = [&](StageId from, StageId to) {
        return std::any_of(scenario.edges.begin(), scenario.edges.end(), [&](const EdgeSpec& edge) {
            return edge.from == from && edge.to == to;
        });
    };
    // What an exit proposes goes where the batches come from; the verifier has that channel
    // already.
    if (scenario.exit.at > 1 && !is_there(exit, toy_segment(1))) {
        scenario.edges.push_back({.from = exit, .to = toy_segment(1)});
    }
    const std::uint32_t slots = 8U << random.below(4);
    const auto tensor_slots = static_cast<std::uint32_t>(2 + random.below(3));
    for (EdgeSpec& edge : scenario.edges) {
        edge.ring_slots = slots;
        edge.urgent_slots = slots / 2;
        if (edge.tensor_slots > 0) edge.tensor_slots = tensor_slots;
    }
}

/// No slot, the first pages, or all of them; of a source of its own.
std::int32_t draw_retained(const ToyPlan& plan) {
    SimRandom random{plan.seed ^ 0x4e7a14edULL};
    if (random.chance(40)) return 0;
    if (random.chance(50)) return plan.kv_slots;
    return static_cast<std::int32_t>(1 + random.below(3)) * kKvPageSlots;
}

void draw_processes(SimRandom& random, SimScenario& scenario) {
    BodyParts parts{.plan = scenario.plan,
                    .exit = scenario.exit,
                    .self_draft = scenario.self_draft,
                    .search = scenario.search,
                    .disk = std::make_shared<std::string>(),
                    .draft_cost = random.chance(50) ? DraftCost::Compute : DraftCost::Instant,
                    .texts = scenario.texts,
                    .retained_slots = draw_retained(scenario.plan)};
    draw_method(random, scenario, parts);
    const std::optional<StageId> draft = toy_draft(scenario.plan);
    for (const std::vector<StageId>& home : toy_homes(scenario.plan)) {
        SimProcessSpec spec;
        const bool disposable = home.size() == 1 && home.front() == draft;
        spec.process = {
            .id = home.front(),
            .actors = home,
            .name = disposable ? "draft" : "segment-" + std::to_string(home.front().value),
            .on_death = disposable ? OnDeath::RestartAlone : OnDeath::RebuildChain};
        spec.handlers_during_jobs = random.chance(33);
        spec.make = [parts, home, draft, on_poison = scenario.on_poison] {
            auto body = std::make_unique<ToyBody>();
            for (const StageId id : home) {
                body->add(id, id == draft ? make_draft(parts) : make_segment(parts, id), on_poison);
            }
            return body;
        };
        scenario.processes.push_back(std::move(spec));
    }
}

std::string self_draft_text(const std::optional<SelfDraftOptions>& options) {
    if (!options) return "";
    const std::string how = options->early_exit()
                                ? "layer " + std::to_string(options->exit)
                                : options->skip.text() + ", choice " +
                                      std::to_string(static_cast<int>(options->choice));
    return ", drafts for itself (" + how + ")";
}

}  // namespace

SimScenario draw_scenario(std::uint64_t seed, const SimKinds& kinds) {
    SimRandom random{seed};
    SimScenario scenario;
    ToyPlan& plan = scenario.plan;
    plan.segments = static_cast<int>(1 + random.below(4));
    static constexpr std::array kDrafts{ToyDraft::None, ToyDraft::Lookup, ToyDraft::Oracle,
                                        ToyDraft::Oracle};
    static constexpr std::array kHousings{ToyHousing::Apart, ToyHousing::Apart, ToyHousing::Apart,
                                          ToyHousing::DraftWithFirst, ToyHousing::Pairs};
    plan.draft = kDrafts[random.below(kDrafts.size())];
    plan.housing = kHousings[random.below(kHousings.size())];
    plan.right = 0.25 * static_cast<double>(random.below(5));
    plan.seed = random.next();
    // Room for one context or two: what is never freed is missed at once.
    // But with more of it requests share batches.
    const auto contexts =
        static_cast<std::int32_t>(random.chance(60) ? 1 + random.below(2) : 3 + random.below(3));
    plan.kv_slots = contexts * pages_for(context_in(plan)) * kKvPageSlots;
    // Long answers in few pages: requests are preempted.
    SimRandom tight{seed ^ 0x719447ULL};
    const bool is_tight = tight.chance(40) && !has_long_prompts(plan);
    if (is_tight) plan.kv_slots = static_cast<std::int32_t>(4 + tight.below(3)) * kKvPageSlots;
    scenario.text_slots = plan.kv_slots;
    plan.proposal_wait_micros = static_cast<std::int64_t>(random.below(3'000));
    scenario.batches_in_flight = static_cast<std::uint32_t>(1 + random.below(4));
    SimRandom own = self_draft_random(seed);
    scenario.self_draft = draw_self_draft(own, plan);
    if (scenario.self_draft) {
        plan.draft = ToyDraft::None;
        plan.kv_slots += pages_for(scenario.self_draft->scratch_slots()) * kKvPageSlots;
    }
    scenario.search = draw_search(own, plan);
    scenario.exit = draw_exit(random, plan);
    if (scenario.self_draft) scenario.exit = {};
    draw_edges(random, scenario);
    draw_processes(random, scenario);
    scenario.clients.resize(1 + random.below(4));
    for (SimClient& client : scenario.clients) client = draw_client(random, plan);
    if (scenario.self_draft) {
        for (SimClient& client : scenario.clients) shorten_prompt(own, client);
    }

    share_prompts(seed, scenario);
    for (SimClient& client : scenario.clients) {
        if (is_tight && tight.chance(70)) client.turns.front().request.max_tokens = 60;
    }
    scenario.faults_end = random.log_uniform(20 * kMilli, 4 * kSecond);
    std::vector<StageId> targets;
    for (const SimProcessSpec& spec : scenario.processes) targets.push_back(spec.process.id);
    const std::uint32_t faults_max = random.chance(15) ? 0 : 8;
    scenario.faults = plan_faults(random, targets, faults_max, scenario.faults_end);

    const std::uint64_t restarts_max = random.chance(20) ? random.below(2) : 2 + random.below(8);
    scenario.restarts.restarts_max = static_cast<std::uint32_t>(restarts_max);
    scenario.restarts.start_limit = Micros{random.chance(20) ? 1'000'000 : 30'000'000};
    scenario.conductor = toy_conductor_plan(plan);
    for (ConductorPlan::Stage& stage : scenario.conductor.begin_to)
        stage.proposes_alone = stage.proposes_alone && scenario.exit.at == 0;
    scenario.conductor.recovery_limit = Micros{random.chance(20) ? 500'000 : 60'000'000};
    scenario.conductor.poison_limit = static_cast<std::uint32_t>(2 + random.below(4));
    add_incident(seed, kinds, scenario);
    return scenario;
}

std::string SimScenario::describe() const {
    std::string text =
        std::to_string(plan.segments) + " segments, draft " +
        std::to_string(static_cast<int>(plan.draft)) + ", housing " +
        std::to_string(static_cast<int>(plan.housing)) + ", " + std::to_string(plan.kv_slots) +
        " KV slots, prefill of " + std::to_string(prefill_rows_in(plan)) + " rows, " +
        std::to_string(batches_in_flight) + " batches in flight, exit " + std::to_string(exit.at) +
        self_draft_text(self_draft) + (search ? ", draft searches its layers" : "") +
        ", rings of " + std::to_string(edges.front().ring_slots) + ", " +
        std::to_string(clients.size()) + " clients, incident: " + name_of(incident);
    for (const SimFault& fault : faults) text += "\n  " + paceline::describe(fault);
    return text;
}

}  // namespace paceline::testing
