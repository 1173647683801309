// Every transition of the conductor's diagram, message by message: a context that only records.
// Long because the diagram has many edges and each test is one of them.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/counters.hpp"
#include "actors/protocol/message_checks.hpp"
#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr StageId kDraft{1};
constexpr StageId kVerifier{2};
constexpr StageId kFirst{3};
constexpr int kVocab = 100;
constexpr std::int32_t kSlots = 128;

class Recorder final : public StageContext {
public:
    struct Posted {
        StageId to;
        control::Begin begin;
        Request request;
    };
    [[nodiscard]] Micros now() const override { return clock; }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        REQUIRE(kind == static_cast<std::uint16_t>(msg::Kind::Stop));
        stops.emplace_back(to, decode_message<msg::Stop>(bytes).value().route);
        return Push::Ok;
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        timers.emplace(clock + delay, std::move(wake));
    }
    void submit(const JobLabel&,
                std::function<JobOutcome()>,
                std::function<void(JobOutcome)>) override {
        FAIL("a conductor computes nothing");
    }
    [[nodiscard]] std::uint64_t random() override { return 4; }
    void trace(TraceEvent event) override { ++traced[event.kind]; }
    void count(Counter counter, std::uint64_t add) override { counted[counter] += add; }
    void set(Gauge gauge, std::uint64_t value) override { gauges[gauge] = value; }
    [[nodiscard]] StageId self() const override { return StageId{0}; }
    [[nodiscard]] Epoch epoch() const override { return Epoch{1}; }
    void post(StageId to, const control::Message& message) override {
        const auto& begin = std::get<control::Begin>(message);
        posted.push_back({to, begin, decode_request(begin.payload).value()});
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId) override { return nullptr; }
    [[nodiscard]] TensorConsumer* tensors_from(StageId) override { return nullptr; }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId) override {
        return nullptr;
    }
    void cancel_before(RequestId request, Attempt valid) override { valid_from[request] = valid; }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId) override { return nullptr; }
    void publish_watermark(RequestId, Attempt, Position, TokenId) override {}
    void fail(Error error) override { failure = std::move(error); }
    void stop() override { left = true; }

    void pass(Micros time) {
        clock += time;
        while (!timers.empty() && timers.begin()->first <= clock) {
            timers.extract(timers.begin()).mapped()();
        }
    }

    Micros clock{1000};
    std::vector<Posted> posted;
    std::vector<std::pair<StageId, msg::Route>> stops;
    std::multimap<Micros, std::function<void()>> timers;
    std::map<RequestId, Attempt> valid_from;
    std::map<Counter, std::uint64_t> counted;
    std::map<Gauge, std::uint64_t> gauges;
    std::map<TraceKind, int> traced;
    std::optional<Error> failure;
    bool left = false;
};

ConductorPlan plan() {
    ConductorPlan made;
    made.verifier = kVerifier;
    made.begin_to = {{.id = kDraft, .essential = false, .name = "draft"},
                     {.id = kVerifier, .name = "segment-2"},
                     {.id = kFirst, .name = "segment-1"}};
    made.recovery_limit = Micros{5'000'000};
    return made;
}

Request request(std::size_t length = 4, Position context = 64) {
    Request made;
    for (std::size_t i = 0; i < length; ++i) made.text.push_back(static_cast<TokenId>(i));
    made.max_tokens = 30;
    made.context = context;
    return made;
}

struct Bench {
    explicit Bench(ConductorPlan with = plan()) : conductor{std::move(with), kVocab, kSlots} {
        conductor.on_start(context);
    }
    struct Ear {
        std::vector<TokenId> tokens;
        int ends = 0;
        AnswerFigures figures;
        Status status;
    };
    AnswerOrder order(const Request& spec) {
        ears.push_back(std::make_unique<Ear>());
        Ear* ear = ears.back().get();
        AnswerOrder made;
        made.request = spec;
        made.on_token = [ear](TokenId token) {
            ear->tokens.push_back(token);
            return Go::On;
        };
        made.on_end = [ear](const AnswerFigures& figures, const Status& status) {
            ++ear->ends;
            ear->figures = figures;
            ear->status = status;
        };
        return made;
    }
    RequestId submit(const Request& spec) { return conductor.submit(order(spec)).value(); }
    void verdict(RequestId id,
                 std::uint32_t attempt,
                 Position base,
                 const std::vector<TokenId>& tokens,
                 FinishReason finish = FinishReason::None) {
        msg::Verdict made{};
        made.route = {id, Attempt{attempt}, Epoch{1}};
        made.base = base;
        made.count = static_cast<std::uint32_t>(tokens.size());
        made.wave_rows = made.count + 1;
        made.depth = made.count;
        made.finish = finish;
        std::copy(tokens.begin(), tokens.end(), made.tokens.begin());
        conductor.handle(kVerifier, static_cast<std::uint16_t>(msg::Kind::Verdict),
                         std::as_bytes(std::span{&made, 1}));
    }
    void lose(StageId stage) { conductor.on_peer(stage, PeerChange::Lost); }
    void join(StageId stage) { conductor.on_peer(stage, PeerChange::Joined); }

    Recorder context;
    ConductorActor conductor;
    std::vector<std::unique_ptr<Ear>> ears;
};

std::vector<TokenId> copy(std::span<const TokenId> tokens) {
    return {tokens.begin(), tokens.end()};
}

}  // namespace

TEST_CASE("a request is posted to every stage, and to those that act first last") {
    Bench bench;
    const RequestId id = bench.submit(request());
    REQUIRE(bench.context.posted.size() == 3);
    CHECK(bench.context.posted[0].to == kDraft);
    CHECK(bench.context.posted[1].to == kVerifier);
    CHECK(bench.context.posted[2].to == kFirst);
    for (const auto& posted : bench.context.posted) {
        CHECK(posted.begin.request == id);
        CHECK(posted.begin.attempt == Attempt{1});
        CHECK(posted.request.text == request().text);
        CHECK(posted.request.replayed == 0);
        CHECK(posted.request.reuse == 0);
    }
    CHECK(bench.context.gauges[gauges::kRequests] == 1);
}

TEST_CASE("an order that is taken before the loop runs begins with the loop") {
    ConductorActor conductor{plan(), kVocab, kSlots};
    AnswerOrder order;
    order.request = request();
    int ends = 0;
    order.on_token = [](TokenId) { return Go::On; };
    order.on_end = [&](const AnswerFigures&, const Status&) { ++ends; };
    const RequestId id = conductor.submit(std::move(order)).value();
    Recorder context;
    conductor.on_start(context);
    CHECK(context.posted.size() == 3);
    conductor.cancel(id);
    CHECK(ends == 1);
}

TEST_CASE("an answer's account has each verdict that the log takes, and no stale or late one") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51, 52});  // four rows in a chain, two of them accepted
    bench.lose(kFirst);
    bench.join(kFirst);
    bench.verdict(id, 1, 7, {52});  // of the attempt before the loss
    bench.verdict(id, 2, 7, {53});
    bench.verdict(id, 2, 8, {54, 55}, FinishReason::EndToken);
    bench.verdict(id, 2, 10, {56});
    const AnswerFigures& figures = bench.ears[0]->figures;
    CHECK(figures.generated_tokens == 6);
    const VerdictTally& verdicts = figures.verdicts;
    CHECK(verdicts.waves == 3);
    CHECK(verdicts.candidates + verdicts.waves == 4 + 2 + 3);
    CHECK(verdicts.emitted == 6);
    CHECK(verdicts.accepted == 3);
    CHECK(std::vector(verdicts.accepted_at.begin(), verdicts.accepted_at.begin() + 3) ==
          std::vector<std::int64_t>{2, 1, 0});
    CHECK(copy(bench.conductor.text(id)).back() == 55);
}

TEST_CASE("tokens are handed on in order and the verdict that ends the answer ends it once") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51});
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51});
    CHECK(bench.ears[0]->ends == 0);
    bench.verdict(id, 1, 6, {52}, FinishReason::EndToken);
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.ears[0]->figures.finish == FinishReason::EndToken);
    CHECK(bench.ears[0]->figures.generated_tokens == 3);
    CHECK(bench.ears[0]->figures.verdicts.accepted == 1);
    CHECK(bench.ears[0]->figures.verdicts.waves == 2);
    CHECK(bench.context.counted[counters::kTokensCommitted] == 3);
    CHECK(bench.context.traced[TraceKind::Commit] == 2);
    bench.verdict(id, 1, 7, {53});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->tokens.size() == 3);
    CHECK(copy(bench.conductor.text(id)) == std::vector<TokenId>{0, 1, 2, 3, 50, 51, 52});
    CHECK(bench.conductor.open_requests() == 0);
    CHECK(bench.context.stops.empty());
}

TEST_CASE("a callback that says stop stops all stages and keeps what it saw, not more") {
    Bench bench;
    AnswerOrder order = bench.order(request());
    order.on_token = [](TokenId token) { return token == 51 ? Go::Stop : Go::On; };
    const RequestId id = bench.conductor.submit(std::move(order)).value();
    bench.verdict(id, 1, 4, {50, 51, 52});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.context.stops.size() == 3);
    CHECK(bench.context.stops[0].second.attempt == Attempt{1});
    CHECK(bench.context.valid_from[id] == Attempt{2});
    CHECK(copy(bench.conductor.text(id)) == std::vector<TokenId>{0, 1, 2, 3, 50, 51});
    // What the stages committed after the stop is not reused.
    AnswerOrder more = bench.order(request(2));
    more.continues = id;
    REQUIRE(bench.conductor.submit(std::move(more)));
    const Request& posted = bench.context.posted.back().request;
    CHECK(posted.text == std::vector<TokenId>{0, 1, 2, 3, 50, 51, 0, 1});
    CHECK(posted.reuse == 6);
    CHECK(bench.context.posted.back().begin.attempt == Attempt{2});
    CHECK(bench.context.posted.back().begin.request == id);
}

TEST_CASE("a lost segment raises the attempt, stops the old one, and is waited for") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 4, {50, 51});
    bench.context.posted.clear();
    bench.lose(kFirst);
    CHECK_FALSE(bench.conductor.pipeline_whole());
    CHECK(bench.context.valid_from[id] == Attempt{2});
    CHECK(bench.context.stops.size() == 3);
    CHECK(bench.context.stops[0].second.attempt == Attempt{1});
    CHECK(bench.context.posted.empty());
    // A verdict of the old attempt was on its way: it is counted, nothing else.
    bench.verdict(id, 1, 6, {52});
    CHECK(bench.ears[0]->tokens.size() == 2);
    CHECK(bench.conductor.fenced() == 1);
    CHECK(bench.context.counted[counters::kFenced] == 1);
    CHECK(bench.context.traced[TraceKind::Fenced] == 1);
    bench.join(kFirst);
    CHECK(bench.conductor.pipeline_whole());
    REQUIRE(bench.context.posted.size() == 3);
    for (const auto& posted : bench.context.posted) {
        CHECK(posted.begin.attempt == Attempt{2});
        CHECK(posted.request.text == std::vector<TokenId>{0, 1, 2, 3, 50, 51});
        CHECK(posted.request.replayed == 2);
        CHECK(posted.request.reuse == 0);
    }
    CHECK(bench.context.counted[counters::kReplays] == 1);
    bench.verdict(id, 1, 6, {52});
    CHECK(bench.ears[0]->tokens.size() == 2);
    bench.verdict(id, 2, 6, {53}, FinishReason::MaxTokens);
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51, 53});
    CHECK(bench.ears[0]->figures.replays == 1);
    CHECK(bench.ears[0]->ends == 1);
}

TEST_CASE("nothing begins before all lost segments have joined") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.lose(kFirst);
    bench.lose(kVerifier);
    bench.context.posted.clear();
    const RequestId late = bench.submit(request());
    bench.join(kFirst);
    bench.lose(kFirst);  // again, before anything began
    bench.join(kVerifier);
    CHECK(bench.context.posted.empty());
    bench.join(kFirst);
    REQUIRE(bench.context.posted.size() == 6);
    CHECK(bench.context.posted[0].begin.request == id);  // it has waited longest
    CHECK(bench.context.posted[0].begin.attempt == Attempt{2});
    CHECK(bench.context.posted[3].begin.request == late);
    CHECK(bench.context.posted[3].begin.attempt == Attempt{1});
}

TEST_CASE("a lost draft changes no attempt and gets its Begin when it is back") {
    Bench bench;
    const RequestId id = bench.submit(request());
    bench.lose(kDraft);
    CHECK(bench.context.stops.empty());
    CHECK(bench.conductor.pipeline_whole());
    bench.verdict(id, 1, 4, {50});
    bench.context.posted.clear();
    const RequestId second = bench.submit(request());
    CHECK(bench.context.posted.size() == 2);  // nothing is posted to the lost one
    bench.context.posted.clear();
    bench.join(kDraft);
    REQUIRE(bench.context.posted.size() == 2);
    CHECK(bench.context.posted[0].to == kDraft);
    CHECK(bench.context.posted[0].begin.request == id);
    CHECK(bench.context.posted[0].begin.attempt == Attempt{1});
    CHECK(bench.context.posted[0].request.text == std::vector<TokenId>{0, 1, 2, 3, 50});
    CHECK(bench.context.posted[0].request.replayed == 1);
    CHECK(bench.context.posted[1].begin.request == second);
    CHECK(bench.context.counted[counters::kReplays] == 0);
}

TEST_CASE("a request that meets a loss in a row at every try is given up as poison") {
    Bench bench;
    const RequestId poison = bench.submit(request());
    for (int i = 0; i < 2; ++i) {
        bench.lose(kVerifier);
        CHECK(bench.ears[0]->ends == 0);
        bench.join(kVerifier);
    }
    bench.lose(kVerifier);
    CHECK(bench.ears[0]->ends == 1);
    REQUIRE_FALSE(bench.ears[0]->status);
    CHECK(bench.ears[0]->status.error().code == Errc::PeerGone);
    CHECK(bench.ears[0]->status.error().what.find("segment-2") != std::string::npos);
    bench.context.posted.clear();
    bench.join(kVerifier);
    CHECK(bench.context.posted.empty());
    bench.verdict(poison, 3, 4, {50});
    CHECK(bench.ears[0]->tokens.empty());
}

TEST_CASE("a token between two losses and a loss while it waits do not make a request poison") {
    Bench bench;
    const RequestId id = bench.submit(request());
    for (std::uint32_t i = 0; i < 6; ++i) {
        bench.verdict(id, i + 1, static_cast<Position>(4 + i), {50});
        bench.lose(kVerifier);
        bench.lose(kFirst);
        bench.lose(kVerifier);
        bench.join(kVerifier);
        bench.join(kFirst);
    }
    CHECK(bench.ears[0]->ends == 0);
    CHECK(bench.context.posted.back().begin.attempt == Attempt{7});
    CHECK(bench.context.posted.back().request.replayed == 6);
}

TEST_CASE("a pipeline that does not come back fails what waits for it, by name") {
    Bench bench;
    bench.submit(request());
    bench.lose(kFirst);
    bench.context.pass(Micros{3'000'000});
    bench.submit(request());  // it waits from now on
    bench.context.pass(Micros{2'000'000});
    CHECK(bench.ears[0]->ends == 1);
    REQUIRE_FALSE(bench.ears[0]->status);
    CHECK(bench.ears[0]->status.error().what.find("waited 5000 ms for segment-1") !=
          std::string::npos);
    CHECK(bench.ears[1]->ends == 0);
    bench.join(kFirst);
    bench.context.pass(Micros{9'000'000});
    CHECK(bench.ears[1]->ends == 0);  // the timer of its wait is stale
    CHECK(bench.conductor.open_requests() == 1);
}

TEST_CASE("an answer whose client is gone is stopped, running or waiting") {
    Bench bench;
    bool gone = false;
    for (int i = 0; i < 2; ++i) {
        AnswerOrder order = bench.order(request());
        order.cancelled = [&gone] { return gone; };
        REQUIRE(bench.conductor.submit(std::move(order)));
        if (i == 0) bench.context.pass(Micros{100'000});
        if (i == 0) bench.lose(kFirst);
    }
    bench.join(kFirst);
    CHECK(bench.ears[0]->ends == 0);
    bench.lose(kVerifier);
    bench.join(kVerifier);
    bench.context.stops.clear();
    gone = true;
    bench.context.pass(Micros{20'000});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.ears[1]->ends == 1);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.context.stops.size() == 6);
    bench.context.pass(Micros{9'000'000});
    CHECK(bench.context.timers.empty());
    CHECK(bench.ears[0]->ends == 1);
}

TEST_CASE("a request that was never begun is cancelled without a Stop") {
    Bench bench;
    bench.lose(kFirst);
    const RequestId id = bench.submit(request());
    bench.conductor.cancel(id);
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.context.stops.empty());
    bench.conductor.cancel(id);
    CHECK(bench.ears[0]->ends == 1);
    bench.join(kFirst);
    CHECK(bench.context.posted.empty());
}

TEST_CASE("requests wait for room in the KV caches, first come, first served") {
    Bench bench;
    const RequestId first = bench.submit(request(4, 96));
    bench.context.posted.clear();
    bench.submit(request(4, 64));
    bench.submit(request(4, 32));  // it would fit, but is not the next
    CHECK(bench.context.posted.empty());
    CHECK(bench.context.gauges[gauges::kQueueDepth] == 2);
    bench.verdict(first, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.context.posted.size() == 6);
    CHECK(bench.context.gauges[gauges::kQueueDepth] == 0);
}

TEST_CASE("a request that waits for room only is not failed for a pipeline that is back") {
    Bench bench;
    bench.lose(kFirst);
    for (int i = 0; i < 3; ++i) bench.submit(request(4, 96));
    bench.join(kFirst);
    CHECK(bench.context.posted.size() == 3);
    bench.context.pass(Micros{9'000'000});
    CHECK(bench.ears[1]->ends == 0);
    CHECK(bench.ears[2]->ends == 0);
}

TEST_CASE("a further turn reuses what the stages hold, and nothing after a loss") {
    for (const bool loses : {false, true}) {
        Bench bench;
        const RequestId id = bench.submit(request());
        bench.verdict(id, 1, 4, {50, 51}, FinishReason::EndToken);
        if (loses) {
            bench.lose(kFirst);
            bench.join(kFirst);
        }
        AnswerOrder more = bench.order(request(3));
        more.continues = id;
        CHECK(bench.conductor.submit(std::move(more)).value() == id);
        const auto& posted = bench.context.posted.back();
        CHECK(posted.begin.attempt == Attempt{2});
        CHECK(posted.request.text == std::vector<TokenId>{0, 1, 2, 3, 50, 51, 0, 1, 2});
        CHECK(posted.request.replayed == 0);
        CHECK(posted.request.reuse == (loses ? 0 : 5));
        bench.verdict(id, 2, 9, {60}, FinishReason::EndToken);
        CHECK(bench.ears[1]->tokens == std::vector<TokenId>{60});
        CHECK(bench.ears[1]->figures.prompt_tokens == (loses ? 9 : 4));
    }
}

TEST_CASE("what cannot be continued is refused: unknown, running or closed requests") {
    Bench bench;
    const RequestId id = bench.submit(request());
    const auto continued = [&](RequestId what) {
        AnswerOrder more = bench.order(request(3));
        more.continues = what;
        return bench.conductor.submit(std::move(more));
    };
    CHECK_FALSE(continued(RequestId{77}));
    CHECK_FALSE(continued(id));
    bench.conductor.close(id);  // it is open: nothing happens
    CHECK(bench.conductor.open_requests() == 1);
    bench.conductor.cancel(id);
    bench.conductor.close(id);
    CHECK(bench.conductor.text(id).empty());
    CHECK_FALSE(continued(id));
    CHECK(bench.submit(request()) > id);  // ids are never used twice
}

TEST_CASE("what drains takes nothing new, and stops what is not done in time with an error") {
    Bench bench;
    const RequestId first = bench.submit(request(4, 32));
    bench.submit(request(4, 32));
    bench.lose(kDraft);
    bench.conductor.drain(Micros{1'000'000});
    CHECK_FALSE(bench.conductor.submit(bench.order(request())));
    bench.verdict(first, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.ears[0]->status.ok());
    CHECK(bench.ears[1]->ends == 0);
    bench.context.pass(Micros{1'000'000});
    CHECK(bench.ears[1]->ends == 1);
    CHECK(bench.ears[1]->status.error().code == Errc::Cancelled);
    CHECK(bench.context.stops.size() == 3);
    CHECK(bench.conductor.open_requests() == 0);
}

TEST_CASE("callbacks may order, cancel and close") {
    Bench bench;
    AnswerOrder order = bench.order(request());
    RequestId id;
    order.on_token = [&](TokenId) {
        bench.conductor.cancel(id);
        return Go::On;
    };
    order.on_end = [&, ear = bench.ears[0].get()](const AnswerFigures&, const Status&) {
        ++ear->ends;
        bench.conductor.close(id);
        bench.submit(request(7));
    };
    id = bench.conductor.submit(std::move(order)).value();
    bench.verdict(id, 1, 4, {50, 51});
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.context.posted.size() == 6);
    CHECK(bench.context.posted.back().request.text.size() == 7);
    CHECK(bench.conductor.open_requests() == 1);
}

TEST_CASE("the conductor refuses requests out of range and messages that are not the verifier's") {
    Bench bench;
    CHECK_FALSE(bench.conductor.submit(bench.order(request(4, kSlots + 1))));
    CHECK_FALSE(bench.conductor.submit(bench.order(request(0))));
    const RequestId id = bench.submit(request());
    bench.verdict(id, 1, 9, {50});
    REQUIRE(bench.context.failure);
    CHECK(bench.context.failure->what.find("position 9") != std::string::npos);
    bench.context.failure.reset();
    bench.verdict(id, 1, 4, {50, kVocab});
    REQUIRE(bench.context.failure);
    CHECK(bench.context.failure->what == "stage 2: a verdict has tokens[1] = 100");
    CHECK(bench.ears[0]->tokens.empty());
    CHECK(bench.conductor.text(id).size() == 4);
    bench.context.failure.reset();
    const msg::Verdict verdict{};
    bench.conductor.handle(kFirst, static_cast<std::uint16_t>(msg::Kind::Verdict),
                           std::as_bytes(std::span{&verdict, 1}));
    CHECK(bench.context.failure);
    bench.conductor.leave();
    CHECK(bench.context.left);
}
