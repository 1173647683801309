// Tensor pools whose slots lie elsewhere: on a device of the process, or behind a link.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/transport/tensor_link.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/announced_tensor.hpp"
#include "ipc/wire/batch_frame.hpp"

using namespace paceline;

namespace {

constexpr std::uint32_t kSlots = 3;
constexpr std::size_t kBytes = 200;

struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
};

struct Fixture {
    Fixture() {
        lines.resize(pool_bytes(kSlots, kBytes, PoolData::Elsewhere).value() / sizeof(Line));
        format_pool(memory(), kSlots, kBytes, PoolData::Elsewhere);
    }
    [[nodiscard]] std::span<std::byte> memory() {
        return {lines.front().bytes, lines.size() * sizeof(Line)};
    }
    std::vector<Line> lines;
    std::vector<std::byte> device = std::vector<std::byte>(kSlots * pool_stride(kBytes));
};

struct Sent {
    std::uint32_t index;
    std::size_t bytes;
    friend bool operator==(const Sent&, const Sent&) = default;
};

struct RecordingOut final : OutLink {
    explicit RecordingOut(std::byte* at) : memory{at} {}
    Result<LinkState> poll() override { return LinkState::Open; }
    std::byte* slot(std::uint32_t index) override { return memory + index * kBytes; }
    void send(std::uint32_t index, std::size_t bytes) override { sent.push_back({index, bytes}); }
    bool reusable(std::uint32_t index) override { return !busy[index]; }
    std::byte* memory;
    std::vector<Sent> sent;
    std::map<std::uint32_t, bool> busy;
};

struct RecordingIn final : InLink {
    explicit RecordingIn(std::byte* at) : memory{at} {}
    Result<LinkState> poll() override { return LinkState::Open; }
    std::byte* slot(std::uint32_t index) override { return memory + index * kBytes; }
    void expect(std::uint32_t index, std::size_t bytes) override {
        expected.push_back({index, bytes});
    }
    bool arrived(std::uint32_t /*index*/) override { return there; }
    std::byte* memory;
    std::vector<Sent> expected;
    bool there = false;
};

}  // namespace

TEST_CASE("a pool without slots of its own gives none, and refuses references, until it is told") {
    Fixture fixture;
    CHECK(fixture.memory().size() == sizeof(PoolHeader) + kSlots * sizeof(PoolSlotState));
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    CHECK(producer.is_elsewhere());
    CHECK_FALSE(producer.acquire());
    CHECK(producer.take_starved());
    CHECK_FALSE(producer.has_room());

    producer.use_memory(fixture.device.data());
    CHECK(producer.has_room());
    (void)producer.acquire().value();
    const PoolRef slot = producer.acquire().value();
    const TensorMemory place = producer.place(slot);
    CHECK(place.data == fixture.device.data() + slot.index * pool_stride(kBytes));
    CHECK(place.bytes == kBytes);
    CHECK(place.place == MemoryPlace::Device);
    producer.publish(slot, 100);
    const auto early = consumer.view_memory(slot, 100);
    REQUIRE_FALSE(early.ok());
    CHECK(early.error().code == Errc::Protocol);
    consumer.use_memory(fixture.device.data());
    const TensorMemory seen = consumer.view_memory(slot, 100).value();
    CHECK(seen.data == place.data);
    CHECK(seen.bytes == 100);
    CHECK(seen.place == MemoryPlace::Device);
    CHECK_FALSE(consumer.view_memory(slot, 101).ok());
    consumer.release(slot);
    CHECK_FALSE(consumer.view_memory(slot, 1).ok());
}

TEST_CASE("a slot is sent with the first message that names it, and expected with the same one") {
    Fixture fixture;
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    RecordingOut out{fixture.device.data()};
    RecordingIn in{fixture.device.data()};
    producer.use_link(&out);
    consumer.use_link(&in);
    const PoolRef first = producer.acquire().value();
    CHECK(producer.place(first).data == out.slot(first.index));
    producer.publish(first, 64);
    const PoolRef unsaid = producer.acquire().value();
    producer.publish(unsaid, 32);
    const PoolRef second = producer.acquire().value();
    producer.publish(second, 16);
    CHECK(out.sent.empty());
    for (const PoolRef named : {second, first, first, PoolRef{first.index, first.generation + 2},
                                PoolRef{first.index, first.generation - 1}, PoolRef{99, 1}}) {
        producer.announce(named);
    }
    const std::vector<Sent> wanted{{second.index, 16}, {first.index, 64}};
    CHECK(out.sent == wanted);

    for (const PoolRef named : {second, first, first}) CHECK(consumer.announce(named).ok());
    CHECK(in.expected == wanted);
    for (const PoolRef wrong : {PoolRef{first.index, first.generation + 2}, PoolRef{99, 1}}) {
        const Status named = consumer.announce(wrong);
        REQUIRE_FALSE(named.ok());
        CHECK(named.error().code == Errc::Protocol);
    }
    CHECK_FALSE(consumer.has_arrived(first));
    in.there = true;
    CHECK(consumer.has_arrived(first));

    // The next life of a slot is sent again.
    consumer.release(first);
    const PoolRef again = producer.acquire().value();
    REQUIRE(again.index == first.index);
    producer.publish(again, 8);
    producer.announce(first);
    CHECK(out.sent == wanted);
    producer.announce(again);
    CHECK(consumer.announce(again).ok());
    CHECK(out.sent.size() == 3);
    CHECK(in.expected.size() == 3);
}

TEST_CASE("a slot that its link still reads is not free, and a closed pool has none") {
    Fixture fixture;
    auto producer = TensorProducer::attach_memory(fixture.memory()).value();
    auto consumer = TensorConsumer::attach_memory(fixture.memory()).value();
    RecordingOut out{fixture.device.data()};
    producer.use_link(&out);
    consumer.use_memory(fixture.device.data());
    for (std::uint32_t i = 0; i < kSlots; ++i) out.busy[i] = true;
    CHECK_FALSE(producer.has_room());
    out.busy[1] = false;
    const PoolRef slot = producer.acquire().value();
    CHECK(slot.index == 1);
    CHECK_FALSE(producer.acquire());
    out.busy.clear();
    producer.close();
    CHECK_FALSE(producer.acquire());
    CHECK(producer.place(slot).data == out.slot(1));  // who has it may still fill it
    producer.publish(slot, 1);
    producer.announce(slot);
    CHECK(out.sent.empty());
}

TEST_CASE("a header that says something else of its slots is refused") {
    Fixture fixture;
    auto* header = reinterpret_cast<PoolHeader*>(fixture.memory().data());
    header->data = 2;
    CHECK_FALSE(TensorConsumer::attach_memory(fixture.memory()).ok());
    header->data = static_cast<std::uint32_t>(PoolData::Here);  // more than the memory holds
    CHECK_FALSE(TensorConsumer::attach_memory(fixture.memory()).ok());
}

TEST_CASE("batches and notes announce a tensor, other messages and bytes that are too few do not") {
    const auto announced = [](const auto& message, std::size_t cut = 0) {
        const auto bytes = std::as_bytes(std::span{&message, 1});
        return msg::announced_tensor(static_cast<std::uint16_t>(message.kKind),
                                     bytes.first(bytes.size() - cut));
    };
    const auto announced_by_batch = [](const msg::Batch& sent, std::size_t bytes = SIZE_MAX) {
        const std::vector<std::byte> frame = msg::frame_of(sent);
        return msg::announced_tensor(static_cast<std::uint16_t>(msg::Kind::Batch),
                                     std::span{frame}.first(std::min(bytes, frame.size())));
    };
    msg::Batch batch{};
    batch.parts.resize(1);
    batch.rows.resize(1);
    batch.tensor = 3;
    batch.tensor_generation = 9;
    CHECK(announced_by_batch(batch) == PoolRef{3, 9});
    CHECK_FALSE(announced_by_batch(batch, offsetof(msg::BatchHeader, tensor_generation)));
    batch.tensor = msg::kNoTensor;
    CHECK_FALSE(announced_by_batch(batch));
    msg::TensorNote note{};
    note.tensor = 2;
    note.tensor_generation = 5;
    CHECK(announced(note) == PoolRef{2, 5});
    CHECK_FALSE(announced(note, 1));
    CHECK_FALSE(announced(msg::Proposal{}));
    CHECK_FALSE(announced(msg::Verdict{}));
    CHECK_FALSE(announced(msg::Stop{}));
    CHECK_FALSE(msg::announced_tensor(77, std::as_bytes(std::span{&batch, 1})));
}
