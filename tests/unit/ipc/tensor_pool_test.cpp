#include "ipc/transport/tensor_pool.hpp"

#include <cstring>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
};

struct PoolFixture {
    explicit PoolFixture(std::uint32_t slots = 3, std::size_t slot_bytes = 1000) {
        lines.resize(pool_bytes(slots, slot_bytes).value() / sizeof(Line));
        format_pool(memory(), slots, slot_bytes);
    }
    [[nodiscard]] std::span<std::byte> memory() {
        return {lines.front().bytes, lines.size() * sizeof(Line)};
    }
    std::vector<Line> lines;
};

}  // namespace

TEST_CASE("a tensor is read in place after it was published, and its slot comes back") {
    PoolFixture fixture;
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    const PoolRef slot = producer.acquire().value();
    CHECK_FALSE(consumer.view(slot, 10).ok());  // not yet
    const std::span<std::byte> bytes = producer.bytes(slot);
    CHECK(bytes.size() == 1000);
    CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % kLineBytes == 0);
    const TensorMemory memory = producer.place(slot);
    CHECK(memory.data == bytes.data());
    CHECK(memory.bytes == bytes.size());
    CHECK(memory.place == MemoryPlace::Host);
    std::memset(bytes.data(), 0x5a, bytes.size());
    CHECK_FALSE(consumer.view_memory(slot, 10).ok());
    producer.publish(slot, 600);

    const auto seen = consumer.view(slot, 600);
    REQUIRE(seen.ok());
    CHECK(seen.value().data() == bytes.data());
    CHECK(seen.value()[599] == std::byte{0x5a});
    const auto placed = consumer.view_memory(slot, 599);
    REQUIRE(placed.ok());
    CHECK(placed.value().data == bytes.data());
    CHECK(placed.value().bytes == 599);
    CHECK(placed.value().place == MemoryPlace::Host);
    CHECK_FALSE(consumer.view_memory(slot, 601).ok());
    consumer.release(slot);
    CHECK_FALSE(consumer.view(slot, 10).ok());
    CHECK_FALSE(consumer.view_memory(slot, 10).ok());
}

TEST_CASE("a pool is bounded: when all slots are in flight there is none") {
    PoolFixture fixture;
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    std::vector<PoolRef> slots;
    for (int i = 0; i < 3; ++i) {
        slots.push_back(producer.acquire().value());
        producer.publish(slots.back(), 1);
    }
    CHECK_FALSE(producer.take_starved());
    CHECK_FALSE(producer.acquire());
    CHECK(producer.take_starved());
    consumer.release(slots[1]);  // not in the order in which they were published
    CHECK(producer.has_room());
    const PoolRef again = producer.acquire().value();
    CHECK(again.index == slots[1].index);
    CHECK(again.generation == slots[1].generation + 2);
}

TEST_CASE("a reference to an earlier life of a slot reads nothing and releases nothing") {
    PoolFixture fixture{1};
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    const PoolRef first = producer.acquire().value();
    producer.publish(first, 8);
    consumer.release(first);
    const PoolRef second = producer.acquire().value();
    producer.publish(second, 8);
    CHECK_FALSE(consumer.view(first, 8).ok());
    consumer.release(first);
    CHECK(consumer.view(second, 8).ok());
    CHECK_FALSE(producer.has_room());
}

TEST_CASE("what a peer claims about a tensor is checked") {
    PoolFixture fixture;
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    const PoolRef slot = producer.acquire().value();
    producer.publish(slot, 100);
    for (const PoolRef claim : {PoolRef{3, 1}, PoolRef{0xffffffff, 1}, PoolRef{slot.index, 0},
                                PoolRef{slot.index, slot.generation + 2}}) {
        const auto view = consumer.view(claim, 1);
        REQUIRE_FALSE(view.ok());
        CHECK(view.error().code == Errc::Protocol);
    }
    CHECK_FALSE(consumer.view(slot, 101).ok());
    CHECK_FALSE(consumer.view(slot, static_cast<std::size_t>(-1)).ok());
    CHECK(consumer.view(slot, 100).ok());
}

TEST_CASE("a slot that was acquired and given up is free again under the same name") {
    PoolFixture fixture{1};
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    const PoolRef slot = producer.acquire().value();
    CHECK_FALSE(producer.acquire());
    producer.abandon(slot);
    CHECK(producer.acquire().value() == slot);
}

TEST_CASE("a consumer that changes a slot that is not its own is noticed") {
    PoolFixture fixture;
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto* states = reinterpret_cast<PoolSlotState*>(fixture.memory().data() + sizeof(PoolHeader));
    states[0].generation.store(9);
    CHECK_FALSE(producer.acquire());
    REQUIRE_FALSE(producer.fault().ok());
    CHECK(producer.fault().error().code == Errc::Protocol);
}

TEST_CASE("a pool whose constants lie is not attached to") {
    PoolFixture fixture;
    auto* header = reinterpret_cast<PoolHeader*>(fixture.memory().data());
    SUBCASE("magic") {
        header->magic = 0;
    }
    SUBCASE("slots") {
        header->slot_count = 1000;
    }
    SUBCASE("bytes that would wrap") {
        header->slot_bytes = ~0ULL;
    }
    SUBCASE("no slots") {
        header->slot_count = 0;
    }
    CHECK_FALSE(TensorConsumer::attach_memory(fixture.memory()).ok());
}

TEST_CASE("the request for a slot is passed on once one was released") {
    PoolFixture fixture{1};
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    const PoolRef slot = producer.acquire().value();
    producer.publish(slot, 1);
    producer.want_room();
    CHECK_FALSE(consumer.take_room_wanted());  // nothing was released: nothing to tell
    consumer.release(slot);
    CHECK(consumer.take_room_wanted());
}

TEST_CASE("two threads: tensors handed over and back are never torn") {
    PoolFixture fixture{2, 512};
    constexpr int kTensors = 20'000;
    std::atomic<std::uint64_t> mailbox{0};  // index and generation, 0 = empty
    std::thread writer{[&] {
        auto producer = TensorProducer::attach_memory(fixture.memory()).value();
        for (int i = 1; i <= kTensors;) {
            const auto slot = producer.acquire();
            if (!slot) {
                std::this_thread::yield();
                continue;
            }
            std::memset(producer.bytes(*slot).data(), i & 0xff, 512);
            producer.publish(*slot, 512);
            while (mailbox.load(std::memory_order_acquire) != 0) std::this_thread::yield();
            mailbox.store((std::uint64_t{slot->generation} << 32) | (slot->index + 1),
                          std::memory_order_release);
            ++i;
        }
    }};
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    int wrong = 0;
    for (int i = 1; i <= kTensors;) {
        const std::uint64_t mail = mailbox.exchange(0, std::memory_order_acq_rel);
        if (mail == 0) {
            std::this_thread::yield();
            continue;
        }
        const PoolRef slot{static_cast<std::uint32_t>(mail) - 1,
                           static_cast<std::uint32_t>(mail >> 32)};
        const auto view = consumer.view(slot, 512);
        REQUIRE(view.ok());
        for (const std::byte byte : view.value()) wrong += byte != static_cast<std::byte>(i & 0xff);
        consumer.release(slot);
        ++i;
    }
    writer.join();
    CHECK(wrong == 0);
}
