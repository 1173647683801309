#include "runtime/cluster/node_roll.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

using What = NodeRoll::News::What;

constexpr Incarnation kFirst{StageId{1}, Epoch{1}};
constexpr Incarnation kSecond{StageId{2}, Epoch{1}};

struct Seen {
    What what;
    Incarnation who;
    friend bool operator==(const Seen&, const Seen&) = default;
};

std::vector<Seen> news_of(NodeRoll& roll) {
    std::vector<Seen> seen;
    while (const auto news = roll.next()) seen.push_back({news->what, news->who});
    return seen;
}

}  // namespace

TEST_CASE("a lost connection silences each stage once, and the end of the lease loses all") {
    NodeRoll roll{"b", Epoch{1}};
    roll.start(kFirst);
    roll.start(kSecond);
    roll.silence(kSecond);  // its own doing
    CHECK(roll.reaches(kFirst));
    CHECK_FALSE(roll.reaches(kSecond));
    roll.link_lost("the link is cut");
    CHECK(news_of(roll) == std::vector<Seen>{{What::Silent, kFirst}});
    CHECK_FALSE(roll.accepts(kFirst));
    CHECK(roll.knows(kFirst));
    roll.lease_ended("the link is cut");
    CHECK(news_of(roll) == std::vector<Seen>{{What::Lost, kFirst}, {What::Lost, kSecond}});
    CHECK_FALSE(roll.knows(kFirst));
}

TEST_CASE("a machine that is back is offered to all stages that were ever started there") {
    NodeRoll roll{"b", Epoch{1}};
    roll.start(kFirst);
    roll.start(kSecond);
    roll.ended(kSecond);
    roll.link_lost("it ended");
    roll.lease_ended("it ended");
    (void)news_of(roll);
    roll.link_back(Epoch{2});
    CHECK(news_of(roll) == std::vector<Seen>{{What::Back, {kFirst.id, Epoch{}}},
                                             {What::Back, {kSecond.id, Epoch{}}}});
    CHECK(roll.is_connected());
}

TEST_CASE("a stage that is started while its machine is away is lost with it, before it is back") {
    NodeRoll roll{"b", Epoch{1}};
    roll.link_lost("the link is cut");
    roll.lease_ended("the link is cut");
    roll.start(kFirst);
    CHECK_FALSE(roll.reaches(kFirst));
    CHECK_FALSE(roll.next().has_value());
    roll.give_up_unstarted();
    const auto lost = roll.next();
    REQUIRE(lost.has_value());
    CHECK(lost->what == What::Lost);
    CHECK(lost->who == kFirst);
    CHECK(lost->why == "machine 'b': the link is cut");
    roll.link_back(Epoch{2});
    CHECK(news_of(roll) == std::vector<Seen>{{What::Back, {kFirst.id, Epoch{}}}});
    roll.give_up_unstarted();
    CHECK_FALSE(roll.next().has_value());
}
