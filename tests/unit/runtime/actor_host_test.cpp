#include "runtime/loop/actor_host.hpp"

#include <doctest/doctest.h>

#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

struct Nowhere : HostEnvironment {
    Micros time{0};
    std::vector<StageId> sent_to;
    [[nodiscard]] Micros now() const override { return time; }
    [[nodiscard]] Push send(StageId,
                            StageId to,
                            std::uint16_t,
                            std::span<const std::byte>) override {
        sent_to.push_back(to);
        return Push::Ok;
    }
    void post(StageId, StageId, const control::Message&) override {}
    [[nodiscard]] Epoch epoch_of(StageId, StageId) const override { return Epoch{0}; }
    void report_fault(StageId, StageId, Error) override {}
    [[nodiscard]] TensorProducer* tensors_to(StageId, StageId) override { return nullptr; }
    [[nodiscard]] TensorConsumer* tensors_from(StageId, StageId) override { return nullptr; }
    [[nodiscard]] std::uint64_t random() override { return 4; }
    void trace(TraceEvent) override {}
    void count(Counter, std::uint64_t) override {}
    void set(Gauge, std::uint64_t) override {}
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId) override {
        return nullptr;
    }
    void cancel_before(RequestId, Attempt) override {}
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId) override { return nullptr; }
    void publish_watermark(RequestId, Attempt, Position, TokenId) override {}
};

struct Recorder : Actor {
    void on_start(StageContext& c) override { context = &c; }
    void handle(StageId, std::uint16_t kind, std::span<const std::byte>) override {
        kinds.push_back(kind);
    }
    StageContext* context = nullptr;
    std::vector<std::uint16_t> kinds;
};

}  // namespace

TEST_CASE("colocated actors talk without leaving the host, others go outside") {
    Nowhere outside;
    ActorHost host{outside, ActorHost::Channels::OnDemand};
    Recorder a;
    Recorder b;
    host.add(StageId{1}, Epoch{5}, a);
    host.add(StageId{2}, Epoch{5}, b);
    host.start();
    CHECK(a.context->self() == StageId{1});
    CHECK(a.context->epoch() == Epoch{5});
    CHECK(send(*a.context, StageId{2}, msg::Stop{}) == Push::Ok);
    CHECK(send(*a.context, StageId{9}, msg::Stop{}) == Push::Ok);
    CHECK(outside.sent_to == std::vector{StageId{9}});
    CHECK(b.kinds.empty());  // never inside the sender's handler
    CHECK(host.deliver_round());
    CHECK(b.kinds.size() == 1);
    CHECK_FALSE(host.deliver_round());
}

TEST_CASE("a full channel between colocated actors still takes verdicts") {
    Nowhere outside;
    ActorHost host{outside, ActorHost::Channels::Connected};
    Recorder a;
    Recorder b;
    host.add(StageId{1}, Epoch{1}, a);
    host.add(StageId{2}, Epoch{1}, b);
    REQUIRE(host.connect({StageId{1}, StageId{2}, 4, 1, 0, 0}).ok());
    host.start();
    for (int i = 0; i < 3; ++i) CHECK(send(*a.context, StageId{2}, msg::Proposal{}) == Push::Ok);
    CHECK(send(*a.context, StageId{2}, msg::Proposal{}) == Push::Full);
    CHECK(send(*a.context, StageId{2}, msg::Verdict{}) == Push::Ok);
    CHECK(send(*a.context, StageId{2}, msg::Verdict{}) == Push::Full);
}

TEST_CASE("a job's completion is a message: never inside submit, and after what came before") {
    Nowhere outside;
    ActorHost host{outside, ActorHost::Channels::OnDemand};
    Recorder a;
    host.add(StageId{1}, Epoch{1}, a);
    host.start();
    std::vector<int> order;
    a.context->submit(
        {.name = "draft", .rows = 3},
        [&] {
            order.push_back(1);
            return JobOutcome::Cancelled;
        },
        [&](JobOutcome outcome) {
            CHECK(outcome == JobOutcome::Cancelled);
            order.push_back(2);
        });
    CHECK(order.empty());
    REQUIRE(host.jobs().first() != nullptr);
    CHECK(host.jobs().first()->rows == 3);
    CHECK(host.run_job());
    CHECK(order == std::vector{1});
    CHECK(host.deliver_round());
    CHECK(order == std::vector{1, 2});
}

TEST_CASE("nothing is dispatched after an actor has stopped the host") {
    Nowhere outside;
    ActorHost host{outside, ActorHost::Channels::OnDemand};
    Recorder a;
    host.add(StageId{1}, Epoch{1}, a);
    host.start();
    bool woken = false;
    a.context->schedule(Micros{0}, [&] { woken = true; });
    a.context->submit(
        {}, [] { return JobOutcome::Done; }, [](JobOutcome) {});
    a.context->stop();
    CHECK_FALSE(host.run_timers());
    CHECK_FALSE(host.run_job());
    CHECK_FALSE(woken);
    CHECK(host.outcome().ok());
}

TEST_CASE("memory that cannot be had in a job ends the host with an error, not the process") {
    Nowhere outside;
    ActorHost host{outside, ActorHost::Channels::OnDemand};
    Recorder a;
    host.add(StageId{1}, Epoch{1}, a);
    host.start();
    a.context->submit(
        {}, []() -> JobOutcome { throw std::bad_alloc{}; }, [](JobOutcome) {});
    CHECK(host.run_job());
    CHECK(host.ended());
    REQUIRE_FALSE(host.outcome().ok());
    CHECK(host.outcome().error().code == Errc::OutOfMemory);
}
