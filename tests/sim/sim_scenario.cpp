#include "tests/sim/sim_scenario.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "model/kv_layout.hpp"
#include "tests/sim/fault_plan.hpp"
#include "tests/sim/machine_plan.hpp"
#include "tests/sim/sim_actors.hpp"
#include "tests/support/toy/toy_ahead_tree.hpp"
#include "tests/support/toy/toy_grammar.hpp"

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
        // By a number that such an exit has no other use for.
        if (options.top % 2 == 0)
            options.ahead_tree = toy_ahead_tree(2, static_cast<std::uint8_t>(options.ahead_top));
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
        options.adapter = options.gamma % 2 == 0;  // without a draw: the seed's others stay
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
void draw_method(SimRandom& random, const SimScenario& scenario, SimBodyParts& parts) {
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
    // EAGLE-2's tree, by numbers that are drawn for other drafts.
    if (scenario.plan.draft != ToyDraft::Eagle || parts.growth.exit_alternatives % 2 == 0) return;
    parts.growth.tree = GrowthTree::Levels;
    parts.growth.width = 2 + parts.growth.exit_alternatives;
    parts.growth.tree_nodes = 4 * parts.growth.gamma;
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

/// Log probabilities, of some requests.
void want_scores(std::uint64_t seed, SimScenario& scenario) {
    SimRandom random{seed ^ 0x5c07e5ULL};
    if (!random.chance(40)) return;
    for (SimClient& client : scenario.clients) {
        for (SimTurn& turn : client.turns) {
            turn.request.scores = {.answer = random.chance(50),
                                   .prompt = random.chance(25),
                                   .top = static_cast<std::int32_t>(random.below(21))};
        }
    }
}

/// Grammars, of some requests; a bias that they have to hold against, too.
void constrain(std::uint64_t seed, SimScenario& scenario) {
    SimRandom random{seed ^ 0x96a33a4ULL};
    if (!random.chance(40)) return;
    for (SimClient& client : scenario.clients) {
        for (SimTurn& turn : client.turns) {
            if (!random.chance(60)) continue;
            make_constrained(turn.request, random.below(1000));
            if (random.chance(40))
                turn.request.sampling.logit_bias = {
                    {static_cast<TokenId>(random.below(kFakeVocab)), 150.0F}};
        }
    }
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

/// Of an EAGLE draft: a tensor holds three rows, so that features of prompts are dropped, or many.
void send_features(SimScenario& scenario) {
    const ToyPlan& plan = scenario.plan;
    if (plan.draft != ToyDraft::Eagle) return;
    const std::size_t layers = std::max<std::size_t>(1, feature_layers_of(plan).size());
    const std::size_t rows = plan.seed % 2 == 0 ? 3 : kVerifyRowsMax;
    for (EdgeSpec& edge : scenario.edges) {
        if (edge.from != toy_segment(plan.segments) || edge.to != toy_draft(plan)) continue;
        edge.tensor_slots = 1;  // as many as are drawn
        edge.tensor_bytes = rows * layers * kFakeDim * sizeof(float);
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
    send_features(scenario);
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
    SimBodyParts parts{.plan = scenario.plan,
                       .exit = scenario.exit,
                       .self_draft = scenario.self_draft,
                       .search = scenario.search,
                       .disk = std::make_shared<std::string>(),
                       .draft_cost = random.chance(50) ? DraftCost::Compute : DraftCost::Instant,
                       .texts = scenario.texts,
                       .features = scenario.features,
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
        spec.make = [parts, home, on_poison = scenario.on_poison] {
            return make_body(parts, home, on_poison);
        };
        scenario.processes.push_back(std::move(spec));
    }
}

std::string self_draft_text(const std::optional<SelfDraftOptions>& options) {
    if (!options) return "";
    const std::string how = options->early_exit()
                                ? "layer " + std::to_string(options->exit) +
                                      (options->adapter ? " with an adapter" : "")
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
    // From a stream of its own: the seed's other choices do not depend on it.
    SimRandom guesses{seed ^ 0x6e55e5ULL};
    if (plan.draft == ToyDraft::Lookup && !scenario.search && guesses.chance(60))
        plan.draft = ToyDraft::Guesses;
    SimRandom eagle{seed ^ 0xea61eULL};
    if (plan.draft == ToyDraft::Oracle && eagle.chance(25)) plan.draft = ToyDraft::Eagle;
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
    want_scores(seed, scenario);
    constrain(seed, scenario);
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
    if (kinds.machines) add_machines(seed, scenario);
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
    if (machines.others > 0) {
        text += ", machines besides the conductor's: " + std::to_string(machines.others) + " and " +
                std::to_string(machines.spares) + " without stages; nodes:";
        for (const SimProcessSpec& spec : processes)
            text += " " + spec.process.name + "=" + std::to_string(spec.process.node);
    }
    for (const SimMachineFault& fault : machines.faults) text += "\n  " + paceline::describe(fault);
    for (const SimFault& fault : faults) text += "\n  " + paceline::describe(fault);
    return text;
}

}  // namespace paceline::testing
