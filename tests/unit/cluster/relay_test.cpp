#include "runtime/cluster/relay.hpp"

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/wire/data_kinds.hpp"
#include "tests/unit/ipc/seeded_random.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr Epoch kEpoch{3};
constexpr std::uint32_t kEdge = 9;

/// The memory of a channel on one machine.
struct Channel {
    Channel(std::uint32_t slots, std::uint32_t urgent, std::size_t tensor_bytes) {
        RingOptions options;
        options.slots = slots;
        options.urgent_slots = urgent;
        options.payload_bytes = frame_bytes_for(1);
        options.epoch = kEpoch;
        ring = create_ring("ring", options).value();
        pool = create_pool("pool", 2, tensor_bytes).value();
    }
    [[nodiscard]] ChannelMemory memory() const {
        return {ShmRegion::attach(ring.fd(), 1).value(), ShmRegion::attach(pool.fd(), 1).value(),
                Doorbell::local()};
    }
    ShmFile ring;
    ShmFile pool;
};

/// Frames on their way to the other machine, with copies of what they borrow.
struct Way final : FramePort {
    struct Flight {
        remote::Frame frame;
        std::vector<std::byte> bytes;
    };
    explicit Way(SeededRandom& with) : random{with} {}
    remote::Sent send(const remote::Frame& frame, remote::Lane lane, bool urgent) override {
        if (!urgent && random.one_in(3)) return remote::Sent::Full;
        Flight flight{frame, {}};
        if (const auto* edge = std::get_if<remote::EdgeFrame>(&frame))
            flight.bytes.assign(edge->payload.begin(), edge->payload.end());
        if (const auto* part = std::get_if<remote::TensorPart>(&frame))
            flight.bytes.assign(part->bytes.begin(), part->bytes.end());
        (lane == remote::Lane::Control ? control : data).push_back(std::move(flight));
        return remote::Sent::Queued;
    }
    /// One frame, if there is one; those of the control lane may come first.
    void deliver(Relay& to) {
        auto& lane = control.empty() || (!data.empty() && random.one_in(2)) ? data : control;
        if (lane.empty()) return;
        Flight flight = std::move(lane.front());
        lane.pop_front();
        if (auto* edge = std::get_if<remote::EdgeFrame>(&flight.frame)) {
            edge->payload = flight.bytes;
            REQUIRE(to.take(*edge).ok());
        } else if (auto* part = std::get_if<remote::TensorPart>(&flight.frame)) {
            part->bytes = flight.bytes;
            REQUIRE(to.take(*part).ok());
        } else if (auto* room = std::get_if<remote::EdgeRoom>(&flight.frame)) {
            REQUIRE(to.take(*room).ok());
        } else {
            REQUIRE(to.take(std::get<remote::TensorFree>(flight.frame)).ok());
        }
    }
    [[nodiscard]] bool empty() const { return control.empty() && data.empty(); }
    SeededRandom& random;
    std::deque<Flight> control;
    std::deque<Flight> data;
};

template <class M>
std::span<const std::byte> bytes_of(const M& message) {
    return std::as_bytes(std::span{&message, 1});
}

/// Two machines, an edge between them, and a stage at each end.
struct World {
    World(std::uint64_t seed, std::size_t tensor_bytes)
        : random{seed},
          slots{2U << random.below(4)},
          urgent{random.below(slots)},
          near{slots, urgent, tensor_bytes},
          far{slots, urgent, tensor_bytes},
          producer{
              RingProducer::attach(ShmRegion::attach(near.ring.fd(), 1).value(), kEpoch, kDataKinds)
                  .value()},
          tensors{TensorProducer::attach(ShmRegion::attach(near.pool.fd(), 1).value()).value()},
          consumer{
              RingConsumer::attach(ShmRegion::attach(far.ring.fd(), 1).value(), kEpoch, kDataKinds)
                  .value()},
          read{TensorConsumer::attach(ShmRegion::attach(far.pool.fd(), 1).value()).value()} {
        out.add(kEdge, RelayOut::attach(kEdge, kEpoch, near.memory()).value());
        in.add(kEdge, RelayIn::attach(kEdge, kEpoch, far.memory()).value());
    }

    /// The producer's stage sends number `next`: plain, urgent or with a tensor.
    void produce() {
        const std::uint32_t kind = random.below(3);
        if (kind == 0) {
            msg::Price price{};
            price.generation = next;
            if (producer.try_push(static_cast<std::uint16_t>(msg::Kind::Price), bytes_of(price)) ==
                Push::Ok)
                ++next;
        } else if (kind == 1) {
            msg::Stop stop{};
            stop.route.request = RequestId{next};
            if (producer.try_push(static_cast<std::uint16_t>(msg::Kind::Stop), bytes_of(stop)) ==
                Push::Ok)
                ++next;
        } else {
            produce_tensor();
        }
    }
    void produce_tensor() {
        if (!producer.has_room(Urgency::Normal)) return;
        const std::optional<PoolRef> slot = tensors.acquire();
        if (!slot) return;
        const std::span<std::byte> data = tensors.bytes(*slot);
        const std::size_t used = 1 + random.below(static_cast<std::uint32_t>(data.size()));
        for (std::size_t i = 0; i < used; ++i) data[i] = static_cast<std::byte>(next + i * 7);
        tensors.publish(*slot, used);
        msg::TensorNote note{};
        note.layer = next;
        note.rows = static_cast<std::uint32_t>(used);
        note.tensor = slot->index;
        note.tensor_generation = slot->generation;
        REQUIRE(producer.try_push(static_cast<std::uint16_t>(msg::Kind::TensorNote),
                                  bytes_of(note)) == Push::Ok);
        ++next;
    }

    void consume() {
        std::vector<std::byte> buffer(consumer.payload_bytes());
        const Popped popped = consumer.try_pop(buffer);
        if (popped.outcome == Pop::Empty) return;
        REQUIRE(popped.outcome == Pop::Frame);
        const auto kind = static_cast<msg::Kind>(popped.kind);
        std::uint32_t number = 0;
        if (kind == msg::Kind::Price) {
            msg::Price price{};
            std::memcpy(&price, popped.payload.data(), sizeof price);
            number = price.generation;
        } else if (kind == msg::Kind::Stop) {
            msg::Stop stop{};
            std::memcpy(&stop, popped.payload.data(), sizeof stop);
            number = static_cast<std::uint32_t>(stop.route.request.value);
        } else {
            msg::TensorNote note{};
            std::memcpy(&note, popped.payload.data(), sizeof note);
            number = note.layer;
            check_tensor(note);
        }
        REQUIRE(number == received);
        ++received;
    }
    void check_tensor(const msg::TensorNote& note) {
        const PoolRef slot{note.tensor, note.tensor_generation};
        const auto data = read.view(slot, note.rows);
        REQUIRE(data.ok());
        for (std::size_t i = 0; i < note.rows; ++i)
            REQUIRE(data.value()[i] == static_cast<std::byte>(note.layer + i * 7));
        held.push_back(slot);
    }

    void release_all() {
        for (; !held.empty(); held.pop_front()) read.release(held.front());
    }

    void step() {
        switch (random.below(6)) {
            case 0:
                return produce();
            case 1:
                return consume();
            case 2:
                if (held.empty()) return;
                read.release(held.front());
                held.pop_front();
                return;
            case 3:
                out.pump();
                in.pump();
                return;
            case 4:
                return there.deliver(in);
            default:
                return back.deliver(out);
        }
    }

    SeededRandom random;
    std::uint32_t slots;
    std::uint32_t urgent;
    Channel near;
    Channel far;
    RingProducer producer;
    TensorProducer tensors;
    RingConsumer consumer;
    TensorConsumer read;
    Way there{random};
    Way back{random};
    std::vector<std::string> broken;
    Relay out{there, [this](std::uint32_t, const Error& error) { broken.push_back(error.what); }};
    Relay in{back, [this](std::uint32_t, const Error& error) { broken.push_back(error.what); }};
    std::deque<PoolRef> held;
    std::uint32_t next = 1;
    std::uint32_t received = 1;
};

void run(std::uint64_t seed, std::size_t tensor_bytes, int steps) {
    CAPTURE(seed);
    World world{seed, tensor_bytes};
    for (int i = 0; i < steps; ++i) world.step();
    // Without further frames all arrive, and all slots are free again.
    for (int i = 0; i < 400 && world.received != world.next; ++i) {
        world.out.pump();
        world.in.pump();
        while (!world.there.empty()) world.there.deliver(world.in);
        while (!world.back.empty()) world.back.deliver(world.out);
        world.consume();
        world.release_all();
    }
    REQUIRE(world.received == world.next);
    world.release_all();
    for (int i = 0; i < 4; ++i) {
        world.in.pump();
        while (!world.back.empty()) world.back.deliver(world.out);
    }
    REQUIRE(world.tensors.acquire().has_value());
    REQUIRE(world.tensors.acquire().has_value());
    REQUIRE(world.broken.empty());
}

}  // namespace

TEST_CASE(
    "frames and tensors arrive in order and whole, whatever the connection does, 2,000 seeds") {
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) run(seed, 300, 300);
}

TEST_CASE("a tensor that takes several parts arrives whole, 20 seeds") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) run(seed, 3 * remote::kPartBytesMax - 5, 200);
}

TEST_CASE("a producer of urgent frames finds its reserve while the other end reads nothing") {
    World world{1, 300};
    // All normal places are taken, here, on the way and there.
    for (int i = 0; i < 2'000; ++i) {
        msg::Price price{};
        (void)world.producer.try_push(static_cast<std::uint16_t>(msg::Kind::Price),
                                      bytes_of(price));
        world.out.pump();
        world.there.deliver(world.in);
        world.in.pump();
        world.back.deliver(world.out);
    }
    CHECK_FALSE(world.producer.has_room(Urgency::Normal));
    CHECK(world.producer.has_room(Urgency::Urgent) == (world.urgent > 0));
}

TEST_CASE("what cannot come from a sender that keeps the rules is refused") {
    SeededRandom random{1};
    Way back{random};
    Relay in{back, [](std::uint32_t, const Error&) {}};
    const Channel far{4, 1, 64};
    in.add(kEdge, RelayIn::attach(kEdge, kEpoch, far.memory()).value());
    msg::Stop stop{};
    const remote::EdgeFrame good{kEdge, static_cast<std::uint16_t>(msg::Kind::Stop), true,
                                 bytes_of(stop)};
    remote::EdgeFrame bad = good;
    bad.kind = 99;
    CHECK(in.take(bad).error().code == Errc::Protocol);
    bad = good;
    bad.payload = bad.payload.first(3);
    CHECK(in.take(bad).error().code == Errc::Protocol);
    const std::byte byte{};
    const remote::TensorPart part{kEdge, 0, 1, 1, 0, {&byte, 1}};
    CHECK(in.take(part).error().code == Errc::Protocol);  // not announced
    // Of an edge that was dropped.
    in.drop(kEdge);
    CHECK(in.take(bad).ok());
    CHECK(in.take(part).ok());
}

TEST_CASE("a relay that stops at the bound of a round says that there is more") {
    struct Endless final : FramePort {
        remote::Sent send(const remote::Frame&, remote::Lane, bool) override {
            ++frames;
            return remote::Sent::Queued;
        }
        int frames = 0;
    };
    Endless port;
    Relay out{port, [](std::uint32_t, const Error&) {}};
    const Channel near{128, 1, 64};
    out.add(kEdge, RelayOut::attach(kEdge, kEpoch, near.memory()).value());
    RingProducer producer = RingProducer::attach(ShmRegion::attach(near.ring.fd(), 1).value(),
                                                 kEpoch, std::span<const KindRule>{kDataKinds})
                                .value();
    for (int i = 0; i < 100; ++i) {
        msg::Price price{};
        REQUIRE(producer.try_push(static_cast<std::uint16_t>(msg::Kind::Price), bytes_of(price)) ==
                Push::Ok);
    }
    CHECK(out.pump());
    CHECK(port.frames == 64);
    CHECK_FALSE(out.take_room());  // nothing has come: only the caller can go on
    CHECK_FALSE(out.pump());
    CHECK(port.frames == 100);
}
