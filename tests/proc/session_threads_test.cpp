// A session whose orders come and go from several threads.
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "launch/session/pipeline_session.hpp"
#include "tests/proc/tiny_session.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

struct ReceivedAnswer {
    std::vector<TokenId> tokens;
    int ends = 0;
    bool failed = false;
    std::promise<void> first_token;
    std::promise<void> over;
};

AnswerOrder order_of(ReceivedAnswer& answer, std::thread::id runner) {
    AnswerOrder order;
    order.request.text = {5, 6, 7, 8};
    order.request.max_tokens = 40;
    order.on_token = [&answer, runner](TokenId token) {
        CHECK(std::this_thread::get_id() == runner);
        answer.tokens.push_back(token);
        if (answer.tokens.size() == 1) answer.first_token.set_value();
        return Go::On;
    };
    order.on_end = [&answer](const AnswerStats&, const Status& status) {
        answer.failed = !status.ok();
        if (++answer.ends == 1) answer.over.set_value();
    };
    return order;
}

}  // namespace

TEST_CASE("orders and cancellations may come from several threads; the loop's thread calls back") {
    testing::TinySession tiny{3};
    PipelineSession* session = tiny.session.get();
    std::thread::id runner;
    session->call([&] { runner = std::this_thread::get_id(); });
    REQUIRE(runner != std::this_thread::get_id());
    ReceivedAnswer whole;
    REQUIRE(session->submit(order_of(whole, runner)));
    REQUIRE(session->run().ok());
    REQUIRE(whole.tokens.size() > 2);

    constexpr int kThreads = 3;
    std::atomic<int> at_work{kThreads};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kThreads; ++caller) {
        callers.emplace_back([&] {
            for (int i = 0; i < 12; ++i) {
                ReceivedAnswer answer;
                const Result<RequestId> taken = session->submit(order_of(answer, runner));
                REQUIRE(taken);
                const bool cancels = i % 2 == 1;
                if (cancels) {
                    answer.first_token.get_future().wait();
                    session->cancel(taken.value());
                    CHECK(answer.ends == 1);  // by now
                } else {
                    answer.over.get_future().wait();
                    CHECK(answer.tokens.size() == whole.tokens.size());
                }
                CHECK(answer.ends == 1);
                CHECK_FALSE(answer.failed);
                CHECK(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.tokens.begin()));
                session->close(taken.value());
            }
            --at_work;
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(at_work == 0);
    CHECK(session->run().ok());
    CHECK(session->stages().size() == 2);
}
