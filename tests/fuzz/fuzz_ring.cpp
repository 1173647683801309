// Fuzzes a ring: both ends attach to it and use it, while a rogue peer scribbles over its memory
// before and in between. Whatever it holds, a pop is a frame that its rule allows, nothing, or
// Corrupt for good; no end reads or writes outside of the ring.
#include <array>
#include <optional>

#include "ipc/transport/spsc_ring.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::uint16_t kData = 1;
constexpr std::uint16_t kUrgent = 2;
constexpr std::uint16_t kCounted = 3;

/// The first byte counts the others.
bool counts_its_bytes(std::span<const std::byte> payload) {
    return !payload.empty() && std::to_integer<std::size_t>(payload.front()) == payload.size() - 1;
}

constexpr std::array kRules = {KindRule{kData, 1, 64, Urgency::Normal},
                               KindRule{kUrgent, 8, 8, Urgency::Urgent},
                               KindRule{kCounted, 1, 200, Urgency::Normal, counts_its_bytes}};
// Of a peer that believes in other rules: its frames are well-formed, and some are forbidden.
constexpr std::array kLaxRules = {
    KindRule{kData, 0, 64, Urgency::Urgent}, KindRule{kUrgent, 0, 64, Urgency::Urgent},
    KindRule{kCounted, 0, 64, Urgency::Urgent}, KindRule{9, 0, 64, Urgency::Urgent}};

constexpr std::size_t kPayloadMax = kLineBytes - sizeof(FrameHeader);

enum Step : std::uint8_t {
    kPush,
    kPushUrgent,
    kPop,
    kScribble,
    kMoveCounts,
    kLaxPush,
    kAttachAgain,
    kWantRoom,
    kSteps
};

class RingFuzz {
public:
    explicit RingFuzz(FuzzReader& script) : script_{script} {
        const std::uint8_t shape = script.byte();
        options_.slots = 2U << (shape & 1U);
        options_.urgent_slots = (shape >> 1U) & 1U;
        options_.checksums = (shape & 4U) != 0;
        options_.payload_bytes = 64;
        options_.epoch = Epoch{7};
        static GuardedMemory arena{16 * 1024};
        memory_ = arena.last(ring_bytes(options_).value());
        format_ring(memory_, options_);
        if ((shape & 8U) != 0) scribble(script, memory_);
        attach();
    }

    void run() {
        for (int i = 0; i < 64 && !script_.empty(); ++i) step(script_.byte());
        for (int i = 0; i < 6; ++i) pop();
    }

private:
    void attach() {
        producer_.reset();
        consumer_.reset();
        is_corrupt_ = false;
        Result<RingProducer> out = RingProducer::attach_memory(memory_, Epoch{7}, kRules);
        if (out.ok()) producer_ = std::move(out).value();
        Result<RingConsumer> in = RingConsumer::attach_memory(memory_, Epoch{7}, kRules);
        if (in.ok()) consumer_ = std::move(in).value();
    }

    void step(std::uint8_t what) {
        switch (what % kSteps) {
            case kPush:
                return push(kData, 1 + script_.byte() % 64U);
            case kPushUrgent:
                return push(kUrgent, 8);
            case kPop:
                return pop();
            case kScribble:
                return scribble(script_, memory_);
            case kMoveCounts:
                return move_counts();
            case kLaxPush:
                return lax_push();
            case kAttachAgain:
                return attach();
            default:
                return want_room();
        }
    }

    void push(std::uint16_t kind, std::size_t bytes) {
        if (!producer_) return;
        std::array<std::byte, 64> payload{};
        payload.fill(std::byte{script_.byte()});
        const Push answer = producer_->try_push(kind, std::span{payload}.first(bytes));
        if (!producer_->fault().ok()) PACE_CHECK(answer == Push::Full, "pushed into a broken ring");
    }

    void pop() {
        if (!consumer_) return;
        // A peer may claim more or less, as long as it has the same stride and room for any kind.
        PACE_CHECK(consumer_->payload_bytes() >= 8 && consumer_->payload_bytes() <= kPayloadMax,
                   "attached to a ring of another size");
        std::array<std::byte, kPayloadMax> buffer{};
        const bool had_frame = consumer_->has_frame();
        const Popped popped = consumer_->try_pop(buffer);
        if (is_corrupt_) PACE_CHECK(popped.outcome == Pop::Corrupt, "corrupt, and good again");
        if (popped.outcome == Pop::Frame) {
            const KindRule* rule = find_rule(kRules, popped.kind);
            PACE_CHECK(had_frame, "a frame out of nothing");
            PACE_CHECK(rule != nullptr, "a frame of a kind without a rule");
            PACE_CHECK(popped.payload.data() == buffer.data(), "a payload somewhere else");
            PACE_CHECK(allows(*rule, popped.payload), "a frame of a length without a rule");
            PACE_CHECK(popped.payload.size() <= consumer_->payload_bytes(),
                       "a frame longer than its ring's");
        }
        is_corrupt_ = popped.outcome == Pop::Corrupt;
        PACE_CHECK(consumer_->fault().ok() != is_corrupt_, "a fault without a reason");
    }

    void move_counts() {
        auto* header = reinterpret_cast<RingHeader*>(memory_.data());
        const auto by = static_cast<std::int8_t>(script_.byte());
        std::atomic<std::uint64_t>& count =
            (script_.byte() & 1U) != 0 ? header->tail : header->head;
        count.fetch_add(static_cast<std::uint64_t>(std::int64_t{by}));
    }

    void lax_push() {
        Result<RingProducer> rogue = RingProducer::attach_memory(memory_, Epoch{7}, kLaxRules);
        if (!rogue.ok()) return;
        std::array<std::byte, 64> payload{};
        const std::uint16_t kind = kLaxRules[script_.byte() % kLaxRules.size()].kind;
        const std::size_t bytes = script_.byte() % 65U;
        payload[0] = std::byte{static_cast<std::uint8_t>(bytes - 1)};  // often what kCounted wants
        (void)rogue.value().try_push(kind, std::span{payload}.first(bytes));
    }

    void want_room() {
        if (producer_) {
            producer_->want_room();
            (void)producer_->has_room(Urgency::Normal);
        }
        if (consumer_) (void)consumer_->take_room_wanted();
    }

    FuzzReader& script_;
    RingOptions options_;
    std::span<std::byte> memory_;
    std::optional<RingProducer> producer_;
    std::optional<RingConsumer> consumer_;
    bool is_corrupt_ = false;
};

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    FuzzBytes script(1, static_cast<std::uint8_t>(random.below(16)));
    if ((script[0] & 8U) != 0) {  // a scribble that hits nothing
        for (const int byte : {100, 0, 0, 0}) script.push_back(static_cast<std::uint8_t>(byte));
    }
    for (std::uint32_t steps = 4 + random.below(24); steps > 0; --steps) {
        const auto step = static_cast<std::uint8_t>(random.below(kSteps));
        script.push_back(step);
        if (step == kScribble || step == kMoveCounts || step == kLaxPush) {
            for (int i = 0; i < 6; ++i) script.push_back(static_cast<std::uint8_t>(random.next()));
        }
        if (step == kPush) script.push_back(static_cast<std::uint8_t>(random.next()));
    }
    return script;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzReader script{std::span{data, size}};
    RingFuzz{script}.run();
    return 0;
}
