// A draft that searches its skip set: what a trial reads and says, when it may run, what is kept,
// and what is left when its request ends meanwhile.
#include "actors/draft/set_searcher.hpp"

#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/wire/cancel_board.hpp"
#include "tests/support/parity.hpp"
#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

using Micros = SetSearcher::Micros;

constexpr int kWindow = 6;
constexpr std::int32_t kSlots = 2048;

SearchTrialOptions search_options(double share = 1.0) {
    return {.search = {.layers = kFakeLayers,
                       .ratio = 0.3,
                       .bayes_every = 3,
                       .matchness_stop = 2.0,  // never
                       .seed = 5},
            .window = kWindow,
            .optimise_share = share};
}

/// A text of which the last `answer` tokens are the answer.
BeginPayload text_of(std::size_t tokens, std::int32_t answer) {
    std::mt19937_64 random{tokens};
    BeginPayload request;
    for (std::size_t i = 0; i < tokens; ++i)
        request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
    request.replayed = answer;
    request.context = 300;
    return request;
}

/// A searcher, the model that it searches for, and one request.
struct Searching {
    explicit Searching(const BeginPayload& request,
                       const SearchTrialOptions& options = search_options())
        : plan{plan_of({})} {
        tools.model =
            std::make_unique<DraftModel>(backend, DraftModelOptions{.vocab_size = kFakeVocab,
                                                                    .rows_max = 8,
                                                                    .skip = SkipSet{kFakeLayers},
                                                                    .whole_text = true});
        searcher.emplace(model(), options);
        ask(request);
    }
    [[nodiscard]] DraftModel& model() const { return *tools.model; }
    void ask(const BeginPayload& request) {
        asked.emplace(control::Begin{.request = kRequest, .attempt = Attempt{1}, .payload = {}},
                      request, plan, tools, account);
    }
    /// A pass of the model, which reads on and expands the root.
    void pass() {
        const DraftNodeId root = asked->text->tree.root().id;
        const std::vector<DraftExpansion> expansions{{asked->text, {root}, 1}};
        if (model().prepare(expansions)) (void)model().take(model().run(nullptr));
    }
    /// Until the text is read up to its root.
    void read() {
        while (model().cache().behind(*asked->text) > 0) pass();
    }
    /// So long that a trial is allowed.
    void worked() {
        for (int i = 0; i < 100; ++i) searcher->passed(Micros{10'000});
    }
    [[nodiscard]] std::optional<JobLabel> due() {
        searcher->verified(0, 1);
        return searcher->next(*asked);
    }
    /// One job that took so long; false: none was due.
    bool job(Micros took = Micros{1}) {
        if (!due()) return false;
        const CancelToken cancel;
        searcher->finish(searcher->run(cancel), took);
        return true;
    }

    FakeBackend backend{0, kFakeLayers, kSlots};
    DraftPlan plan;
    DraftTools tools;
    std::optional<SetSearcher> searcher;
    DraftAccount account;
    std::optional<DraftRequest> asked;
};

/// Fills the cache with the keys of a text.
void compute(Backend& backend, std::span<const TokenId> text, std::span<const KvSlot> slots) {
    Backend* const whole = &backend;
    (void)sequence_logits({&whole, 1}, text, static_cast<int>(text.size()), slots);
}

/// The shares of the last window's tokens that each set predicts, by a model that has computed the
/// whole text.
std::vector<double> expected(const std::vector<TokenId>& text, std::array<SublayerMask, 2> masks) {
    FakeBackend backend{0, kFakeLayers, kSlots};
    std::vector<KvSlot> slots(text.size());
    std::iota(slots.begin(), slots.end(), 64);
    compute(backend, std::span(text).first(text.size() - 1), slots);
    std::vector<KvSlot> scratch(std::size_t{2} * kWindow);
    std::iota(scratch.begin(), scratch.end(), 0);
    WindowMatch match{backend, HeadId::Final};
    const SamplingParams greedy{};
    const std::vector<int> right =
        match.right({.text = {text, slots},
                     .begin = static_cast<Position>(text.size()) - 1 - kWindow,
                     .count = kWindow,
                     .sampling = &greedy},
                    masks, scratch);
    return {static_cast<double>(right.at(0)) / kWindow, static_cast<double>(right.at(1)) / kWindow};
}

}  // namespace

TEST_CASE("a trial judges sets by the keys that the whole model has made of the text") {
    BeginPayload request = text_of(12, 0);
    Searching scene{request};
    // An answer that the model itself gives, so that some sets are right.
    for (int i = 0; i < 30; ++i) request.text.push_back(plain_next(request, request.text));
    request.replayed = 30;
    scene.ask(request);
    scene.read();
    scene.worked();
    SkipSearch reference{search_options().search};
    double most = 0.0;
    for (int trial = 0; trial < 20 && reference.searching(); ++trial) {
        CAPTURE(trial);
        const SkipSet set = reference.propose();
        const auto found = expected(request.text, {set.mask(), reference.best().mask()});
        reference.judged(set, found[0], found[1]);
        reference.verified(0, 1);
        most = std::max(most, found[0]);
        REQUIRE(scene.job());
        CHECK(scene.searcher->search().encode() == reference.encode());
        (void)scene.searcher->use_best();
        CHECK(scene.model().skip() == reference.best());
    }
    CHECK(most > 0.0);
    CHECK(scene.searcher->made() == static_cast<std::uint64_t>(reference.trials()));
}

TEST_CASE("no trial is made on a text whose keys before the window are not read") {
    Searching scene{text_of(60, 20)};
    scene.worked();
    int passes = 0;
    while (scene.asked->text->cache->cached() < 60 - 1 - kWindow) {
        CHECK_FALSE(scene.due());
        scene.pass();
        ++passes;
    }
    CHECK(passes > 5);  // of eight rows each
    CHECK(scene.job());
}

TEST_CASE("no trial is made on an answer that is not longer than the window") {
    for (const std::int32_t answer : {0, 1, kWindow}) {
        Searching scene{text_of(40, answer)};
        scene.read();
        scene.worked();
        CHECK_FALSE(scene.due());
    }
    Searching longer{text_of(40, kWindow + 1)};
    longer.read();
    longer.worked();
    CHECK(longer.job());
}

TEST_CASE("trials take no more than their share of the time of passes") {
    constexpr double kShare = 0.1;
    Searching scene{text_of(60, 30), search_options(kShare)};
    scene.read();
    Micros passes{0};
    Micros jobs{0};
    int made = 0;
    bool first = true;
    for (int i = 0; i < 4000; ++i) {
        scene.searcher->passed(Micros{100});
        passes += Micros{100};
        const Micros took{300 + 10 * (i % 7)};
        if (!scene.job(took)) continue;
        // Before the first one its time is a guess.
        if (first) CHECK(passes >= Micros{100} * kWindow * 9);
        first = false;
        jobs += took;
        ++made;
        // A job is expected to take as long as the one before.
        CHECK(static_cast<double>(jobs.count()) <
              kShare * static_cast<double>(passes.count()) + 60.0);
        if (!scene.searcher->search().searching()) break;
    }
    CHECK(made > 30);
    Searching none{text_of(60, 30), search_options(0.0)};
    none.read();
    none.searcher->passed(Micros{1'000'000'000});
    CHECK_FALSE(none.due());
}

TEST_CASE("verdicts are counted between two trials") {
    SearchTrialOptions options = search_options();
    options.interval = 4;
    Searching scene{text_of(60, 30), options};
    scene.read();
    scene.worked();
    for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 3; ++i) CHECK_FALSE(scene.due());
        CHECK(scene.job());
    }
}

TEST_CASE("what was found is kept, and a draft that begins with it goes on from there") {
    std::string disk;
    SearchTrialOptions options = search_options();
    options.save = [&](const std::string& state) { disk = state; };
    Searching scene{text_of(60, 30), options};
    scene.read();
    scene.worked();
    for (int i = 0; i < 8; ++i) REQUIRE(scene.job());
    CHECK(disk.empty());
    const std::string known = scene.searcher->search().encode();
    REQUIRE(scene.job());  // keeps what was known before it
    SkipSearch kept{options.search};
    REQUIRE(kept.restore(disk).ok());
    SkipSearch before{options.search};
    REQUIRE(before.restore(known).ok());
    CHECK(kept.trials() == 8);
    CHECK(kept.best() == before.best());

    SearchTrialOptions again = options;
    again.state = disk;
    again.search.seed = 99;  // the state has its own
    Searching next{text_of(60, 30), again};
    CHECK(next.searcher->search().encode() == kept.encode());
    CHECK(next.model().skip() == kept.best());
}

TEST_CASE("a draft whose verdicts are bad after the search has ended skips fewer sub-layers") {
    SearchTrialOptions options = search_options();
    options.search.trials_max = 1;
    options.search.ratio = 0.5;
    Searching scene{text_of(60, 30), options};
    scene.read();
    scene.worked();
    REQUIRE(scene.job());
    const int count = scene.model().skip().count();
    for (int i = 0; i <= SkipSearch::kVerdictsToAdjust; ++i) scene.searcher->verified(0, 4);
    CHECK(scene.searcher->use_best());
    CHECK(scene.model().skip().count() < count);
    CHECK(scene.searcher->search().searching());
}

TEST_CASE("only the model's own candidates that were verified count as drafted") {
    Searching scene{text_of(10, 0)};
    DraftTree& tree = scene.asked->text->tree;
    DraftNodeId at = tree.root().id;
    for (TokenId token = 1; token <= 4; ++token) {
        const auto origin = token == 4 ? msg::Origin::Lookup : msg::Origin::Trunk;
        at = tree.add(at, token, -0.1F, origin).value();
    }
    const auto judged = [&](const std::vector<TokenId>& tokens, std::uint32_t depth) {
        msg::Verdict verdict{};
        verdict.base = 10;
        verdict.count = static_cast<std::uint32_t>(tokens.size());
        verdict.depth = depth;
        std::copy(tokens.begin(), tokens.end(), verdict.tokens.begin());
        const JudgedTrunk found = judged_trunk(tree, verdict);
        return std::pair{found.accepted, found.drafted};
    };
    CHECK(judged({1, 2, 3, 4, 9}, 4) == std::pair{3, 3});
    CHECK(judged({1, 2, 9}, 4) == std::pair{2, 3});
    CHECK(judged({1, 2, 9}, 2) == std::pair{2, 2});
    CHECK(judged({1}, 2) == std::pair{0, 2});  // the target's own token
    CHECK(judged({9}, 0) == std::pair{0, 0});
    CHECK(judged({7, 2, 3}, 2) == std::pair{0, 2});
}

namespace {

/// A draft stage that searches; a pass takes a millisecond.
struct SearchBench {
    SearchBench() : bench{plan_of({.pace = DraftPace::Ahead, .gamma = 4}), tools_of(backend)} {
        backend.on_run = [this] { bench.context.time += Micros{1'000}; };
        free_before = model->cache().free_pages();
    }
    DraftTools tools_of(FakeBackend& of) {
        DraftTools tools;
        tools.model = std::make_unique<DraftModel>(
            of, DraftModelOptions{
                    .vocab_size = kFakeVocab, .skip = SkipSet{kFakeLayers}, .whole_text = true});
        tools.search = search_options();
        tools.on_set = [this](const SkipSearch& search) { sets.push_back(search.best()); };
        model = tools.model.get();
        return tools;
    }
    /// The target's own tokens, one a verdict, of the root alone, until a trial waits to be run.
    void until_a_trial() {
        for (int i = 0; i < 400; ++i) {
            if (bench.context.jobs_waiting() > 0 &&
                std::string_view{bench.context.labels.back().name} == "optimise")
                return;
            if (!bench.context.run_job()) bench.verdict({plain_next(bench.spec, bench.text)}, 0);
        }
        FAIL("no trial");
    }
    /// With room for many verdicts.
    static Request request(std::uint64_t seed) {
        Request made = request_of(seed);
        made.context = 900;
        return made;
    }
    void stop() { bench.deliver(kConductor, msg::Stop{.route = bench.route()}); }

    FakeBackend backend{0, kFakeLayers, kSlots};
    DraftModel* model = nullptr;
    std::vector<SkipSet> sets;
    DraftBench bench;
    std::int32_t free_before = 0;
};

}  // namespace

TEST_CASE("a trial whose request is stopped ends at once, says nothing and holds no slot") {
    for (const bool cancelled_first : {false, true}) {
        CAPTURE(cancelled_first);
        SearchBench scene;
        scene.bench.begin(SearchBench::request(21));
        scene.until_a_trial();
        const std::uint64_t before = scene.bench.actor.trials();
        // The conductor's board may say so before its message does.
        if (cancelled_first) scene.bench.context.word = CancelBoard::mark_of(kRequest, Attempt{2});
        if (!cancelled_first) scene.stop();
        const std::size_t heads = scene.backend.head_rows;
        REQUIRE(scene.bench.context.run_job());
        CHECK(scene.backend.head_rows == heads);
        CHECK(scene.bench.actor.trials() == before);
        if (cancelled_first) scene.stop();
        while (scene.bench.context.run_job()) {
        }
        CHECK(scene.model->cache().free_pages() == scene.free_before);
        CHECK_FALSE(scene.bench.context.failure);
        // The next request is served, and tried on.
        const Request next = SearchBench::request(23);
        scene.bench.context.word = 0;
        scene.bench.begin(next, 3);
        scene.until_a_trial();
        REQUIRE(scene.bench.context.run_job());
        CHECK(scene.bench.actor.trials() == before + 1);
    }
}

TEST_CASE("verdicts and a new attempt while a trial runs change neither text nor trial") {
    SearchBench scene;
    scene.bench.begin(SearchBench::request(21));
    scene.until_a_trial();
    const std::uint64_t before = scene.bench.actor.trials();
    for (int i = 0; i < 40; ++i)  // the text's memory moves
        scene.bench.verdict({plain_next(scene.bench.spec, scene.bench.text)}, 0);
    REQUIRE(scene.bench.context.run_job());
    CHECK(scene.bench.actor.trials() == before + 1);
    scene.until_a_trial();
    Request again = scene.bench.spec;
    again.text = scene.bench.text;
    scene.bench.begin(again, 2);
    while (scene.bench.context.run_job()) {
    }
    CHECK_FALSE(scene.bench.context.failure);
    CHECK(scene.model->cache().free_pages() < scene.free_before);  // the new attempt's
    scene.stop();
    CHECK(scene.model->cache().free_pages() == scene.free_before);
}

TEST_CASE("a row of a candidate reads keys of candidates that were computed with its own set") {
    SearchBench scene;
    scene.bench.begin(SearchBench::request(21));
    const auto set_of = [](const Row& row) {
        std::vector<bool> set;
        for (int s = 0; s < 2 * kFakeLayers; ++s)
            set.push_back(row.mask != nullptr && row.mask->skips(s));
        return set;
    };
    std::map<KvSlot, std::vector<bool>> computed;
    std::set<std::vector<bool>> used;
    int mixed = 0;
    scene.backend.on_rows = [&](std::span<const Row> rows) {
        for (const Row& row : rows) computed[row.slot] = set_of(row);
        for (const Row& row : rows) {
            if (row.mask == nullptr) continue;
            const std::vector<bool> own = set_of(row);
            for (const KvSlot slot :
                 std::span{row.path_slots, static_cast<std::size_t>(row.path_count)})
                mixed += computed[slot] == own ? 0 : 1;
            if (rows.size() < std::size_t{2} * kWindow) used.insert(own);
        }
    };
    CHECK(scene.model->skip().count() > 0);
    while (scene.bench.text.size() < 400) {
        if (!scene.bench.context.run_job())
            scene.bench.verdict({plain_next(scene.bench.spec, scene.bench.text)}, 0);
    }
    CHECK(mixed == 0);
    REQUIRE(scene.sets.size() > 1);
    CHECK(used.size() > 1);
    CHECK(scene.sets.back() == scene.model->skip());
}
