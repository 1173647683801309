// What threads post to a loop that another one runs.
#include "runtime/loop/loop_calls.hpp"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};

/// Only tells the loop when to end.
struct QuietPort : ControlPort {
    [[nodiscard]] Status send(Envelope, const control::Message&) override { return {}; }
    [[nodiscard]] Status poll(const Deliver& deliver) override {
        if (shutdown.load()) deliver(PortMail{{}, control::Shutdown{}});
        return {};
    }
    [[nodiscard]] Status report_fault(StageId, Epoch, const Error&) override { return {}; }
    [[nodiscard]] Status wired(StageId, Epoch) override { return {}; }
    std::atomic<bool> shutdown{false};
};

}  // namespace

TEST_CASE("what other threads post is done by the loop's thread, each once and in order") {
    const WiringPlan plan =
        wired_plan({{{kConductor, {kConductor}, 0}, Epoch{1}}, {{kA, {kA}, 0}, Epoch{1}}},
                   {{kConductor, kA, 8, 2, 0, 0}});
    QuietPort port;
    Relay actor{kB};
    // Nothing else wakes it.
    StageLoop loop{
        wiring_of(plan, kA, Epoch{1}), port, {.poll_limit = Micros{100'000}, .burst = 16}};
    loop.add(kA, actor);
    std::vector<int> done;
    loop.post([&done] { done.push_back(-1); });  // before it runs
    std::thread::id runner;
    std::thread thread{[&] {
        runner = std::this_thread::get_id();
        CHECK(loop.run().ok());
    }};
    std::vector<std::thread> posters;
    for (int poster = 0; poster < 4; ++poster) {
        posters.emplace_back([&, poster] {
            for (int i = 0; i < 200; ++i) {
                std::promise<void> through;
                loop.post([&, i] {
                    CHECK(std::this_thread::get_id() == runner);
                    done.push_back(poster * 200 + i);
                    through.set_value();
                });
                through.get_future().wait();
            }
        });
    }
    for (std::thread& poster : posters) poster.join();
    port.shutdown = true;
    thread.join();
    loop.post([&done] { done.push_back(-2); });  // nothing runs it now
    loop.run_posted();
    REQUIRE(done.size() == 802);
    CHECK(done.front() == -1);
    CHECK(done.back() == -2);
    for (int poster = 0; poster < 4; ++poster) {
        int next = poster * 200;
        for (const int entry : done) {
            if (entry >= poster * 200 && entry < (poster + 1) * 200) CHECK(entry == next++);
        }
        CHECK(next == (poster + 1) * 200);
    }
}
