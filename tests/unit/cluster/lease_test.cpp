#include "runtime/cluster/lease.hpp"

#include <deque>
#include <optional>

#include <doctest/doctest.h>

#include "runtime/cluster/node_link.hpp"
#include "tests/unit/ipc/seeded_random.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

using Nanos = LeaseRules::Nanos;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// An agent and a conductor with clocks of their own, and a connection that delays and loses.
struct Pair {
    struct Flight {
        Nanos arrives;
        LeaseHolder::Ask ask;
    };

    explicit Pair(std::uint64_t seed)
        : random{seed}, agent_offset{seconds{random.below(100'000)}}, granter{rules, now} {
        said_hello = agent_now();
    }
    [[nodiscard]] Nanos agent_now() const { return now + agent_offset; }
    [[nodiscard]] Nanos delay() {
        return milliseconds{random.one_in(20) ? random.below(6'000) : random.below(50)};
    }

    void step() {
        now += milliseconds{1 + random.below(40)};
        if (random.one_in(400)) cut = now + seconds{random.below(12)};
        const bool frozen = now < agent_frozen;
        if (!frozen && random.one_in(800)) agent_frozen = now + seconds{random.below(9)};
        if (!frozen && !holder && now >= answered) holder.emplace(rules, said_hello);
        if (!frozen && !killed && holder) {
            if (holder->is_over(agent_now())) killed = now;
        }
        if (!frozen && !killed && holder) {
            if (const auto ask = holder->ask(agent_now()); ask && now >= cut)
                asks.push_back({now + delay(), *ask});
        }
        while (!asks.empty() && asks.front().arrives <= now) {
            if (!granter.is_over(now) && !ended) {
                granter.grant(now);
                if (now >= cut) grants.push_back({now + delay(), asks.front().ask});
            }
            asks.pop_front();
        }
        while (!frozen && !killed && holder && !grants.empty() && grants.front().arrives <= now) {
            holder->granted(grants.front().ask.number, grants.front().ask.asked, granter.length());
            grants.pop_front();
        }
        if (granter.is_over(now) && !ended) ended = now;
    }

    LeaseRules rules;
    SeededRandom random;
    Nanos now{seconds{1}};
    Nanos agent_offset;
    Nanos said_hello{0};
    Nanos answered{now + delay()};  // its Hello
    Nanos cut{0};
    Nanos agent_frozen{0};
    LeaseGranter granter;
    std::optional<LeaseHolder> holder;
    std::deque<Flight> asks;
    std::deque<Flight> grants;
    std::optional<Nanos> killed;
    std::optional<Nanos> ended;
};

}  // namespace

TEST_CASE("an agent's lease is over before the conductor counts its stages as ended, 2,000 seeds") {
    int ends = 0;
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
        CAPTURE(seed);
        Pair pair{seed};
        for (int i = 0; i < 2'000 && !pair.ended; ++i) pair.step();
        if (!pair.ended || !pair.holder) continue;
        ++ends;
        // A frozen agent computes nothing either, and finds its lease over when it goes on.
        REQUIRE(pair.holder->is_over(pair.agent_now()));
        REQUIRE(pair.holder->end() - pair.agent_offset + pair.rules.margin <= *pair.ended);
    }
    CHECK(ends > 100);  // the faults do bring leases to their end
}

TEST_CASE(
    "a lease goes on while asks are granted, and a late or repeated grant never shortens it") {
    const LeaseRules rules;
    LeaseHolder holder{rules, seconds{10}};
    const auto first = holder.ask(seconds{10});
    REQUIRE(first.has_value());
    CHECK_FALSE(holder.ask(seconds{10} + milliseconds{499}).has_value());
    const auto second = holder.ask(seconds{10} + milliseconds{500});
    REQUIRE(second.has_value());
    holder.granted(second->number, second->asked, rules.length);
    CHECK(holder.end() == seconds{15} + milliseconds{500});
    holder.granted(first->number, first->asked, rules.length);
    holder.granted(second->number, second->asked, milliseconds{1});
    CHECK(holder.end() == seconds{15} + milliseconds{500});
    CHECK_FALSE(holder.is_over(seconds{15}));
    CHECK(holder.is_over(seconds{15} + milliseconds{500}));
}

TEST_CASE("a grant of an ask that was not made changes nothing") {
    LeaseHolder holder{{}, seconds{0}};
    holder.granted(7, seconds{100}, seconds{5});
    holder.granted(0, seconds{100}, seconds{5});
    CHECK(holder.end() == seconds{5});
}

TEST_CASE("frames of an older node epoch are dropped, those of the newest and newer ones count") {
    NodeEpochs epochs;
    CHECK(epochs.admit(Epoch{0}));
    CHECK(epochs.admit(Epoch{2}));
    CHECK_FALSE(epochs.admit(Epoch{1}));
    CHECK_FALSE(epochs.admit(Epoch{0}));
    CHECK(epochs.admit(Epoch{2}));
    CHECK(epochs.admit(Epoch{3}));
    CHECK(epochs.newest() == Epoch{3});
}

TEST_CASE("the clocks of two machines differ by what the shortest of the last round trips says") {
    ClockOffset offset;
    CHECK_FALSE(offset.ahead());
    offset.add(seconds{9}, seconds{1}, seconds{8});  // it arrived before it was asked for
    CHECK_FALSE(offset.ahead());
    // The conductor's clock shows 100 s more; both ways take the same time.
    offset.add(seconds{10}, milliseconds{110'400}, milliseconds{10'800});
    CHECK(offset.ahead() == Nanos{seconds{100}});
    // A way there of 1 ms and one back of 9 ms: wrong by half of the difference.
    offset.add(seconds{11}, milliseconds{111'001}, milliseconds{11'010});
    CHECK(offset.ahead() == Nanos{milliseconds{99'996}});
    // Later ones are longer, until the shortest is one of long ago.
    for (int i = 0; i < 15; ++i) offset.add(seconds{20}, seconds{121}, seconds{22});
    CHECK(offset.ahead() == Nanos{milliseconds{99'996}});
    offset.add(seconds{20}, seconds{121}, seconds{22});
    CHECK(offset.ahead() == Nanos{seconds{100}});
}
