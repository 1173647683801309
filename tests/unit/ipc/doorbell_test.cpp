#include "ipc/transport/doorbell.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/ipc/ring_fixture.hpp"

using namespace paceline;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST_CASE("a wait without a bell is over after its limit") {
    Doorbell bell = Doorbell::local();
    const auto start = Clock::now();
    CHECK_FALSE(bell.wait([] { return false; }, 0us, 20ms));
    CHECK(Clock::now() - start >= 19ms);
}

TEST_CASE("a sleep never lasts longer than its highest limit, whatever is asked for") {
    Doorbell bell = Doorbell::local();
    const auto start = Clock::now();
    CHECK_FALSE(bell.wait([] { return false; }, 0us, Doorbell::Micros{3'600'000'000}));
    CHECK(Clock::now() - start >= 90ms);
}

TEST_CASE("no wait without a limit: it only looks") {
    Doorbell bell = Doorbell::local();
    bool slept = false;
    CHECK_FALSE(bell.wait([] { return false; }, 0us, 0us, &slept));
    CHECK(bell.wait([] { return true; }, 0us, 100ms, &slept));
    CHECK_FALSE(slept);
}

TEST_CASE("a ring wakes a sleeper long before its limit") {
    // Again while a busy machine lets the producer or the sleeper come late: a ring that wakes
    // nobody is never in time.
    for (bool in_time = false; !in_time;) {
        Doorbell bell = Doorbell::local();
        std::atomic<bool> news{false};
        std::atomic<bool> waits{false};
        std::thread producer{[&] {
            while (!waits.load()) std::this_thread::yield();
            std::this_thread::sleep_for(5ms);
            news.store(true, std::memory_order_release);
            bell.ring();
        }};
        const auto ready = [&] {
            waits.store(true);
            return news.load(std::memory_order_acquire);
        };
        const auto start = Clock::now();
        while (!bell.wait(ready, 0us, Doorbell::kSleepMax)) {
        }
        in_time = Clock::now() - start < Doorbell::kSleepMax / 2;
        producer.join();
        CHECK(news.load());
    }
}

TEST_CASE("an announcement is counted and wakes") {
    Doorbell bell = Doorbell::local();
    CHECK(bell.announced() == 0);
    std::thread conductor{[&] {
        std::this_thread::sleep_for(5ms);
        bell.announce();
    }};
    while (!bell.wait([&] { return bell.announced() == 1; }, 0us, 100ms)) {
    }
    conductor.join();
    CHECK(bell.announced() == 1);
}

TEST_CASE("ten thousand hand-overs between sleepers lose no wake-up") {
    // Each end sleeps until the other has spoken; a lost wake-up costs a whole 100 ms limit, and
    // more than a few of those (the scheduler may have its reasons) would be seen.
    Doorbell there = Doorbell::local();
    Doorbell back = Doorbell::local();
    std::atomic<int> ping{0};
    std::atomic<int> pong{0};
    constexpr int kRounds = 10'000;
    std::atomic<int> late{0};
    const auto wait_for = [&late](Doorbell& bell, std::atomic<int>& word, int value) {
        const auto ready = [&] { return word.load(std::memory_order_acquire) == value; };
        while (!bell.wait(ready, 0us, 100ms)) ++late;
    };
    std::thread other{[&] {
        for (int i = 1; i <= kRounds; ++i) {
            wait_for(there, ping, i);
            pong.store(i, std::memory_order_release);
            back.ring();
        }
    }};
    for (int i = 1; i <= kRounds; ++i) {
        ping.store(i, std::memory_order_release);
        there.ring();
        wait_for(back, pong, i);
    }
    other.join();
    CHECK(late.load() <= 3);
}

TEST_CASE("memory that is too small or holds something else is no doorbell") {
    const ShmFile other = ShmFile::create("other", sizeof(DoorbellHeader), {}).value();
    const ShmFile small = ShmFile::create("small", sizeof(DoorbellHeader) - 1, {}).value();
    for (const int fd : {other.fd(), small.fd()}) {
        const Result<Doorbell> bell = Doorbell::attach(ShmRegion::attach(fd, 1).value());
        REQUIRE_FALSE(bell.ok());
        CHECK(bell.error().code == Errc::Protocol);
    }
}

TEST_CASE("two threads that sleep for frames and for room lose no wake-up") {
    // A ring of four slots is full most of the time: both ends sleep again and again, the
    // producer with a request for room. A lost wake-up would cost a whole limit, see above.
    test::RingFixture fixture{4, 1};
    Doorbell for_frames = Doorbell::local();
    Doorbell for_room = Doorbell::local();
    constexpr std::uint64_t kFrames = 5'000;
    std::atomic<int> late{0};
    std::thread writer{[&] {
        RingProducer producer = fixture.producer();
        const auto has_room = [&] { return producer.has_room(Urgency::Normal); };
        for (std::uint64_t i = 1; i <= kFrames;) {
            if (test::push(producer, i) == Push::Ok) {
                ++i;
                for_frames.ring();
                continue;
            }
            producer.want_room();
            if (!for_room.wait(has_room, 0us, 100ms)) ++late;
        }
    }};
    RingConsumer consumer = fixture.consumer();
    std::uint64_t wrong = 0;
    for (std::uint64_t expected = 1; expected <= kFrames;) {
        if (!for_frames.wait([&] { return consumer.has_frame(); }, 0us, 100ms)) ++late;
        while (consumer.has_frame()) wrong += test::pop(consumer) != expected++ ? 1 : 0;
        if (consumer.take_room_wanted()) for_room.ring();
    }
    writer.join();
    CHECK(wrong == 0);
    CHECK(late.load() <= 10);
}
