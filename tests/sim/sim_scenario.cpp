#include "tests/sim/sim_scenario.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "actors/draft_actor.hpp"
#include "actors/segment_actor.hpp"
#include "model/kv_layout.hpp"
#include "runtime/control_port.hpp"

namespace paceline::testing {
namespace {

constexpr SimTime kMilli{1'000'000};
constexpr SimTime kSecond{1'000'000'000};
constexpr Position kContext = 96;

/// Guesses the true continuation of a text that is known, each token right with a probability.
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
    [[nodiscard]] std::vector<TokenId> propose(std::int32_t gamma,
                                               const CancelToken& /*cancel*/) override {
        const std::vector<TokenId>* known = nullptr;
        for (const auto& text : *texts_) {
            const bool continues = text.size() > so_far_.size() &&
                                   std::equal(so_far_.begin(), so_far_.end(), text.begin());
            if (continues) known = &text;
        }
        std::vector<TokenId> tokens;
        for (std::int32_t i = 0; i < gamma; ++i) {
            const std::size_t at = so_far_.size() + static_cast<std::size_t>(i);
            const bool right = random_.chance(static_cast<std::uint32_t>(100 * right_));
            const auto guess = static_cast<TokenId>(random_.below(kFakeVocab));
            tokens.push_back(right && known != nullptr && at < known->size() ? (*known)[at]
                                                                             : guess);
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
    [[nodiscard]] Actor& actor(StageId id) override { return *actors_.at(id).actor; }
    void add(StageId id, ToyActor actor) { actors_.emplace(id, std::move(actor)); }

private:
    std::map<StageId, ToyActor> actors_;
};

struct BodyParts {
    ToyPlan plan;
    std::uint32_t waves_in_flight = 1;
    std::uint32_t rows_max = 8;
    DraftCost draft_cost = DraftCost::Compute;
    std::shared_ptr<SimTexts> texts;
};

ToyActor make_segment(const BodyParts& parts, StageId id) {
    const ToyPlan& plan = parts.plan;
    const int index = id.value;
    SegmentPlan segment;
    segment.index = index;
    segment.count = plan.segments;
    if (index > 1) segment.previous = toy_segment(index - 1);
    if (index < plan.segments) segment.next = toy_segment(index + 1);
    segment.draft = toy_draft(plan);
    segment.judge = toy_segment(plan.segments);
    // The draft first: its guess and the verdict itself race to the first segment.
    if (segment.draft) segment.verdict_to.push_back(*segment.draft);
    segment.verdict_to.push_back(kConductor);
    for (int i = 1; i < plan.segments; ++i) segment.verdict_to.push_back(toy_segment(i));
    segment.dispatch.proposal_wait = Micros{plan.proposal_wait_micros};
    segment.dispatch.waves_in_flight_max = parts.waves_in_flight;
    segment.dispatch.rows_max = parts.rows_max;
    segment.dispatch.prefill_rows = 16;
    segment.dispatch.start = parts.waves_in_flight > 1 ? StartRule::AtOnce : StartRule::Turns;
    auto backend =
        std::make_unique<FakeBackend>(kFakeLayers * (index - 1) / plan.segments,
                                      kFakeLayers * index / plan.segments, plan.kv_slots);
    auto actor = std::make_unique<SegmentActor>(std::move(segment), *backend);
    return {std::move(backend), std::move(actor)};
}

ToyActor make_draft(const BodyParts& parts) {
    const ToyPlan& plan = parts.plan;
    const DraftPlan draft{.first_segment = toy_segment(1),
                          .judge = toy_segment(plan.segments),
                          .vocab_size = kFakeVocab};
    if (plan.draft == ToyDraft::Lookup) return make_toy_actor(plan, *toy_draft(plan));
    return {nullptr, std::make_unique<DraftActor>(draft, [parts](const Request& request) {
                return std::make_unique<TextDraft>(parts.texts, parts.plan.right, parts.draft_cost,
                                                   parts.plan.seed + request.text.size());
            })};
}

Request draw_request(SimRandom& random, bool first_turn) {
    Request request;
    const std::uint64_t length = 1 + random.below(first_turn ? 30 : 6);
    for (std::uint64_t i = 0; i < length; ++i) {
        request.text.push_back(static_cast<TokenId>(random.below(kFakeVocab)));
    }
    request.max_tokens = static_cast<std::int32_t>(1 + random.below(first_turn ? 50 : 20));
    request.gamma = static_cast<std::int32_t>(random.below(7));
    request.context = kContext;
    if (random.chance(50)) make_toy_sampled(request, random.next());
    if (random.chance(20)) request.end_tokens = {static_cast<TokenId>(random.below(kFakeVocab))};
    return request;
}

SimClient draw_client(SimRandom& random) {
    SimClient client;
    client.begins = random.chance(50) ? SimTime{0} : random.log_uniform(SimTime{1'000}, kSecond);
    client.turns.resize(1 + random.below(3));
    for (SimTurn& turn : client.turns) {
        turn.request = draw_request(random, &turn == client.turns.data());
        turn.pause = random.chance(50) ? SimTime{0} : random.log_uniform(SimTime{1'000}, kSecond);
        if (random.chance(15)) turn.stop_after = 1 + random.below(20);
        if (random.chance(15)) turn.cancel_after = random.log_uniform(SimTime{1'000}, kSecond);
        turn.polled = random.chance(50);
    }
    return client;
}

void draw_edges(SimRandom& random, SimScenario& scenario) {
    scenario.edges = toy_edges(scenario.plan);
    const std::uint32_t slots = 8U << random.below(4);
    const auto tensor_slots = static_cast<std::uint32_t>(2 + random.below(3));
    for (EdgeSpec& edge : scenario.edges) {
        edge.ring_slots = slots;
        edge.urgent_slots = slots / 2;
        if (edge.tensor_slots > 0) edge.tensor_slots = tensor_slots;
    }
}

void draw_processes(SimRandom& random, SimScenario& scenario) {
    BodyParts parts{.plan = scenario.plan,
                    .waves_in_flight = scenario.waves_in_flight,
                    .rows_max = static_cast<std::uint32_t>(2 + random.below(7)),
                    .draft_cost = random.chance(50) ? DraftCost::Compute : DraftCost::Instant,
                    .texts = scenario.texts};
    const std::optional<StageId> draft = toy_draft(scenario.plan);
    for (const std::vector<StageId>& home : toy_homes(scenario.plan)) {
        SimProcessSpec spec;
        spec.process = {.id = home.front(), .actors = home};
        const bool disposable = home.size() == 1 && home.front() == draft;
        spec.name = disposable ? "draft" : "segment-" + std::to_string(home.front().value);
        spec.on_death = disposable ? OnDeath::RestartAlone : OnDeath::RebuildChain;
        spec.handlers_during_jobs = random.chance(33);
        spec.make = [parts, home, draft] {
            auto body = std::make_unique<ToyBody>();
            for (const StageId id : home) {
                body->add(id, id == draft ? make_draft(parts) : make_segment(parts, id));
            }
            return body;
        };
        scenario.processes.push_back(std::move(spec));
    }
}

}  // namespace

SimScenario draw_scenario(std::uint64_t seed) {
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
    const std::int32_t contexts = 1 + static_cast<std::int32_t>(random.below(2));
    plan.kv_slots = contexts * pages_for(kContext) * kKvPageSlots;
    plan.proposal_wait_micros = static_cast<std::int64_t>(random.below(3'000));
    scenario.waves_in_flight = static_cast<std::uint32_t>(1 + random.below(4));
    draw_edges(random, scenario);
    draw_processes(random, scenario);
    scenario.clients.resize(1 + random.below(3));
    for (SimClient& client : scenario.clients) client = draw_client(random);

    scenario.faults_end = random.log_uniform(20 * kMilli, 4 * kSecond);
    std::vector<StageId> targets;
    for (const SimProcessSpec& spec : scenario.processes) targets.push_back(spec.process.id);
    const std::uint32_t faults_max = random.chance(15) ? 0 : 8;
    scenario.faults = plan_faults(random, targets, faults_max, scenario.faults_end);

    const std::uint64_t restarts_max = random.chance(20) ? random.below(2) : 2 + random.below(8);
    scenario.restarts.restarts_max = static_cast<std::uint32_t>(restarts_max);
    scenario.restarts.start_limit = Micros{random.chance(20) ? 1'000'000 : 30'000'000};
    scenario.conductor = toy_conductor_plan(plan);
    scenario.conductor.recovery_limit = Micros{random.chance(20) ? 500'000 : 60'000'000};
    scenario.conductor.poison_limit = static_cast<std::uint32_t>(2 + random.below(4));
    return scenario;
}

std::string SimScenario::describe() const {
    std::string text = std::to_string(plan.segments) + " segments, draft " +
                       std::to_string(static_cast<int>(plan.draft)) + ", housing " +
                       std::to_string(static_cast<int>(plan.housing)) + ", " +
                       std::to_string(plan.kv_slots) + " KV slots, " +
                       std::to_string(waves_in_flight) + " waves in flight, rings of " +
                       std::to_string(edges.front().ring_slots) + ", " +
                       std::to_string(clients.size()) + " clients";
    for (const SimFault& fault : faults) text += "\n  " + paceline::describe(fault);
    return text;
}

}  // namespace paceline::testing
