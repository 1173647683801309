#include "runtime/parent/recovery.hpp"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/runtime/recovery_bench.hpp"

using namespace paceline;
using namespace paceline::test;

TEST_CASE("a stage that dies is unwired, started again, wired and joined") {
    Bench bench;
    Recovery& r = bench.recovery;
    CHECK(bench.said().empty());
    r.gone(kFirst, Epoch{1}, "killed", Micros{10});
    CHECK(bench.said() == Said{"lost 2", "unwire 2.1 from 1 3", "spawn 2.2"});
    CHECK(r.health_of(kFirst) == StageHealth::Loading);
    r.greeted(kFirst, Epoch{2}, Micros{20});
    CHECK(bench.said() == Said{"join 2.2 to 1 3"});
    r.ready(kFirst, Epoch{2}, Micros{30});
    r.rewired(kDraft, kFirst, Epoch{2}, Micros{31});
    CHECK(bench.said().empty());
    r.rewired(kLast, kFirst, Epoch{2}, Micros{32});
    CHECK(bench.said() == Said{"joined 2.2"});
    CHECK(r.health_of(kFirst) == StageHealth::Up);
}

TEST_CASE("a suspect is killed, but the next incarnation waits until its process is gone") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.suspect(kLast, Epoch{1}, "hangs", Micros{10});
    CHECK(bench.said() == Said{"lost 3", "unwire 3.1 from 1 2", "kill 3.1"});
    r.suspect(kLast, Epoch{1}, "closed its channel", Micros{11});
    r.tick(Micros{10'000'000});
    CHECK(bench.said().empty());
    r.gone(kLast, Epoch{1}, "killed", Micros{20'000'000});
    CHECK(bench.said() == Said{"spawn 3.2"});
}

TEST_CASE("news of an old epoch changes nothing") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    bench.said();
    r.gone(kFirst, Epoch{1}, "killed", Micros{1});
    r.suspect(kFirst, Epoch{1}, "hangs", Micros{1});
    r.greeted(kFirst, Epoch{1}, Micros{1});
    r.ready(kFirst, Epoch{1}, Micros{1});
    CHECK(bench.said().empty());
    r.greeted(kFirst, Epoch{2}, Micros{2});
    bench.said();
    r.ready(kFirst, Epoch{2}, Micros{3});
    r.rewired(kDraft, kFirst, Epoch{1}, Micros{4});
    r.rewired(kLast, kFirst, Epoch{1}, Micros{4});
    CHECK(bench.said().empty());
}

TEST_CASE("a survivor that dies while it is waited for is waited for no more") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    r.greeted(kFirst, Epoch{2}, Micros{1});
    r.ready(kFirst, Epoch{2}, Micros{2});
    r.rewired(kDraft, kFirst, Epoch{2}, Micros{3});
    bench.said();
    r.gone(kLast, Epoch{1}, "killed too", Micros{4});
    CHECK(bench.said() == Said{"lost 3", "unwire 3.1 from 1 2", "joined 2.2", "spawn 3.2"});
}

TEST_CASE("of two stages that come back at once the second is wired to the first") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    r.gone(kLast, Epoch{1}, "killed", Micros{0});
    bench.said();
    r.greeted(kLast, Epoch{2}, Micros{1});
    CHECK(bench.said() == Said{"join 3.2 to 1"});
    r.greeted(kFirst, Epoch{2}, Micros{2});
    CHECK(bench.said() == Said{"join 2.2 to 1 3"});
    r.ready(kFirst, Epoch{2}, Micros{3});
    r.rewired(kDraft, kFirst, Epoch{2}, Micros{3});
    r.rewired(kLast, kFirst, Epoch{2}, Micros{3});  // although it has not joined itself
    CHECK(bench.said() == Said{"joined 2.2"});
}

TEST_CASE("an incarnation that dies before it joined is not lost a second time") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    bench.said();
    SUBCASE("while it loads it is not in use") {
        r.gone(kFirst, Epoch{2}, "killed", Micros{1});
        CHECK(bench.said().empty());
    }
    SUBCASE("once it is wired its channels go") {
        r.greeted(kFirst, Epoch{2}, Micros{1});
        bench.said();
        r.gone(kFirst, Epoch{2}, "killed", Micros{2});
        CHECK(bench.said() == Said{"unwire 2.2 from 1 3"});
    }
    // The second death within the period is backed off from.
    CHECK(r.health_of(kFirst) == StageHealth::Resting);
    r.tick(*r.due());
    CHECK(bench.said() == Said{"spawn 2.3"});
}

TEST_CASE("restarts back off, and are forgotten after a period of work") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kDraft, Epoch{1}, "killed", Micros{0});
    CHECK(r.health_of(kDraft) == StageHealth::Loading);
    r.gone(kDraft, Epoch{2}, "killed", Micros{10});
    CHECK(r.due() == Micros{200'010});
    r.tick(Micros{200'009});
    CHECK(r.health_of(kDraft) == StageHealth::Resting);
    r.tick(Micros{200'010});
    CHECK(r.health_of(kDraft) == StageHealth::Loading);
    bench.comes_up(kDraft, Epoch{3}, Micros{60'000'000});
    r.gone(kDraft, Epoch{3}, "killed", Micros{60'000'100});
    CHECK(r.health_of(kDraft) == StageHealth::Resting);  // the minute went by in loading
    r.tick(*r.due());
    bench.comes_up(kDraft, Epoch{4}, Micros{120'000'000});
    r.gone(kDraft, Epoch{4}, "killed", Micros{151'000'000});
    CHECK(r.health_of(kDraft) == StageHealth::Loading);
}

TEST_CASE("a stage that loads for long and dies at once is given up with its failures") {
    for (const std::int64_t seconds : {0, 5, 30, 90}) {
        CAPTURE(seconds);
        Bench bench;
        Recovery& r = bench.recovery;
        Micros now{1};
        r.gone(kLast, Epoch{1}, "killed", now);
        std::uint32_t epoch = 2;
        for (; epoch < 20 && r.health_of(kLast) != StageHealth::Disabled; ++epoch) {
            now = bench.rested(kLast, now) + Micros{seconds * 1'000'000};
            bench.comes_up(kLast, Epoch{epoch}, now);
            r.gone(kLast, Epoch{epoch}, "exited with code 3", now);
        }
        CHECK(epoch == 7);
        CHECK(bench.said().back() ==
              "give up: stage 'segment-2' died 6 times within 30 s of work; last: exited with code "
              "3");
    }
}

TEST_CASE("deaths that a request explains do not count") {
    RestartRules rules;
    rules.restarts_max = 2;
    Bench bench{rules};
    Recovery& r = bench.recovery;
    Micros now{1};
    std::uint32_t epoch = 1;
    const auto die = [&] { r.gone(kLast, Epoch{epoch++}, "killed", ++now); };
    const auto come_back = [&] {
        now = bench.rested(kLast, now);
        bench.comes_up(kLast, Epoch{epoch}, ++now);
    };
    bool process_has_ended = false;
    SUBCASE("excused after its process has ended") {
        process_has_ended = true;
    }
    SUBCASE("excused while its process still ends") {
        process_has_ended = false;
    }
    for (int poison = 0; poison < 10; ++poison) {
        die();
        come_back();
        if (process_has_ended) die();
        if (!process_has_ended) r.suspect(kLast, Epoch{epoch}, "closed its channel", ++now);
        r.excuse(kLast);
        r.excuse(kLast);
        if (!process_has_ended) die();
        come_back();
        CHECK(r.health_of(kLast) == StageHealth::Up);
    }
    die();
    come_back();
    die();
    come_back();
    CHECK(r.health_of(kLast) == StageHealth::Up);
    die();
    CHECK(r.health_of(kLast) == StageHealth::Disabled);
}

TEST_CASE("a stage rests only for the deaths that count") {
    Bench bench;
    Recovery& r = bench.recovery;
    Micros now{1};
    for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
        r.gone(kLast, Epoch{epoch}, "killed", ++now);
        now = bench.rested(kLast, now);
        bench.comes_up(kLast, Epoch{epoch + 1}, ++now);
    }
    r.gone(kLast, Epoch{4}, "killed", ++now);
    CHECK(r.due() == now + RestartRules{}.backoff[3]);
    r.excuse(kLast);
    CHECK(r.due() == now + RestartRules{}.backoff[2]);
    for (int i = 0; i < 3; ++i) r.excuse(kLast);
    CHECK(r.due() == now + RestartRules{}.backoff[0]);
}

TEST_CASE("a stage that cannot start for a reason that stays is not started again") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kLast, Epoch{1}, "killed", Micros{10});
    bench.said();
    r.hopeless(kLast, Epoch{1},
               Micros{15});  // of an incarnation that was replaced: changes nothing
    CHECK(bench.said().empty());
    r.hopeless(kLast, Epoch{2}, Micros{20});
    CHECK(bench.said() == Said{"kill 3.2"});
    r.gone(kLast, Epoch{2}, "failed: the file is gone", Micros{30});
    CHECK(bench.said() ==
          Said{"give up: stage 'segment-2' cannot be restarted: failed: the file is gone"});
    CHECK(r.health_of(kLast) == StageHealth::Disabled);
}

TEST_CASE("a disposable stage that cannot start is done without at once") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.gone(kDraft, Epoch{1}, "killed", Micros{10});
    bench.said();
    r.hopeless(kDraft, Epoch{2}, Micros{20});
    r.gone(kDraft, Epoch{2}, "failed: the file is gone", Micros{30});
    CHECK(bench.said() == Said{"kill 1.2", "disabled 1"});
}

TEST_CASE("a stage that dies too often ends the run, or is done without if it is disposable") {
    RestartRules rules;
    rules.restarts_max = 2;
    rules.backoff = {Micros{0}};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    const StageId victim = [] {
        StageId chosen = kDraft;
        SUBCASE("disposable") {
            chosen = kDraft;
        }
        SUBCASE("essential") {
            chosen = kLast;
        }
        return chosen;
    }();
    r.gone(victim, Epoch{1}, "killed", Micros{0});
    r.gone(victim, Epoch{2}, "killed", Micros{1});
    bench.said();
    r.gone(victim, Epoch{3}, "exited with code 3", Micros{2});
    const Said said = bench.said();
    REQUIRE(said.size() == 1);
    if (victim == kDraft) {
        CHECK(said[0] == "disabled 1");
    } else {
        CHECK(said[0] ==
              "give up: stage 'segment-2' died 3 times within 30 s of work; last: exited with code "
              "3");
    }
    CHECK(r.health_of(victim) == StageHealth::Disabled);
    r.tick(Micros{100'000'000});
    CHECK(bench.said().empty());
}

TEST_CASE("an incarnation that does not come back in time is killed and tried again") {
    RestartRules rules;
    rules.start_limit = Micros{1000};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    bench.said();
    r.tick(Micros{999});
    CHECK(bench.said().empty());
    r.tick(Micros{1000});
    CHECK(bench.said() == Said{"kill 2.2"});
    r.gone(kFirst, Epoch{2}, "killed", Micros{1001});
    CHECK(r.health_of(kFirst) == StageHealth::Resting);
}

TEST_CASE("a survivor that never takes its new channels is replaced, not the newcomer") {
    RestartRules rules;
    rules.start_limit = Micros{1000};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    r.greeted(kFirst, Epoch{2}, Micros{1});
    r.ready(kFirst, Epoch{2}, Micros{2});
    r.rewired(kDraft, kFirst, Epoch{2}, Micros{3});
    bench.said();
    r.tick(Micros{1001});
    CHECK(bench.said() == Said{"lost 3", "unwire 3.1 from 1 2", "joined 2.2", "kill 3.1"});
}

TEST_CASE("who starts while the machine stands still has as much longer, once it has loaded too") {
    RestartRules rules;
    rules.start_limit = Micros{1000};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    r.gone(kFirst, Epoch{1}, "killed", Micros{0});
    bench.said();
    r.paused(Micros{60'000}, Micros{60'400});  // it had loaded for 400
    r.tick(Micros{60'400});
    r.tick(Micros{60'999});
    CHECK(bench.said().empty());
    r.greeted(kFirst, Epoch{2}, Micros{60'999});
    bench.said();
    r.paused(Micros{9'000}, Micros{70'000});
    r.tick(Micros{70'998});
    CHECK(bench.said().empty());
    r.tick(Micros{70'999});
    CHECK(bench.said() == Said{"unwire 2.2 from 1 3", "kill 2.2"});
}

TEST_CASE("a caller that is always late does not move the limit of one that starts for ever") {
    RestartRules rules;
    rules.start_limit = Micros{1000};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    Micros now{0};
    r.gone(kFirst, Epoch{1}, "killed", now);
    for (std::uint32_t epoch = 2; epoch <= 3; ++epoch) {
        now = bench.rested(kFirst, now);
        bench.said();
        std::uint32_t looks = 0;
        while (r.health_of(kFirst) == StageHealth::Loading && looks <= kPausesMax) {
            now += Micros{5'000};
            r.paused(Micros{5'000}, now);
            r.tick(now);
            ++looks;
        }
        CHECK(looks == kPausesMax + 1);
        CHECK(bench.said() == Said{"kill 2." + std::to_string(epoch)});
        r.gone(kFirst, Epoch{epoch}, "killed", now);
    }
}

TEST_CASE("time in which the machine stands still is not time at work") {
    RestartRules rules;
    rules.restarts_max = 2;
    rules.backoff = {Micros{0}};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    Micros now{0};
    for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
        CHECK(r.health_of(kLast) == StageHealth::Up);
        now += Micros{3'600'000'000};
        r.paused(Micros{3'600'000'000}, now);
        r.gone(kLast, Epoch{epoch}, "killed", ++now);
        if (epoch < 3) bench.comes_up(kLast, Epoch{epoch + 1}, ++now);
    }
    CHECK(r.health_of(kLast) == StageHealth::Disabled);
}
