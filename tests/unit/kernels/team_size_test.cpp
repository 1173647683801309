#include "model/kernels/cpu/team_size.hpp"

#include <doctest/doctest.h>

namespace paceline {
namespace {

using std::chrono::milliseconds;

/// Looks every 25 ms for `time`, each with a thread that waited for `waited` of them; when it was
/// last told.
TeamSize::Time look_for(TeamSize& team,
                        TeamSize::Time from,
                        milliseconds time,
                        milliseconds waited) {
    TeamSize::Time now = from;
    while (now < from + time) {
        now += TeamSize::kLookInterval;
        team.look(now, TeamSize::kLookInterval, waited);
    }
    return now;
}

TEST_CASE("a team on free cores keeps its size") {
    TeamSize team{4};
    look_for(team, {}, milliseconds{10'000}, milliseconds{5});
    CHECK(team.size() == 4);
}

TEST_CASE("a team shrinks by one at each look that finds a thread waiting, to one at least") {
    TeamSize team{3};
    for (const int size : {2, 1, 1}) {
        team.look(milliseconds{1}, milliseconds{25}, milliseconds{12});
        CHECK(team.size() == size);
    }
}

TEST_CASE("where several looks in a row are asked for, fewer change nothing") {
    TeamSize team{2, 3};
    const auto look = [&](int at, int waited) {
        team.look(milliseconds{at}, milliseconds{25}, milliseconds{waited});
        return team.size();
    };
    for (const int at : {25, 50}) CHECK(look(at, 12) == 2);
    CHECK(look(75, 0) == 2);
    for (const int at : {100, 125}) CHECK(look(at, 12) == 2);
    CHECK(look(150, 12) == 1);
    CHECK(look(500, 0) == 2);   // on trial,
    CHECK(look(525, 12) == 1);  // where one look is enough
    team.start_anew();
    for (const int at : {550, 575}) CHECK(look(at, 12) == 2);
    CHECK(look(600, 12) == 1);
}

TEST_CASE("a team grows again once no thread waits, after a while") {
    TeamSize team{2};
    team.look(milliseconds{1'000}, milliseconds{25}, milliseconds{12});
    CHECK(team.size() == 1);
    team.look(milliseconds{1'200}, milliseconds{25}, milliseconds{0});
    CHECK(team.size() == 1);
    team.look(milliseconds{1'260}, milliseconds{25}, milliseconds{0});
    CHECK(team.size() == 2);
    look_for(team, milliseconds{1'260}, milliseconds{500}, milliseconds{0});
    CHECK(team.size() == 2);
}

TEST_CASE(
    "the longer a neighbour stays, the seldomer the team tries, and it does not try for ever "
    "less") {
    TeamSize team{2};
    int trials = 0;
    TeamSize::Time now{0};
    TeamSize::Time last_trial{0};
    TeamSize::Time gap{0};
    while (now < std::chrono::seconds{120}) {
        now += TeamSize::kLookInterval;
        const bool on_trial = team.size() == 2;
        if (on_trial) {
            ++trials;
            gap = now - last_trial;
            last_trial = now;
        }
        // With two threads one of them waits, a single one finds a free core.
        team.look(now, TeamSize::kLookInterval, on_trial ? milliseconds{12} : milliseconds{0});
    }
    CHECK(trials > 12);
    CHECK(trials < 25);
    CHECK(gap >= TeamSize::kPatienceMax);
    CHECK(gap < TeamSize::kPatienceMax + milliseconds{200});
}

}  // namespace
}  // namespace paceline
