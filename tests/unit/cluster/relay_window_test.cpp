#include "runtime/cluster/relay_window.hpp"

#include <deque>

#include <doctest/doctest.h>

#include "tests/unit/ipc/seeded_random.hpp"

using namespace paceline;
using namespace paceline::test;

TEST_CASE("never more frames are on their way than the receiver has places, 2,000 seeds") {
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
        CAPTURE(seed);
        SeededRandom random{seed};
        const std::uint64_t slots = std::uint64_t{2} << random.below(6);
        const WindowSize size{slots, random.below(static_cast<std::uint32_t>(slots))};
        SendWindow sender{size};
        ReceiveWindow receiver{size};
        std::uint64_t frames = 0;
        std::deque<std::uint64_t> news;
        std::uint64_t sent = 0;
        std::uint64_t put = 0;
        for (int i = 0; i < 400; ++i) {
            const Urgency urgency = random.one_in(4) ? Urgency::Urgent : Urgency::Normal;
            if (random.one_in(2) && sender.has_room(urgency)) {
                sender.note_sent();
                ++sent;
                ++frames;
            }
            if (frames > 0 && random.one_in(2)) {
                REQUIRE(receiver.note_received().ok());
                --frames;
            }
            if (receiver.waiting() > 0 && random.one_in(3)) {
                receiver.note_put();
                ++put;
            }
            if (const auto total = receiver.news(); total && !random.one_in(3)) {
                news.push_back(*total);
                receiver.told(*total);
            }
            if (!news.empty() && random.one_in(2)) {
                REQUIRE(sender.note_taken(news.front()).ok());
                news.pop_front();
            }
            REQUIRE(sender.in_flight() <= slots);
        }
        // Once all has arrived, the sender is told of enough room to go on, for normal frames too.
        for (; frames > 0; --frames) REQUIRE(receiver.note_received().ok());
        while (receiver.waiting() > 0) receiver.note_put();
        if (const auto total = receiver.news()) {
            news.push_back(*total);
            receiver.told(*total);
        }
        for (const std::uint64_t total : news) REQUIRE(sender.note_taken(total).ok());
        REQUIRE(sender.has_room(Urgency::Normal));
    }
}

TEST_CASE("the last places are for urgent frames") {
    SendWindow window{{4, 2}};
    window.note_sent();
    CHECK(window.has_room(Urgency::Normal));
    window.note_sent();
    CHECK_FALSE(window.has_room(Urgency::Normal));
    CHECK(window.has_room(Urgency::Urgent));
    window.note_sent();
    window.note_sent();
    CHECK_FALSE(window.has_room(Urgency::Urgent));
    CHECK(window.note_taken(1).ok());
    CHECK(window.has_room(Urgency::Urgent));
    CHECK_FALSE(window.has_room(Urgency::Normal));
}

TEST_CASE("numbers that cannot be are refused") {
    SendWindow sender{{4, 1}};
    sender.note_sent();
    CHECK(sender.note_taken(2).error().code == Errc::Protocol);
    ReceiveWindow receiver{{2, 0}};
    CHECK(receiver.note_received().ok());
    CHECK(receiver.note_received().ok());
    CHECK(receiver.note_received().error().code == Errc::Protocol);
}
