// Recovery when the machine of a stage is lost.
#include <doctest/doctest.h>

#include "tests/unit/runtime/recovery_bench.hpp"

using namespace paceline;
using namespace paceline::test;

TEST_CASE("a stage whose machine is lost waits for one, and its epoch is raised at once") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.machine_lost(kFirst, Epoch{1}, "machine 'b': cut", Micros{0});
    CHECK(bench.said() == Said{"lost 2", "unwire 2.1 from 1 3"});
    CHECK(r.health_of(kFirst) == StageHealth::Waiting);
    CHECK(r.epoch_of(kFirst) == Epoch{2});
    r.gone(kFirst, Epoch{1}, "killed", Micros{1});
    r.suspect(kFirst, Epoch{2}, "hung", Micros{1});
    CHECK(bench.said().empty());
    r.machine_back(kFirst, Micros{2});
    CHECK(bench.said() == Said{"spawn 2.2"});
    CHECK(r.health_of(kFirst) == StageHealth::Loading);
    r.machine_back(kFirst, Micros{3});  // of one that waits for none
    CHECK(bench.said().empty());
}

TEST_CASE("a machine that is not back in time ends the run, but not for a disposable stage") {
    RestartRules rules;
    rules.machine_wait = Micros{1000};
    Bench bench{rules};
    Recovery& r = bench.recovery;
    r.machine_lost(kDraft, Epoch{1}, "machine 'b': cut", Micros{0});
    bench.said();
    CHECK_FALSE(r.due().has_value());
    r.tick(Micros{1'000'000'000});
    CHECK(bench.said().empty());
    r.machine_lost(kLast, Epoch{1}, "machine 'c': cut", Micros{0});
    bench.said();
    CHECK(r.due() == Micros{1000});
    r.paused(Micros{500}, Micros{600});
    r.tick(Micros{1499});
    CHECK(bench.said().empty());
    r.tick(Micros{1500});
    const Said said = bench.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("give up: stage 'segment-2' waited 0 s for a machine: machine 'c': cut") ==
          0);
    r.machine_back(kDraft, Micros{2'000'000'000});
    CHECK(bench.said() == Said{"spawn 1.2"});
}

TEST_CASE("the loss of a machine is no death of its stages: it does not count as one") {
    RestartRules rules;
    rules.restarts_max = 1;
    Bench bench{rules};
    Recovery& r = bench.recovery;
    for (std::uint32_t epoch = 1; epoch <= 20; ++epoch) {
        r.machine_lost(kFirst, Epoch{epoch}, "cut", Micros{epoch});
        r.machine_back(kFirst, Micros{epoch});
        CHECK(r.health_of(kFirst) == StageHealth::Loading);
        if (epoch % 2 == 0) continue;  // also while it loads
        r.greeted(kFirst, Epoch{epoch + 1}, Micros{epoch});
    }
}

TEST_CASE("a stage that dies while its machine is lost waits too") {
    Bench bench;
    Recovery& r = bench.recovery;
    r.suspect(kFirst, Epoch{1}, "the connection is lost", Micros{0});
    bench.said();
    CHECK(r.health_of(kFirst) == StageHealth::Dying);
    r.machine_lost(kFirst, Epoch{1}, "machine 'b': its lease is over", Micros{7});
    CHECK(bench.said().empty());
    CHECK(r.health_of(kFirst) == StageHealth::Waiting);
    CHECK(r.why_of(kFirst) == "the connection is lost; machine 'b': its lease is over");
}
