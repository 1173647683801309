// Requests that kill or hang the draft: which of them continue without the draft, which of
// the losses are excused, and when a request counts as harmless.
#include <optional>
#include <vector>

#include "ipc/base/limits.hpp"
#include "tests/unit/actors/conductor_bench.hpp"

using namespace paceline;                  // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::conductor_test;  // NOLINT(google-build-using-namespace): the same

namespace {

using Requests = std::vector<RequestId>;

void lose_and_join(Bench& bench, StageId stage, int times = 1) {
    for (int i = 0; i < times; ++i) {
        bench.lose(stage);
        bench.join(stage);
    }
}

/// The requests whose Begins the draft was sent since the last look.
Requests sent_to(Bench& bench, StageId stage = kDraft) {
    Requests sent;
    for (const auto& posted : bench.context.posted) {
        if (posted.to == stage) sent.push_back(posted.begin.request);
    }
    return sent;
}

Requests newly_sent(Bench& bench) {
    Requests sent = sent_to(bench);
    bench.context.posted.clear();
    return sent;
}

/// A request that gets a token with each call.
struct Decoding {
    RequestId id;
    std::uint32_t attempt = 1;
    Position base = 4;

    void alone(Bench& bench, FinishReason finish = FinishReason::None) {
        bench.verdict(id, attempt, base++, {50}, finish, false);
    }
    void with_candidates(Bench& bench, FinishReason finish = FinishReason::None) {
        bench.verdict(id, attempt, base++, {50}, finish, true);
    }
    /// For so long, without candidates.
    void run_for(Bench& bench, int seconds) {
        for (; seconds > 0; --seconds) {
            bench.context.pass(Micros{1'000'000});
            alone(bench);
        }
    }
};

Request long_request() {
    Request made = request(4, 64);
    made.max_tokens = 60;
    return made;
}

}  // namespace

TEST_CASE(
    "a request that kills the draft again and again goes on without it, and no other one does") {
    Bench bench;
    const RequestId poison = bench.submit(request(4, 32));
    const RequestId other = bench.submit(request(4, 32));
    CHECK(newly_sent(bench) == Requests{poison, other});
    lose_and_join(bench, kDraft);
    CHECK(newly_sent(bench) == Requests{poison, other});  // one loss is an accident
    lose_and_join(bench, kDraft);
    CHECK(newly_sent(bench) == Requests{poison});
    bench.verdict(poison, 1, 4, {50});  // a token says nothing of the draft
    lose_and_join(bench, kDraft);
    CHECK(newly_sent(bench) == Requests{poison});
    lose_and_join(bench, kDraft);
    CHECK(newly_sent(bench) == Requests{other});
    CHECK(bench.context.excused.empty());
    bench.verdict(poison, 1, 5, {51});
    bench.verdict(other, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.context.excused.empty());  // it knew what an earlier incarnation had proposed
    const RequestId third = bench.submit(request(4, 32));
    bench.verdict(third, 1, 4, {50}, FinishReason::EndToken);
    CHECK(bench.context.excused == std::vector<StageId>(4, kDraft));  // the draft works
    // It goes on without the draft until its end, also in its next attempt.
    (void)newly_sent(bench);
    lose_and_join(bench, kFirst);
    CHECK(newly_sent(bench).empty());
    bench.verdict(poison, 2, 6, {52}, FinishReason::EndToken);
    CHECK(bench.ears[0]->tokens == std::vector<TokenId>{50, 51, 52});
    const RequestId next = bench.submit(request(1, 32));
    CHECK(newly_sent(bench) == Requests{next});
}

TEST_CASE("a request that hangs the draft for less time than clears it goes on without it, too") {
    Bench bench;
    Decoding hangs{bench.submit(long_request())};
    for (int i = 0; i < 3; ++i) {
        CHECK(newly_sent(bench) == Requests{hangs.id});
        hangs.run_for(bench, 15);  // until the hang is noticed; tokens come without the draft
        lose_and_join(bench, kDraft);
    }
    CHECK(newly_sent(bench).empty());
}

TEST_CASE("a pause of the machine clears no request at the draft") {
    Bench bench;
    Decoding deadly{bench.submit(long_request())};
    for (int i = 0; i < 3; ++i) {
        CHECK(newly_sent(bench) == Requests{deadly.id});
        bench.context.pass(Micros{3'600'000'000});
        deadly.alone(bench);
        lose_and_join(bench, kDraft);
    }
    CHECK(newly_sent(bench).empty());
}

TEST_CASE("a request with which the draft lives for long enough is not suspected of later losses") {
    Bench bench;
    SUBCASE("it proposes nothing") {
        for (int i = 0; i < 9; ++i) {
            Decoding innocent{bench.submit(long_request())};
            lose_and_join(bench, kDraft, 2);
            innocent.run_for(bench, 21);
            lose_and_join(bench, kDraft, 2);
            (void)newly_sent(bench);
            innocent.run_for(bench, 21);
            lose_and_join(bench, kDraft);
            CHECK(newly_sent(bench) == Requests{innocent.id});
            bench.conductor.cancel(innocent.id);
        }
    }
    SUBCASE("candidates of its own are verified") {
        Decoding innocent{bench.submit(long_request())};
        lose_and_join(bench, kDraft, 2);
        bench.context.posted.clear();
        for (std::uint32_t i = 0; i <= kGammaMax; ++i) {
            bench.context.pass(Micros{500'000});
            innocent.with_candidates(bench);
        }
        lose_and_join(bench, kDraft, 2);
        CHECK(newly_sent(bench) == Requests{innocent.id, innocent.id});
    }
    SUBCASE("but candidates of an incarnation that was lost prove nothing") {
        Decoding deadly{bench.submit(long_request())};
        lose_and_join(bench, kDraft, 2);
        bench.context.posted.clear();
        for (std::uint32_t i = 0; i < kGammaMax; ++i) {
            bench.context.pass(Micros{500'000});
            deadly.with_candidates(bench);
        }
        lose_and_join(bench, kDraft);
        CHECK(newly_sent(bench).empty());
    }
}

TEST_CASE(
    "while a quarantined request is isolated at the draft the others go on without it, then get "
    "it") {
    Bench bench;
    Decoding first{bench.submit(long_request())};
    const RequestId second = bench.submit(request(4, 32));
    lose_and_join(bench, kDraft, 2);
    (void)newly_sent(bench);
    bench.verdict(second, 1, 4, {50});
    first.run_for(bench, 19);
    CHECK(newly_sent(bench).empty());
    first.run_for(bench, 2);
    CHECK(newly_sent(bench) == Requests{second});
}

TEST_CASE("a draft that dies of every request is excused of none") {
    Bench bench;
    for (int i = 0; i < 4; ++i) {
        const RequestId id = bench.submit(request());
        lose_and_join(bench, kDraft, 3);
        bench.verdict(id, 1, 4, {50}, FinishReason::EndToken);
    }
    CHECK(bench.context.excused.empty());
}

TEST_CASE("an answer that ended before the draft's death was noticed does not show that it works") {
    Bench bench;
    Decoding one{bench.submit(long_request())};
    for (int i = 0; i < 8; ++i) {
        Decoding brief{bench.submit(request(4, 32))};
        one.alone(bench);
        brief.alone(bench, FinishReason::EndToken);
        CHECK(bench.ears.back()->status.ok());
        lose_and_join(bench, kDraft);
    }
    CHECK(bench.context.excused.empty());
}

TEST_CASE("who is lost again before it was at work has died of no request") {
    Bench bench;
    bench.submit(request());
    bench.lose(kDraft);
    for (int i = 0; i < 5; ++i) bench.lose(kDraft);
    bench.join(kDraft);
    lose_and_join(bench, kVerifier, 3);
    CHECK(bench.ears[0]->ends == 1);
    CHECK(bench.context.excused == std::vector{kDraft, kVerifier, kVerifier, kVerifier});
}

namespace {

constexpr StageId kCorrect{4};

/// The draft and correct in one process.
ConductorPlan plan_with_correct() {
    ConductorPlan made = plan();
    made.begin_to[0].home = kDraft;
    made.begin_to.insert(
        made.begin_to.begin(),
        ConductorPlan::Stage{
            .id = kCorrect, .essential = false, .name = "correct", .home = kDraft});
    return made;
}

void lose_and_join_both(Bench& bench) {
    for (const StageId stage : {kDraft, kCorrect}) bench.lose(stage);
    for (const StageId stage : {kDraft, kCorrect}) bench.join(stage);
}

}  // namespace

TEST_CASE("a death of a process with draft and correct is one death, and excused once") {
    Bench bench{plan_with_correct()};
    const RequestId id = bench.submit(request());
    CHECK(sent_to(bench, kDraft) == Requests{id});
    CHECK(sent_to(bench, kCorrect) == Requests{id});
    SUBCASE("by a poison request that was present") {
        lose_and_join_both(bench);
        lose_and_join(bench, kVerifier, 3);
        CHECK(bench.context.excused == std::vector{kDraft, kVerifier, kVerifier, kVerifier});
    }
    SUBCASE("by a request that goes on without both") {
        bench.context.posted.clear();
        for (int i = 0; i < 2; ++i) lose_and_join_both(bench);
        CHECK(sent_to(bench, kDraft) == Requests{id, id});
        CHECK(sent_to(bench, kCorrect) == Requests{id, id});
        bench.context.posted.clear();
        lose_and_join_both(bench);
        CHECK(bench.context.posted.empty());
        Decoding other{bench.submit(long_request())};
        CHECK(sent_to(bench, kCorrect) == Requests{other.id});
        other.run_for(bench, 21);
        CHECK(bench.context.excused == std::vector<StageId>(3, kDraft));
    }
}
