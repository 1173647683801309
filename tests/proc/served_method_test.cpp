// The method of a server changes by what its pipelines show: a planted record and planted looks.
#include "launch/serve/method/served_method.hpp"

#include <algorithm>
#include <memory>
#include <signal.h>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launch/config/method_list.hpp"
#include "launch/config/methods.hpp"
#include "tests/proc/tiny_service.hpp"
#include "tests/support/test_folder.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr double kMuch = 1e6;  // seconds of plain decoding

MethodRate gains(double gain) {
    return {.gain = gain, .acceptance = 0.5, .tokens_per_second = 100, .runs = 10};
}

/// A service whose record says that `fold` gains 1.5; each pipeline is really that of TinySession.
struct Served {
    explicit Served(bool may_change = true) {
        MethodHistory history{tiny.parts.file, tiny.parts.options, "", folder.path().string(), {}};
        usual = history.choose(kPlainPipeline).method;
        history.add(usual, gains(1.4));
        history.add("fold", gains(1.5));
        shown.set({.name = usual});
        method = std::make_unique<serve::ServedMethod>(
            std::move(history),
            serve::ServedMethod::Start{.method = usual,
                                       .config = method_config(usual).value(),
                                       .load_seconds = 1.0,
                                       .may_change = may_change},
            serve::MethodChanges{
                .open = [this](const std::string& name) { return open(name); },
                .fits_beside = [this](const std::string&) { return beside; },
                .shown = &shown,
                .tell = [this](const std::string& what) { said.push_back(what); }});
    }

    Result<serve::ServedPipeline> open(const std::string& name) {
        opened.push_back(name);
        if (name == refused) return Error{Errc::OutOfMemory, "too little memory"};
        Result<std::unique_ptr<PipelineSession>> session = PipelineSession::open(
            tiny.parts.file, tiny.parts.options,
            {parse_pipeline_config(kTwoSegments, "test.toml").value()},
            {.log = &tiny.parts.log, .output = {.table = false, .remarks = false}, .requests = 2});
        if (!session) return session.error();
        return serve::ServedPipeline{std::move(session).value(), method_config(name).value(), 1.0};
    }
    void three_looks(double gain) {
        for (int i = 0; i < 3; ++i) method->measured(gain, kMuch);
    }

    /// The record says from now on that every method loses.
    void lose_all() const {
        MethodHistory history{tiny.parts.file, tiny.parts.options, "", folder.path().string(), {}};
        for (const std::string& name : {usual, std::string{"fold"}})
            history.add(name, {.gain = 0.9, .tokens_per_second = 100, .runs = 100});
    }

    test::TestFolder folder;
    Tiny tiny{{.running = 2, .waiting = 2}};
    serve::SharedMethod shown;
    std::string usual;
    std::string refused;
    bool beside = true;
    std::vector<std::string> opened;
    std::vector<std::string> said;
    std::unique_ptr<serve::ServedMethod> method;
};

}  // namespace

TEST_CASE("a server whose method disappoints changes to the better one, says so and shows it") {
    Served served;
    const AnswerPiece before = served.tiny.whole(served.tiny.order(30));
    served.three_looks(0.8);
    REQUIRE(served.method->wants_change());
    REQUIRE(served.tiny.service->wait_idle(kLong));
    served.method->change_if_idle(*served.tiny.service);
    CHECK(!served.method->wants_change());
    CHECK(served.opened == std::vector<std::string>{"fold"});
    const serve::MethodInUse now = served.shown.get();
    CHECK(now.name == "fold");
    CHECK(now.changes == 1);
    CHECK(now.reason == "1.50 times plain decoding in 10 earlier runs here");
    REQUIRE(served.said.size() == 1);
    CHECK(served.said[0].starts_with("method fold instead of " + served.usual + ": "));
    CHECK(served.tiny.whole(served.tiny.order(30)).ids == before.ids);
    served.three_looks(1.5);  // as it was predicted
    CHECK(!served.method->wants_change());
}

TEST_CASE("a change that is wanted waits for a moment without an answer") {
    Served served;
    const pid_t stopped = served.tiny.pid_of(0);
    ::kill(stopped, SIGSTOP);
    const Submitted open = served.tiny.service->submit(served.tiny.order(30));
    served.three_looks(0.8);
    served.method->change_if_idle(*served.tiny.service);
    CHECK(served.method->wants_change());
    CHECK(served.opened.empty());
    CHECK(served.shown.get().changes == 0);
    ::kill(stopped, SIGCONT);
    CHECK(Tiny::wait(open).status.ok());
    CHECK(served.tiny.service->wait_idle(kLong));
    while (served.method->wants_change()) served.method->change_if_idle(*served.tiny.service);
    CHECK(served.shown.get().name == "fold");
}

TEST_CASE("a method that cannot be started is said, and not tried again") {
    for (const bool beside : {false, true}) {
        Served served;
        served.beside = beside;
        served.refused = "fold";
        served.three_looks(0.8);
        served.method->change_if_idle(*served.tiny.service);
        const std::vector<std::string> once{"fold"};
        const std::vector<std::string> and_again{"fold", served.usual};
        CHECK(served.opened == (beside ? once : and_again));
        REQUIRE(served.said.size() == 1);
        CHECK(served.said[0] ==
              "method fold could not be started (too little memory); " + served.usual + " goes on");
        CHECK(served.shown.get().name == served.usual);
        CHECK(served.shown.get().changes == 0);
        CHECK(served.tiny.whole(served.tiny.order(8)).status.ok());
        // The next best follows: without speculation.
        served.three_looks(0.5);
        served.method->change_if_idle(*served.tiny.service);
        CHECK(served.shown.get().changes == 1);
        CHECK(served.opened.back() == kPlainPipeline);
        CHECK(std::count(served.opened.begin(), served.opened.end(), "fold") == 1);
    }
}

TEST_CASE("a server that decodes plainly tries the method that lost again after many tokens") {
    Served served;
    served.refused = "fold";
    served.three_looks(0.8);
    served.method->change_if_idle(*served.tiny.service);
    served.three_looks(0.5);
    served.method->change_if_idle(*served.tiny.service);
    REQUIRE(served.shown.get().name == kPlainPipeline);
    served.lose_all();
    served.method->decoded_plainly(serve::ServedMethod::kPlainTokens - 1);
    CHECK(!served.method->wants_change());
    served.method->decoded_plainly(1);
    REQUIRE(served.method->wants_change());
    served.method->change_if_idle(*served.tiny.service);
    CHECK(served.shown.get().name == served.usual);
    // It loses still.
    served.three_looks(0.9);
    REQUIRE(served.method->wants_change());
    served.method->change_if_idle(*served.tiny.service);
    CHECK(served.shown.get().name == kPlainPipeline);
    // The next attempt comes after twice as many.
    served.method->decoded_plainly(serve::ServedMethod::kPlainTokens);
    CHECK(!served.method->wants_change());
    served.method->decoded_plainly(serve::ServedMethod::kPlainTokens);
    CHECK(served.method->wants_change());
}

TEST_CASE("a method that was named never changes") {
    Served served{false};
    for (int i = 0; i < 10; ++i) served.three_looks(0.2);
    CHECK(!served.method->wants_change());
    served.method->change_if_idle(*served.tiny.service);
    CHECK(served.opened.empty());
}
