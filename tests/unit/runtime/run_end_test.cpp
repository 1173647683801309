#include "runtime/parent/run_end.hpp"

#include <signal.h>
#include <string>

#include <doctest/doctest.h>

using namespace paceline;

TEST_CASE("a signal ends a run until the orderly stop has begun, and after it only the next one") {
    RunEnd end;
    CHECK(end.interrupted().ok());
    end.interrupt(SIGINT);
    REQUIRE_FALSE(end.interrupted().ok());
    CHECK(end.interrupted().error().code == Errc::Cancelled);
    CHECK(end.interrupted().error().what == "interrupted (SIGINT)");
    end.forget_signal();
    CHECK(end.interrupted().ok());
    end.interrupt(SIGTERM);
    CHECK(end.interrupted().error().what == "asked to end (SIGTERM)");
}

TEST_CASE("a recovery that is given up names the failures that led to it, and no later ones") {
    RunEnd end;
    CHECK(end.given_up().ok());
    end.failures().note(Micros{0}, "stage 'draft' was killed");
    end.failures().note(Micros{5}, "stage 'segment-1' hangs");
    end.give_up({Errc::PeerGone, "too many restarts"});
    const std::string what = end.given_up().error().what;
    CHECK(what.find("too many restarts\n") == 0);
    CHECK(what.find("stage 'draft' was killed") != std::string::npos);
    end.failures().note(Micros{9}, "stage 'segment-2' has ended");
    CHECK(end.given_up().error().what == what);
}
