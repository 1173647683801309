// Exits after a segment's layers, deferred rows, and rows that die while they run.
#include <cmath>
#include <limits>
#include <random>

#include "actors/protocol/counters.hpp"
#include "actors/segment/exit_evaluator.hpp"
#include "actors/segment/states/adapter_backlog.hpp"
#include "actors/segment/watermark_watch.hpp"
#include "model/sampling/sampler_scratch.hpp"
#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr Attempt kFirst{1};

/// A tree of rows below a root at `first`, the text that will come, and a watch over the rows.
struct WatchedTree {
    WatchedTree(std::mt19937_64& random,
                const WatermarkCell* watermark,
                std::atomic<std::uint64_t>* word) {
        const std::size_t part =
            watch.add({.request = kOne, .attempt = kFirst, .watermark = watermark, .word = word});
        for (int i = 0; i < 12; ++i) text.push_back(static_cast<TokenId>(random() % 3));
        for (std::size_t i = 0; i < 1 + random() % 20; ++i) {
            WatermarkWatch::WatchedRow row{.part = part, .first = first};
            if (i == 0) {
                row.tokens = {text[0]};
            } else {
                row.parent = random() % 3 != 0 ? i - 1 : random() % i;
                row.tokens = paths[*row.parent];
                row.tokens.push_back(static_cast<TokenId>(random() % 3));
            }
            paths.push_back(row.tokens);
            parents.push_back(row.parent);
            watch.add(std::move(row));
        }
    }
    [[nodiscard]] bool is_wrong(std::size_t row, std::size_t known) const {
        const std::size_t length = std::min({paths[row].size(), text.size(), known});
        return !std::equal(paths[row].begin(),
                           paths[row].begin() + static_cast<std::ptrdiff_t>(length), text.begin());
    }

    Position first = 7;
    std::vector<TokenId> text;  // what stands from `first` on
    std::vector<std::vector<TokenId>> paths;
    std::vector<std::optional<std::size_t>> parents;
    CancelToken cancel;
    WatermarkWatch watch{cancel};
};

}  // namespace

TEST_CASE("a row is called stale when the text has another token on its path, and never wrongly") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        WatermarkCell watermark;
        WatchedTree tree{random, &watermark, nullptr};
        std::vector<bool> was_stale(tree.paths.size(), false);
        for (std::size_t at = 0; at < tree.text.size(); at += 1 + random() % 3) {
            // What another attempt says of the position means nothing here.
            watermark.write(kOne, Attempt{2}, {tree.first, tree.text[0] + 1});
            for (std::size_t row = 0; row < tree.paths.size(); ++row) {
                CHECK(tree.watch.stale(row) == was_stale[row]);
            }
            const Position position = tree.first + static_cast<Position>(at);
            watermark.write(kOne, kFirst, {position, tree.text[at]});
            std::size_t stale = 0;
            for (std::size_t row = 0; row < tree.paths.size(); ++row) {
                const bool contradicted =
                    at < tree.paths[row].size() && tree.paths[row][at] != tree.text[at];
                const bool found = tree.watch.stale(row);
                if (contradicted || was_stale[row]) CHECK(found);
                if (found) CHECK(tree.is_wrong(row, at + 1));
                if (tree.parents[row] && tree.watch.stale(*tree.parents[row])) CHECK(found);
                was_stale[row] = found;
                stale += found ? 1 : 0;
            }
            CHECK(tree.cancel.cancelled() == (stale == tree.paths.size()));
        }
    }
}

TEST_CASE("all rows of a cancelled attempt are stale, those of a newer one are not") {
    std::mt19937_64 random{1};
    std::atomic<std::uint64_t> word{CancelBoard::mark_of(kOne, kFirst)};
    WatchedTree tree{random, nullptr, &word};
    CHECK_FALSE(tree.watch.is_cancelled(0));
    CHECK_FALSE(tree.watch.stale(0));
    word = CancelBoard::mark_of(RequestId{2}, Attempt{9});  // the line serves another request
    CHECK_FALSE(tree.watch.stale(0));
    word = CancelBoard::mark_of(kOne, Attempt{2});
    CHECK(tree.watch.is_cancelled(0));
    for (std::size_t row = 0; row < tree.paths.size(); ++row) CHECK(tree.watch.stale(row));
    CHECK(tree.cancel.cancelled());
}

TEST_CASE("rows that died while they ran leave a gap in the tensor and change no token") {
    std::size_t stale = 0;
    std::size_t gaps = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        if (seed % 2 == 0) make_sampled(request, seed);
        const Oracle oracle = plain_answer(request);
        PipelineOptions options{
            .segments = 2 + static_cast<int>(seed % 3), .drafting = Drafting::Babble, .seed = seed};
        options.dispatch.start = StartRule::AtOnce;
        options.dispatch.shape = static_cast<BatchShape>(seed % 2);
        options.dispatch.batches_in_flight_max = 4;
        Pipeline pipeline{options, request, oracle};
        pipeline.world.tap = [&](StageId, std::uint16_t kind, std::span<const std::byte> bytes) {
            if (kind != static_cast<std::uint16_t>(msg::Kind::Batch)) return;
            const auto batch = msg::decode_batch(bytes).value();
            if (batch.tensor_rows > batch.rows.size()) ++gaps;
        };
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const auto answer = pipeline.conductor.log.answer(kOne);
        CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
        for (const auto& backend : pipeline.backends) stale += backend->rows_stale;
    }
    CHECK(stale > 50);
    CHECK(gaps > 20);
}

namespace {

/// A request whose tree has a chain of rows below the root, and an exit that looks at them.
struct ExitBench {
    explicit ExitBench(std::uint64_t seed, ExitOptions options, TokenId end_token = -1)
        : request{small_request(seed)}, early{backend, std::move(options)} {
        if (end_token >= 0) request.end_tokens = {end_token};
        if (seed % 2 == 0) make_sampled(request, seed);
        state =
            std::make_shared<RequestState>(kOne, kFirst, BeginPayload{request}, TreeRole::Names);
        std::mt19937_64 random{seed};
        NodeId at = state->tree().root().id;
        std::vector<NodeId> nodes{at};
        for (KvSlot i = 0; i < 4; ++i) {
            at = *state->tree().grow(at, static_cast<TokenId>(random() % kFakeVocab), -0.5F);
            nodes.push_back(at);
        }
        for (const NodeId node : nodes) {
            rows.push_back(state->tree().send(node, static_cast<KvSlot>(rows.size())));
            rows.back().tensor_row = static_cast<std::uint32_t>(rows.size() - 1);
            for (int k = 0; k < 4; ++k) hidden.push_back(static_cast<float>(random() & 0xffffU));
            hidden.push_back(static_cast<float>(rows.back().token));
        }
    }
    ExitPart evaluate() {
        ExitPart part = early.plan(state, rows);
        early.evaluate(std::span{&part, 1}, hidden, {});
        return part;
    }
    /// The exit's race after row i, computed without it.
    std::vector<Candidate> race(std::size_t i, int count) {
        std::vector<float> logits(kFakeVocab);
        backend.head(HeadId::Final, std::span{hidden}.subspan(i * kFakeDim, kFakeDim), 1, logits);
        std::vector<TokenId> path;
        for (std::size_t k = 1; k <= i; ++k) path.push_back(rows[k].token);
        SamplerScratch scratch;
        return candidates(logits, rows[i].position + 1, {.committed = request.text, .path = path},
                          request.sampling, count, scratch);
    }

    Request request;
    FakeBackend backend{0, 4, 64};
    ExitEvaluator early;
    std::shared_ptr<RequestState> state;
    std::vector<msg::BatchRow> rows;
    std::vector<float> hidden;
};

}  // namespace

TEST_CASE("an exit proposes the best tokens after every row, the trunk's own not counted") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        const auto top = static_cast<std::uint32_t>(1 + seed % 4);
        ExitBench bench{seed, {.sends_candidates = true, .top = top}};
        const auto candidates = bench.early.candidates_of(bench.evaluate());
        REQUIRE(candidates);
        CHECK(candidates->root_position == bench.rows[0].position);
        CHECK(candidates->root_token == bench.rows[0].token);
        const auto nodes = std::span{candidates->nodes}.first(candidates->count);
        // The trunk comes first: node i is row i + 1.
        for (std::size_t i = 0; i < bench.rows.size(); ++i) {
            CAPTURE(i);
            const auto at = static_cast<std::int16_t>(static_cast<int>(i) - 1);
            const bool has_child = i + 1 < bench.rows.size();
            const std::vector<Candidate> race = bench.race(i, static_cast<int>(top) + 1);
            std::vector<std::pair<TokenId, float>> expected;
            for (const Candidate& best : race) {
                const bool is_trunk = has_child && best.token == bench.rows[i + 1].token;
                if (is_trunk) CHECK(nodes[i].log_prob == best.log_prob);
                if (!is_trunk && expected.size() < top) {
                    expected.emplace_back(best.token, best.log_prob);
                }
            }
            std::vector<std::pair<TokenId, float>> proposed;
            for (const msg::ProposedNode& node : nodes) {
                if (node.parent != at || node.origin != msg::Origin::Exit) continue;
                proposed.emplace_back(node.token, node.log_prob);
            }
            CHECK(proposed == expected);
            if (has_child) CHECK(nodes[i].token == bench.rows[i + 1].token);
        }
    }
}

TEST_CASE("an exit lets the next token start early only if it is sure and there is a point") {
    int proposed = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const float gate = 0.9F;
        ExitBench bench{seed, {.proposes = true, .gate = gate}};
        const Candidate best = bench.race(4, 1).front();
        const auto early = bench.early.early(bench.evaluate());
        CHECK(early.has_value() == (best.log_prob > std::log(gate)));
        if (!early) continue;
        ++proposed;
        CHECK(early->count == 5);
        CHECK(early->nodes[4].token == best.token);
        CHECK(early->nodes[4].parent == 3);
        CHECK(early->nodes[4].origin == msg::Origin::Exit);
        // Five rows have no verdict: with a limit of four it stays.
        ExitBench limited{seed, {.proposes = true, .gate = gate, .early_max = 4}};
        CHECK_FALSE(limited.early.early(limited.evaluate()));
        // A token that ends the answer is the verifier's to say.
        ExitBench ending{seed, {.proposes = true, .gate = gate}, best.token};
        CHECK_FALSE(ending.early.early(ending.evaluate()));
    }
    CHECK(proposed > 10);
    CHECK(proposed < 50);
}

TEST_CASE("early tokens run ahead of the verdict, and deferred rows join a later run") {
    std::uint64_t batches_first = 0;
    std::uint64_t batches_last = 0;
    std::uint64_t proposed = 0;
    std::uint64_t right = 0;
    for (const bool defers : {false, true}) {
        batches_first = batches_last = proposed = right = 0;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            CAPTURE(seed);
            const Request request = small_request(seed);
            const Oracle oracle = plain_answer(request);
            PipelineOptions options{.segments = 2, .seed = seed, .exit_at = 1};
            options.exit = {.proposes = true, .gate = 0.5F, .defers = defers};
            options.candidate_right = 1.0;
            options.dispatch.batches_in_flight_max = 8;
            Pipeline pipeline{options, request, oracle};
            pipeline.open_and_begin(kOne, request);
            pipeline.run_until_finished();
            const auto answer = pipeline.conductor.log.answer(kOne);
            CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
            batches_first += pipeline.world.counted(kFirstSegment, counters::kBatches);
            batches_last += pipeline.world.counted(segment_id(2), counters::kBatches);
            proposed += pipeline.world.counted(kFirstSegment, counters::kEarlyProposed);
            right += pipeline.world.counted(kFirstSegment, counters::kEarlyRight);
        }
        CHECK(proposed > 100);
        CHECK(right > proposed / 5);
        CHECK(right <= proposed);
        if (defers) CHECK(batches_last * 4 < batches_first * 3);
    }
}

TEST_CASE("an exit whose candidates are always wrong rests, and no token changes") {
    std::map<bool, std::uint64_t> rows;  // always on? -> rows that exits looked at
    for (const bool always_on : {false, true}) {
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            for (const int place : {1, 2}) {
                CAPTURE(seed);
                Request request = small_request(seed);
                request.max_tokens = 200;
                request.context = 400;
                const Oracle oracle = plain_answer(request);
                PipelineOptions options{.segments = 2, .seed = seed, .exit_at = place};
                options.exit = {.proposes = place == 1, .gate = 0.0F, .always_on = always_on};
                if (place == 2) options.exit.ahead = {HeadId{1}, HeadId{2}};
                options.candidate_right = 0.0;
                options.dispatch.start = StartRule::AtOnce;
                options.dispatch.controller = Controller::On;
                Pipeline pipeline{options, request, oracle};
                pipeline.open_and_begin(kOne, request);
                pipeline.run_until_finished();
                const auto answer = pipeline.conductor.log.answer(kOne);
                CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
                rows[always_on] += pipeline.world.counted(segment_id(place), counters::kExitRows);
            }
        }
    }
    CHECK(rows[false] * 3 < rows[true] * 2);
}

TEST_CASE("an adapter is given every row of the text, whatever dies, rests or is looked at") {
    std::size_t fed = 0;
    std::size_t looked = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        if (seed % 2 == 0) make_sampled(request, seed);
        const Oracle oracle = plain_answer(request);
        PipelineOptions options{
            .segments = 2 + static_cast<int>(seed % 2), .drafting = Drafting::Babble, .seed = seed};
        options.exit_at =
            1 + static_cast<int>(seed / 2 % static_cast<std::uint64_t>(options.segments - 1));
        options.exit = {.head = HeadId::Adapter,
                        .sends_candidates = seed % 3 != 0,
                        .candidates_to = {kTheDraft},
                        .proposes = seed % 3 != 1,
                        .defers = seed % 3 == 0};
        options.on_devices = seed % 4 == 0 ? ~0U : 0U;
        options.dispatch.start = StartRule::AtOnce;
        options.dispatch.shape = static_cast<BatchShape>(seed % 2);
        options.dispatch.batches_in_flight_max = 4;
        if (seed % 5 < 2) {  // it rests at random
            options.dispatch.controller = Controller::On;
            options.dispatch.random_decisions = seed;
        }
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const auto answer = pipeline.conductor.log.answer(kOne);
        CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
        const FakeBackend& backend =
            *pipeline.backends[static_cast<std::size_t>(options.exit_at - 1)];
        CHECK(backend.adapter_rows + AdapterBacklog::kRows >= oracle.answer.size());
        CHECK(backend.adapter_gaps == 0);
        fed += backend.adapter_rows;
        looked += backend.head_rows;
    }
    CHECK(looked > 100);
    CHECK(fed > looked);
}

TEST_CASE("an exit that is off calls its adapter for prompts and for many rows at once") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        Request request = small_request(seed);
        request.max_tokens = 200;
        const Oracle oracle = plain_answer(request);
        PipelineOptions options{.segments = 2, .drafting = Drafting::Oracle, .seed = seed};
        options.exit_at = 1;
        options.exit = {.head = HeadId::Adapter, .sends_candidates = true, .proposes = true};
        options.exit.candidates_to = {kTheDraft};
        options.dispatch.controller = Controller::Plain;
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(kOne, request);
        pipeline.run_until_finished();
        const auto answer = pipeline.conductor.log.answer(kOne);
        CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
        const FakeBackend& backend = *pipeline.backends.front();
        CHECK(backend.adapter_rows + AdapterBacklog::kRows >= oracle.answer.size());
        CHECK(backend.adapter_calls <= 2 + oracle.answer.size() / (AdapterBacklog::kRows / 2));
        CHECK(backend.adapter_gaps == 0);
    }
}

TEST_CASE("rows whose watermark is known when the exit's job starts are not looked at any more") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        for (std::size_t known = 0; known <= 6; ++known) {
            CAPTURE(seed);
            CAPTURE(known);
            ExitBench bench{seed, {.sends_candidates = true, .top = 2}};
            WatermarkCell watermark;
            std::atomic<std::uint64_t> word{CancelBoard::mark_of(kOne, kFirst)};
            ExitPart part = bench.early.plan(bench.state, bench.rows);
            part.watermark = {
                .request = kOne, .attempt = kFirst, .watermark = &watermark, .word = &word};
            const Position root = bench.rows[0].position;
            // The text has grown by `known` tokens: so many rows have a token after them.
            if (known > 0) watermark.write(kOne, kFirst, {root + static_cast<Position>(known), 1});
            bench.early.evaluate(std::span{&part, 1}, bench.hidden, {});
            REQUIRE(part.rows.size() == 5 - std::min<std::size_t>(known, 5));
            CHECK(bench.backend.head_rows == part.rows.size());
            for (const ExitRow& row : part.rows) CHECK_FALSE(row.best.empty());
            if (!part.rows.empty()) {
                CHECK(part.rows.front().node == bench.rows[known].node);
                const auto candidates = bench.early.candidates_of(part);
                REQUIRE(candidates);
                for (const msg::ProposedNode& node :
                     std::span{candidates->nodes}.first(candidates->count)) {
                    if (node.origin != msg::Origin::Exit) continue;
                    CHECK(node.parent + 1 >= static_cast<std::int16_t>(known));
                }
            }
            word = CancelBoard::mark_of(kOne, Attempt{2});
            ExitEvaluator::drop_decided(part);
            CHECK(part.rows.empty());
        }
    }
}

TEST_CASE("heads that look ahead propose after every verdict") {
    const Request request = small_request(3);
    const Oracle oracle = plain_answer(request);
    PipelineOptions options{.segments = 2, .exit_at = 2};
    options.exit = {.ahead = {HeadId{1}, HeadId{2}}, .ahead_top = 2, .always_on = true};
    options.candidate_right = 1.0;
    options.dispatch.start = StartRule::AtOnce;
    options.dispatch.batches_in_flight_max = 2;
    Pipeline pipeline{options, request, oracle};
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    const auto answer = pipeline.conductor.log.answer(kOne);
    CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
    CHECK(pipeline.world.counted(segment_id(2), counters::kExitRows) > 10);
    CHECK(pipeline.conductor.verdicts < 40);
}

TEST_CASE("exit options out of range are refused by name") {
    const auto said = [](const ExitOptions& options) {
        const Status status = validate(options);
        return status.ok() ? std::string{} : status.error().what;
    };
    CHECK(said({}).empty());
    CHECK(said({.top = 9}) == "exit: top = 9, must be 1 .. 8");
    CHECK(said({.early_max = 0}) == "exit: early_max = 0, must be 1 .. 32");
    CHECK(said({.ahead_top = 0}) == "exit: ahead_top = 0, must be 1 .. 8");
    CHECK(said({.gate = 1.5F}).starts_with("exit: gate = 1.5"));
    CHECK(said({.gate = std::numeric_limits<float>::quiet_NaN()}).starts_with("exit: gate = "));
    CHECK(said({.defers = true}).starts_with("exit: defers = true"));
    CHECK(said({.defer_limit = Micros{0}}).starts_with("exit: defer_limit = 0 us"));
}
