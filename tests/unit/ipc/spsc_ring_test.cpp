#include <random>
#include <sys/types.h>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/ipc/ring_fixture.hpp"

using namespace paceline;
using namespace paceline::test;

TEST_CASE("an empty ring has no frame") {
    RingFixture fixture;
    RingConsumer consumer = fixture.consumer();
    CHECK_FALSE(consumer.has_frame());
    CHECK(pop_outcome(consumer) == Pop::Empty);
}

TEST_CASE("frames come out in order, with kind and bytes, many times around the ring") {
    RingFixture fixture;
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    std::array<std::byte, 64> buffer{};
    std::array<std::byte, 64> bytes{};
    for (std::size_t i = 0; i < 1000; ++i) {
        const std::size_t length = 1 + i % 64;
        for (std::size_t j = 0; j < length; ++j) bytes[j] = static_cast<std::byte>(i * 7 + j);
        REQUIRE(producer.try_push(kData, std::span{bytes}.first(length)) == Push::Ok);
        const Popped popped = consumer.try_pop(buffer);
        REQUIRE(popped.outcome == Pop::Frame);
        CHECK(popped.kind == kData);
        REQUIRE(popped.payload.size() == length);
        CHECK(std::memcmp(popped.payload.data(), bytes.data(), length) == 0);
    }
    CHECK(fixture.header().head.load() == 1000);
    CHECK(fixture.header().tail.load() == 1000);
}

TEST_CASE("a normal frame meets Full while the reserved slots are free, an urgent one does not") {
    RingFixture fixture{8, 2};
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    for (std::uint64_t i = 1; i <= 6; ++i) CHECK(push(producer, i) == Push::Ok);
    CHECK(push(producer, 99) == Push::Full);
    CHECK_FALSE(producer.has_room(Urgency::Normal));
    CHECK(producer.has_room(Urgency::Urgent));
    CHECK(push(producer, 7, kUrgent) == Push::Ok);
    CHECK(push(producer, 8, kUrgent) == Push::Ok);
    CHECK(push(producer, 99, kUrgent) == Push::Full);
    for (std::uint64_t i = 1; i <= 8; ++i) CHECK(pop(consumer) == i);
    CHECK(pop_outcome(consumer) == Pop::Empty);
    CHECK(push(producer, 9) == Push::Ok);
    CHECK(pop(consumer) == 9);
}

TEST_CASE("a frame that was put is invisible until it is published") {
    RingFixture fixture;
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    const std::uint64_t value = 5;
    REQUIRE(producer.try_put(kData, std::as_bytes(std::span{&value, 1})) == Push::Ok);
    CHECK(pop_outcome(consumer) == Pop::Empty);  // as a producer that died here would leave it
    REQUIRE(producer.try_put(kData, std::as_bytes(std::span{&value, 1})) == Push::Ok);
    producer.publish();
    CHECK(pop(consumer) == 5);
    CHECK(pop(consumer) == 5);
}

TEST_CASE("a producer that attaches again goes on where the dead one stopped publishing") {
    RingFixture fixture;
    RingConsumer consumer = fixture.consumer();
    {
        RingProducer dying = fixture.producer();
        CHECK(push(dying, 1) == Push::Ok);
        const std::uint64_t half = 2;
        REQUIRE(dying.try_put(kData, std::as_bytes(std::span{&half, 1})) == Push::Ok);
    }
    RingProducer next = fixture.producer();
    CHECK(push(next, 3) == Push::Ok);
    CHECK(pop(consumer) == 1);
    CHECK(pop(consumer) == 3);
}

TEST_CASE("a corrupt frame is refused, once and for ever, with what was wrong") {
    RingFixture fixture;
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    REQUIRE(push(producer, 1) == Push::Ok);
    FrameHeader& frame = fixture.frame(0);
    SUBCASE("length") {
        frame.len = 0xffffffff;
    }
    SUBCASE("kind") {
        frame.kind = 99;
    }
    SUBCASE("sequence") {
        frame.seq = 2;
    }
    SUBCASE("epoch without its check") {
        frame.epoch = 6;
    }
    SUBCASE("check") {
        frame.header_check ^= 1;
    }
    SUBCASE("count far ahead") {
        fixture.header().head.store(1000);
    }
    SUBCASE("count backwards") {
        CHECK(pop(consumer) == 1);
        fixture.header().head.store(0);
    }
    CHECK(pop_outcome(consumer) == Pop::Corrupt);
    CHECK(pop_outcome(consumer) == Pop::Corrupt);
    REQUIRE_FALSE(consumer.fault().ok());
    CHECK(consumer.fault().error().code == Errc::Protocol);
    CHECK(consumer.has_frame());  // there is something to report
}

TEST_CASE("a well-formed frame that its rule forbids is refused") {
    // The producer here has laxer rules, as a peer of another version might.
    static constexpr std::array lax = {KindRule{kUrgent, 1, 64, Urgency::Normal},
                                       KindRule{9, 1, 64, Urgency::Normal}};
    RingFixture fixture;
    auto producer =
        RingProducer::attach_memory(fixture.memory(), fixture.options.epoch, lax).value();
    RingConsumer consumer = fixture.consumer();
    const std::array<std::byte, 12> bytes{};
    SUBCASE("unknown kind") {
        REQUIRE(producer.try_push(9, bytes) == Push::Ok);
    }
    SUBCASE("too long for its kind") {
        REQUIRE(producer.try_push(kUrgent, bytes) == Push::Ok);
    }
    SUBCASE("too short for its kind") {
        REQUIRE(producer.try_push(kUrgent, std::span{bytes}.first(4)) == Push::Ok);
    }
    CHECK(pop_outcome(consumer) == Pop::Corrupt);
}

TEST_CASE("a whole frame that comes a second time is refused") {
    RingFixture fixture;
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    REQUIRE(push(producer, 1) == Push::Ok);
    REQUIRE(push(producer, 2) == Push::Ok);
    fixture.frame(1) = fixture.frame(0);  // a header that is valid in itself
    CHECK(pop(consumer) == 1);
    CHECK(pop_outcome(consumer) == Pop::Corrupt);
}

TEST_CASE("a ring too small for any frame of a kind is not attached to") {
    RingFixture fixture;
    static constexpr std::array longer = {KindRule{kData, 65, 65, Urgency::Normal}};
    CHECK_FALSE(RingProducer::attach_memory(fixture.memory(), Epoch{7}, longer).ok());
    CHECK_FALSE(RingConsumer::attach_memory(fixture.memory(), Epoch{7}, longer).ok());
}

TEST_CASE("a ring for shorter frames than the longest of a kind refuses those that do not fit") {
    RingFixture fixture;
    static constexpr std::array longer = {KindRule{kData, 1, 96, Urgency::Normal}};
    RingProducer producer = RingProducer::attach_memory(fixture.memory(), Epoch{7}, longer).value();
    RingConsumer consumer = RingConsumer::attach_memory(fixture.memory(), Epoch{7}, longer).value();
    const std::array<std::byte, 96> bytes{};
    REQUIRE(producer.try_push(kData, std::span{bytes}.first(64)) == Push::Ok);
    std::array<std::byte, 64> buffer{};
    CHECK(consumer.try_pop(buffer).payload.size() == 64);
    RingProducer other = RingProducer::attach_memory(fixture.memory(), Epoch{7}, longer).value();
    CHECK(other.try_push(kData, bytes) == Push::Full);
    REQUIRE_FALSE(other.fault().ok());
    CHECK(other.fault().error().what.find("64 bytes has no room for one of 96") !=
          std::string::npos);
    // A peer that believes in a longer payload: its frame lies within the slot, and is refused.
    fixture.header().payload_bytes = 96;
    RingProducer rogue = RingProducer::attach_memory(fixture.memory(), Epoch{7}, longer).value();
    REQUIRE(rogue.try_push(kData, std::span{bytes}.first(65)) == Push::Ok);
    CHECK(consumer.try_pop(buffer).outcome == Pop::Corrupt);
}

namespace {

/// The first byte counts the others.
bool counts_its_bytes(std::span<const std::byte> payload) {
    return !payload.empty() && std::to_integer<std::size_t>(payload.front()) == payload.size() - 1;
}

}  // namespace

TEST_CASE("a frame of another length than its content says is refused") {
    RingFixture fixture;
    static constexpr std::array strict = {
        KindRule{kData, 1, 64, Urgency::Normal, counts_its_bytes}};
    RingConsumer consumer = RingConsumer::attach_memory(fixture.memory(), Epoch{7}, strict).value();
    RingProducer producer = fixture.producer();  // its table knows the bounds alone
    std::array<std::byte, 8> bytes{};
    bytes[0] = std::byte{7};
    REQUIRE(producer.try_push(kData, bytes) == Push::Ok);
    CHECK(pop_outcome(consumer) == Pop::Frame);
    REQUIRE(producer.try_push(kData, std::span{bytes}.first(7)) == Push::Ok);
    CHECK(pop_outcome(consumer) == Pop::Corrupt);
    REQUIRE_FALSE(consumer.fault().ok());
    CHECK(consumer.fault().error().what.find("the length of frame") != std::string::npos);
}

TEST_CASE("a changed payload is found where the ring has checksums") {
    RingFixture fixture{8, 2, true};
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    REQUIRE(push(producer, 1) == Push::Ok);
    CHECK(pop(consumer) == 1);
    REQUIRE(push(producer, 2) == Push::Ok);
    auto* payload = reinterpret_cast<std::byte*>(&fixture.frame(1)) + sizeof(FrameHeader);
    payload[3] ^= std::byte{0x10};
    CHECK(pop_outcome(consumer) == Pop::Corrupt);
}

TEST_CASE("a consumer whose count cannot be is noticed by the producer") {
    RingFixture fixture;
    RingProducer producer = fixture.producer();
    for (std::uint64_t i = 1; i <= 6; ++i) REQUIRE(push(producer, i) == Push::Ok);
    fixture.header().tail.store(40);
    CHECK(push(producer, 7) == Push::Full);
    REQUIRE_FALSE(producer.fault().ok());
    CHECK(producer.fault().error().code == Errc::Protocol);
}

TEST_CASE("a frame of an old epoch is dropped and counted, the ones around it are not") {
    RingFixture fixture;
    RingConsumer consumer = fixture.consumer();
    fixture.header().epoch = 6;  // a zombie that still believes in its own incarnation
    auto zombie = RingProducer::attach_memory(fixture.memory(), Epoch{6}, kRules).value();
    REQUIRE(push(zombie, 1) == Push::Ok);
    fixture.header().epoch = 7;
    RingProducer producer = fixture.producer();
    REQUIRE(push(producer, 2) == Push::Ok);
    CHECK(pop(consumer) == 2);
    CHECK(consumer.stale_frames() == 1);
}

TEST_CASE("a ring whose constants lie is not attached to") {
    RingFixture fixture;
    RingHeader& header = fixture.header();
    SUBCASE("magic") {
        header.magic += 1;
    }
    SUBCASE("version") {
        header.layout_version += 1;
    }
    SUBCASE("slots that are no power of two") {
        header.slot_count = 7;
    }
    SUBCASE("more slots than memory") {
        header.slot_count = 16;
    }
    SUBCASE("payload larger than the stride") {
        header.payload_bytes = 4096;
    }
    SUBCASE("everything reserved") {
        header.urgent_slots = 8;
    }
    SUBCASE("another epoch") {
        header.epoch = 8;
    }
    SUBCASE("another stride") {
        header.slot_stride = 64;
    }
    const Result<RingConsumer> ring =
        RingConsumer::attach_memory(fixture.memory(), fixture.options.epoch, kRules);
    REQUIRE_FALSE(ring.ok());
    CHECK(ring.error().code == Errc::Protocol);
}

TEST_CASE("impossible options are refused") {
    RingOptions options;
    options.payload_bytes = 64;
    CHECK(ring_bytes(options).ok());
    options.slots = 12;
    CHECK_FALSE(ring_bytes(options).ok());
    options.slots = 1U << 31;
    CHECK_FALSE(ring_bytes(options).ok());
    options.slots = 16;
    options.urgent_slots = 16;
    CHECK_FALSE(ring_bytes(options).ok());
    options.urgent_slots = 1;
    options.payload_bytes = 0xffffffff;
    CHECK_FALSE(ring_bytes(options).ok());
}

TEST_CASE("the request for room is passed on for every slot that was freed, until a frame is put") {
    RingFixture fixture;
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    REQUIRE(push(producer, 1) == Push::Ok);
    CHECK(pop(consumer) == 1);
    CHECK_FALSE(consumer.take_room_wanted());  // no producer waits
    REQUIRE(push(producer, 2) == Push::Ok);
    producer.want_room();
    CHECK_FALSE(consumer.take_room_wanted());  // there is nothing to tell
    CHECK(pop(consumer) == 2);
    CHECK(consumer.take_room_wanted());
    CHECK_FALSE(consumer.take_room_wanted());
    REQUIRE(push(producer, 3) == Push::Ok);
    CHECK(pop(consumer) == 3);
    CHECK_FALSE(consumer.take_room_wanted());  // it has had its room
}

TEST_CASE("a request is not used up by the ring for room that the producer has taken already") {
    RingFixture fixture{2, 1};  // room for one normal frame
    RingProducer producer = fixture.producer();
    RingConsumer consumer = fixture.consumer();
    REQUIRE(push(producer, 1) == Push::Ok);
    CHECK(pop(consumer) == 1);
    REQUIRE(push(producer, 2) == Push::Ok);  // sees the room before it is told of it
    producer.want_room();
    CHECK(consumer.take_room_wanted());  // the ring for frame 1: it wakes no producer
    CHECK_FALSE(producer.has_room(Urgency::Normal));
    CHECK(pop(consumer) == 2);
    CHECK(consumer.take_room_wanted());
}

TEST_CASE("room that was made by dropping frames of an old epoch is passed on too") {
    RingFixture fixture;
    RingConsumer consumer = fixture.consumer();
    fixture.header().epoch = 6;
    auto zombie = RingProducer::attach_memory(fixture.memory(), Epoch{6}, kRules).value();
    REQUIRE(push(zombie, 1) == Push::Ok);
    fixture.header().epoch = 7;
    RingProducer producer = fixture.producer();
    producer.want_room();
    CHECK(pop_outcome(consumer) == Pop::Empty);
    CHECK(consumer.take_room_wanted());
}

TEST_CASE("a ring whose counts contradict each other gets no producer") {
    RingFixture fixture;
    fixture.header().tail.store(1);
    CHECK_FALSE(RingProducer::attach_memory(fixture.memory(), Epoch{7}, kRules).ok());
    fixture.header().head.store(10);
    CHECK_FALSE(RingProducer::attach_memory(fixture.memory(), Epoch{7}, kRules).ok());
    fixture.header().tail.store(2);
    CHECK(RingProducer::attach_memory(fixture.memory(), Epoch{7}, kRules).ok());
}

TEST_CASE("two threads: every frame arrives once, whole and in order") {
    RingFixture fixture{16, 4, true};
    constexpr std::uint64_t kFrames = 200'000;
    std::thread writer{[&] {
        RingProducer producer = fixture.producer();
        std::array<std::uint64_t, 8> words{};
        for (std::uint64_t i = 1; i <= kFrames;) {
            words.fill(i);
            const std::size_t count = 1 + i % 8;
            if (producer.try_push(kData, std::as_bytes(std::span{words}.first(count))) ==
                Push::Ok) {
                ++i;
            } else {
                std::this_thread::yield();
            }
        }
    }};
    RingConsumer consumer = fixture.consumer();
    alignas(8) std::array<std::byte, 64> buffer{};
    std::uint64_t wrong = 0;
    for (std::uint64_t expected = 1; expected <= kFrames;) {
        const Popped popped = consumer.try_pop(buffer);
        REQUIRE(popped.outcome != Pop::Corrupt);
        if (popped.outcome == Pop::Empty) {
            std::this_thread::yield();
            continue;
        }
        if (popped.payload.size() != 8 * (1 + expected % 8)) ++wrong;
        for (std::size_t at = 0; at < popped.payload.size(); at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, popped.payload.data() + at, 8);
            if (word != expected) ++wrong;
        }
        ++expected;
    }
    writer.join();
    CHECK(wrong == 0);
}

TEST_CASE("a rogue peer that scribbles over the ring cannot make the consumer misbehave") {
    std::mt19937 random{1};
    std::array<std::byte, 64> buffer{};
    int corrupt = 0;
    for (int round = 0; round < 2000; ++round) {
        RingFixture fixture{8, 2, true};
        RingProducer producer = fixture.producer();
        RingConsumer consumer = fixture.consumer();
        for (std::uint64_t i = 1; i <= 5; ++i) REQUIRE(push(producer, i) == Push::Ok);
        for (int hit = 0; hit < 4; ++hit) {
            fixture.memory()[kLineBytes + random() % (fixture.memory().size() - kLineBytes)] =
                static_cast<std::byte>(random());
        }
        for (int i = 0; i < 20; ++i) {
            const Popped popped = consumer.try_pop(buffer);
            CHECK(popped.payload.size() <= buffer.size());
            if (popped.outcome == Pop::Corrupt) {
                ++corrupt;
                break;
            }
        }
    }
    CHECK(corrupt > 100);  // and some scribbles hit what is not read
}
