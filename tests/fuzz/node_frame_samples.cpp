#include "tests/fuzz/node_frame_samples.hpp"

#include <algorithm>
#include <array>

#include "tests/fuzz/control_messages.hpp"

namespace paceline::test {
namespace {

using namespace remote;

constexpr std::array<std::byte, 300> kBorrowed{std::byte{7}, std::byte{9}};

std::string some_text(SeededRandom& random) {
    return std::string(random.below(12), static_cast<char>('a' + random.below(26)));
}

std::span<const std::byte> some_bytes(SeededRandom& random) {
    return std::span{kBorrowed}.first(random.below(kBorrowed.size() + 1));
}

StageId some_stage(SeededRandom& random) {
    return StageId{static_cast<std::uint16_t>(random.below(70'000))};
}

StageKey some_key(SeededRandom& random) {
    return {some_stage(random), Epoch{random.below(9)}};
}

template <class T, class Make>
std::vector<T> some(SeededRandom& random, std::uint32_t count_max, Make make) {
    std::vector<T> items(random.below(count_max + 1));
    for (T& item : items) item = make(random);
    return items;
}

Hello some_hello(Channel channel, SeededRandom& random) {
    Hello hello;
    hello.build = this_build().name;
    hello.node = some_text(random);
    hello.machine = some_text(random);
    hello.channel = channel;
    hello.session = random.next();
    hello.cores = random.below(200);
    hello.memory_bytes = random.next();
    hello.lease_ms = random.below(10'000);
    hello.devices = some<DeviceFound>(random, 3, [](SeededRandom& from) {
        return DeviceFound{some_text(from), some_text(from), from.next()};
    });
    hello.models = some<ModelFound>(random, 3, [](SeededRandom& from) {
        return ModelFound{some_text(from), some_text(from), from.next()};
    });
    return hello;
}

StartStage some_start(SeededRandom& random) {
    StartStage start;
    start.who = some_key(random);
    start.actors = some<StageId>(random, 4, some_stage);
    start.name = some_text(random);
    start.cores = some<std::uint32_t>(random, 4, [](SeededRandom& from) { return from.below(64); });
    start.trace_events = random.below(10'000);
    const std::span<const std::byte> spec = some_bytes(random);
    start.spec.assign(spec.begin(), spec.end());
    return start;
}

MemorySpec some_memory(SeededRandom& random) {
    MemorySpec memory;
    memory.id = random.next();
    memory.type = static_cast<MemorySpec::Type>(random.below(MemorySpec::kTypeLast + 1));
    memory.owner = some_key(random);
    memory.slots = random.below(100);
    memory.urgent_slots = random.below(20);
    memory.slot_bytes = random.next();
    memory.checksums = random.one_in(2);
    memory.elsewhere = random.one_in(2);
    memory.relay = static_cast<MemorySpec::Relay>(random.below(MemorySpec::kRelayLast + 1));
    memory.edge = random.below(100);
    memory.partner_bell = random.next();
    memory.name = some_text(random);
    return memory;
}

StageControl some_control(Channel channel, SeededRandom& random) {
    constexpr auto kBegin = static_cast<std::uint16_t>(control::Type::Begin);
    StageControl message;
    message.who = some_key(random);
    message.envelope = {some_stage(random), some_stage(random)};
    message.type = static_cast<std::uint16_t>(1 + random.below(kControlTypes));
    if (channel == Channel::Bulk) message.type = kBegin;
    message.limit_ms = random.below(10'000);
    message.files = some<std::uint64_t>(random, 5, [](SeededRandom& from) { return from.next(); });
    message.body = control::encode(control_message(message.type - 1U, random));
    return message;
}

StageCounters some_counters(SeededRandom& random) {
    StageCounters counters;
    counters.who = some_key(random);
    const std::span<const std::byte> block = some_bytes(random);
    counters.block.assign(block.begin(), block.end());
    const std::span<const std::byte> events = some_bytes(random);
    counters.events.assign(events.begin(), events.end());
    return counters;
}

TensorPart some_part(SeededRandom& random) {
    TensorPart part;
    part.bytes = some_bytes(random);
    part.offset = random.below(1000);
    part.total = part.offset + part.bytes.size() + random.below(1000);
    return part;
}

}  // namespace

Frame node_frame(std::uint32_t which, Channel channel, SeededRandom& random) {
    const Epoch epoch{random.below(9)};
    switch (static_cast<Kind>(which + 1)) {
        case Kind::Hello:
            return some_hello(channel, random);
        case Kind::Refused:
            return Refused{some_text(random), random.below(2) == 1};
        case Kind::LeaseAsk:
            return LeaseAsk{random.next(), random.next()};
        case Kind::LeaseGrant:
            return LeaseGrant{random.next(), random.next(), random.next(), epoch,
                              random.below(9000)};
        case Kind::StartStage:
            return some_start(random);
        case Kind::StageReport:
            return StageReport{
                some_key(random),
                static_cast<StageReport::What>(random.below(StageReport::kWhatLast + 1)),
                static_cast<std::int64_t>(random.next()), some_text(random)};
        case Kind::MakeMemory:
            return MakeMemory{some<MemorySpec>(random, 4, some_memory)};
        case Kind::DropMemory:
            return DropMemory{
                some<std::uint64_t>(random, 9, [](SeededRandom& from) { return from.next(); })};
        case Kind::StageControl:
            return some_control(channel, random);
        case Kind::EdgeFrame:
            return EdgeFrame{random.below(9), static_cast<std::uint16_t>(random.below(12)),
                             random.one_in(2), some_bytes(random)};
        case Kind::TensorPart:
            return some_part(random);
        case Kind::EdgeRoom:
            return EdgeRoom{random.below(9), random.next()};
        case Kind::TensorFree:
            return TensorFree{random.below(9), random.below(9), random.below(99)};
        case Kind::BoardLine:
            return BoardLine{RequestId{random.next()}, Attempt{random.below(9)}, random.one_in(2),
                             static_cast<Position>(random.below(9000)),
                             static_cast<TokenId>(random.below(9000))};
        case Kind::Counters:
            return Counters{random.next(), static_cast<std::int64_t>(random.next()), random.next(),
                            some<StageCounters>(random, 3, some_counters)};
        case Kind::Kill:
            return Kill{some_key(random)};
        case Kind::Shutdown:
            return Shutdown{some_text(random)};
        case Kind::BulkMark:
            return BulkMark{some_key(random), random.next()};
        case Kind::CountersAsk:
            break;
    }
    return CountersAsk{random.next()};
}

}  // namespace paceline::test
