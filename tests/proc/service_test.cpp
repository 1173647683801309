// A service: orders of many threads, queue, deadlines, readers that do not read, stages that die.
#include <algorithm>
#include <signal.h>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/proc/tiny_service.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same
using std::chrono::milliseconds;

TEST_CASE("many threads submit and cancel, and each gets the answer of one who asks alone") {
    const Tiny tiny{{.running = 4, .waiting = 64}};
    const AnswerPiece alone = tiny.whole(tiny.order(40));
    REQUIRE(alone.status.ok());
    REQUIRE(alone.ids.size() > 8);
    std::vector<std::thread> clients;
    for (int client = 0; client < 16; ++client) {
        clients.emplace_back([&, client] {
            for (int i = 0; i < 4; ++i) {
                const Submitted taken = tiny.service->submit(tiny.order(40));
                REQUIRE(taken.outcome == SubmitOutcome::Accepted);
                const bool cancels = (i + client) % 3 == 0;
                if (cancels) tiny.service->cancel(taken.id);
                const AnswerPiece answer = Tiny::wait(taken);
                CHECK(answer.status.ok());
                REQUIRE(answer.ids.size() <= alone.ids.size());
                CHECK(std::equal(answer.ids.begin(), answer.ids.end(), alone.ids.begin()));
                if (answer.stats.finish != FinishReason::Interrupted) {
                    CHECK(answer.ids == alone.ids);
                    CHECK(answer.text == alone.text);
                }
            }
        });
    }
    for (std::thread& client : clients) client.join();
    CHECK(tiny.service->wait_idle(kLong));
    CHECK(tiny.service->snapshot().waiting == 0);
}

TEST_CASE("a killed stage is a pause: the service says so, and the answers stay the same") {
    const Tiny tiny{{.running = 4, .waiting = 8}};
    const AnswerPiece alone = tiny.whole(tiny.order(48));
    for (const std::size_t stage : {0UL, 1UL}) {
        std::vector<Submitted> taken;
        for (int i = 0; i < 8; ++i) taken.push_back(tiny.service->submit(tiny.order(48)));
        const pid_t first = tiny.pid_of(stage);
        ::kill(first, SIGKILL);
        for (const Submitted& each : taken) {
            REQUIRE(each.outcome == SubmitOutcome::Accepted);
            const AnswerPiece answer = Tiny::wait(each);
            CHECK(answer.status.ok());
            CHECK(answer.ids == alone.ids);
        }
        const pid_t second = tiny.await_other(stage, first);
        tiny.await(ServiceState::Ok);
        ::kill(second, SIGKILL);  // while nothing is asked
        (void)tiny.await_other(stage, second);
        tiny.await(ServiceState::Ok);
        CHECK(tiny.whole(tiny.order(48)).ids == alone.ids);
    }
}

TEST_CASE("orders that cannot be taken are refused at once, each with its reason") {
    const Tiny tiny{{.running = 1, .waiting = 2}};
    ServiceOrder bad = tiny.order(8);
    bad.request.text = {5, 1 << 20};
    CHECK(tiny.service->submit(std::move(bad)).outcome == SubmitOutcome::Invalid);
    ServiceOrder longer = tiny.order(8);
    longer.request.text.assign(100, 5);
    const Submitted refused = tiny.service->submit(std::move(longer));
    CHECK(refused.outcome == SubmitOutcome::Invalid);
    CHECK(refused.why.error().what.find("100") != std::string::npos);
    ServiceOrder deeper = tiny.order(8);
    deeper.request.speculation.gamma = 4;  // this pipeline proposes nothing
    const Submitted too_deep = tiny.service->submit(std::move(deeper));
    CHECK(too_deep.outcome == SubmitOutcome::Invalid);
    CHECK(too_deep.why.error().what.find(
              "speculation.gamma = 4, must be 0 (as the pipeline) .. 0") != std::string::npos);

    std::vector<Submitted> taken;
    tiny.service->session().call([&] {  // the loop cannot begin one meanwhile
        for (int i = 0; i < 4; ++i) taken.push_back(tiny.service->submit(tiny.order(8)));
    });
    CHECK(std::count_if(taken.begin(), taken.end(), [](const Submitted& each) {
              return each.outcome == SubmitOutcome::Accepted;
          }) == 3);
    CHECK(taken.back().outcome == SubmitOutcome::QueueFull);
    for (const Submitted& each : taken) {
        if (each.stream) CHECK(Tiny::wait(each).status.ok());
    }
    tiny.service->drain(kLong);
    CHECK(tiny.service->submit(tiny.order(8)).outcome == SubmitOutcome::Draining);
}

TEST_CASE("a lower priority goes first, and one that waits is cancelled without running") {
    const Tiny tiny{{.running = 1, .waiting = 8}};
    Submitted first;
    Submitted late;
    Submitted early;
    Submitted never;
    tiny.service->session().call([&] {
        first = tiny.service->submit(tiny.order(40));
        late = tiny.service->submit(tiny.order(4));
        ServiceOrder urgent = tiny.order(4);
        urgent.priority = -1;
        early = tiny.service->submit(std::move(urgent));
        never = tiny.service->submit(tiny.order(4));
        tiny.service->cancel(never.id);
    });
    const AnswerPiece of_early = Tiny::wait(early);
    const AnswerPiece of_late = Tiny::wait(late);
    CHECK(of_early.stats.begun < of_late.stats.begun);
    const AnswerPiece of_never = Tiny::wait(never);
    CHECK(of_never.ids.empty());
    CHECK(of_never.stats.finish == FinishReason::Interrupted);
    CHECK(Tiny::wait(first).status.ok());
}

TEST_CASE("a stop string ends the answer at its token, for whoever asks") {
    const Tiny tiny{{.running = 2, .waiting = 4}};
    const AnswerPiece alone = tiny.whole(tiny.order(40));
    REQUIRE(alone.text.size() > 6);
    const std::string stop = alone.text.substr(4, 2);
    const AnswerPiece stopped = tiny.whole(tiny.order(40, {stop}));
    CHECK(stopped.stats.finish == FinishReason::StopString);
    CHECK(stopped.text == alone.text.substr(0, alone.text.find(stop)));
    CHECK(stopped.ids.size() < alone.ids.size());
}

TEST_CASE("a deadline ends its answer with an error, and no other") {
    const Tiny tiny{{.running = 1, .waiting = 4}};
    const pid_t stopped = tiny.pid_of(0);
    ::kill(stopped, SIGSTOP);  // nothing is decoded until it goes on
    const Submitted runs = tiny.service->submit(tiny.order(40));
    ServiceOrder hurried = tiny.order(40);
    hurried.deadlines.queue = milliseconds{1};
    const AnswerPiece late = tiny.whole(std::move(hurried));
    ::kill(stopped, SIGCONT);
    REQUIRE_FALSE(late.status.ok());
    CHECK(late.status.error().what.find("deadline") != std::string::npos);
    CHECK(Tiny::wait(runs).status.ok());
}

TEST_CASE(
    "a next turn finds the blocks of the text before it, and a prompt its own under its salt") {
    const Tiny tiny{{.running = 2, .waiting = 4}};
    ServiceOrder turn = tiny.order(20);
    while (turn.request.text.size() < 40)
        turn.request.text.push_back(static_cast<TokenId>(turn.request.text.size() % 9));
    std::vector<TokenId> text = turn.request.text;
    const AnswerPiece first = tiny.whole(std::move(turn));
    REQUIRE(first.status.ok());
    CHECK(first.stats.cached_tokens == 0);
    text.insert(text.end(), first.ids.begin(), first.ids.end());
    text.push_back(9);
    ServiceOrder next = tiny.order(2);
    next.request.text = text;
    const AnswerPiece second = tiny.whole(std::move(next));
    REQUIRE(second.status.ok());
    CHECK(second.stats.cached_tokens == 32);
    CHECK(second.stats.prompt_tokens == static_cast<std::int32_t>(text.size()) - 32);
    ServiceOrder salted = tiny.order(2);
    salted.request.text = text;
    salted.request.cache_salt = "another tenant";
    const AnswerPiece third = tiny.whole(std::move(salted));
    CHECK(third.stats.cached_tokens == 0);
    CHECK(third.ids == second.ids);
}

TEST_CASE(
    "answers that are open when the service ends, or when draining is over, end with an error") {
    const Tiny tiny{{.running = 1, .waiting = 4}};
    const pid_t stopped = tiny.pid_of(0);
    ::kill(stopped, SIGSTOP);
    std::vector<Submitted> taken;
    for (int i = 0; i < 4; ++i) taken.push_back(tiny.service->submit(tiny.order(50)));
    tiny.service->drain(milliseconds{1});
    for (const Submitted& each : taken) CHECK_FALSE(Tiny::wait(each).status.ok());
    CHECK(tiny.service->wait_idle(kLong));
    ::kill(stopped, SIGCONT);

    Tiny other{{.running = 1, .waiting = 4}};
    const Submitted open = other.service->submit(other.order(50));
    const Submitted behind = other.service->submit(other.order(50));
    other.service.reset();
    CHECK(Tiny::wait(open).over);
    CHECK(Tiny::wait(behind).over);
}
