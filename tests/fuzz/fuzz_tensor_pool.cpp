// Fuzzes a tensor pool: as fuzz_ring.cpp, and with references that no message ever carried.
// Whatever the pool holds, a view lies inside of its slot, and the producer is given only slots
// that are its own.
#include <array>
#include <optional>

#include "ipc/transport/tensor_pool.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::size_t kSlotBytes = 200;

enum Step : std::uint8_t {
    kPublish,
    kAbandon,
    kViewKnown,
    kViewAny,
    kReleaseKnown,
    kReleaseAny,
    kScribble,
    kAttachAgain,
    kWantRoom,
    kSteps
};

class PoolFuzz {
public:
    explicit PoolFuzz(FuzzReader& script) : script_{script} {
        const std::uint8_t shape = script.byte();
        slots_ = 1 + shape % 4U;
        const PoolData data = (shape & 16U) != 0 ? PoolData::Elsewhere : PoolData::Here;
        static GuardedMemory arena{16 * 1024};
        memory_ = arena.last(pool_bytes(slots_, kSlotBytes, data).value());
        format_pool(memory_, slots_, kSlotBytes, data);
        static GuardedMemory device{16 * 1024};
        slots_memory_ = device.last(slots_ * pool_stride(kSlotBytes));
        if ((shape & 8U) != 0) scribble(script, memory_);
        attach();
    }

    void run() {
        for (int i = 0; i < 64 && !script_.empty(); ++i) step(script_.byte());
    }

private:
    void attach() {
        producer_.reset();
        consumer_.reset();
        Result<TensorProducer> out = TensorProducer::attach_memory(memory_);
        if (out.ok()) producer_ = std::move(out).value();
        // A scribbled header may claim more slots than there is memory for on the device.
        const auto fits = [this](const auto& end) {
            return end.is_elsewhere() && end.slot_count() <= slots_ &&
                   end.slot_bytes() <= kSlotBytes;
        };
        if (producer_ && fits(*producer_)) producer_->use_memory(slots_memory_.data());
        Result<TensorConsumer> in = TensorConsumer::attach_memory(memory_);
        if (in.ok()) consumer_ = std::move(in).value();
        if (consumer_ && fits(*consumer_)) consumer_->use_memory(slots_memory_.data());
    }

    void step(std::uint8_t what) {
        switch (what % kSteps) {
            case kPublish:
                return publish();
            case kAbandon:
                return abandon();
            case kViewKnown:
                return view(known_);
            case kViewAny:
                return view(script_.take<PoolRef>());
            case kReleaseKnown:
                return release(known_);
            case kReleaseAny:
                return release(script_.take<PoolRef>());
            case kScribble:
                return scribble(script_, memory_);
            case kAttachAgain:
                return attach();
            default:
                return want_room();
        }
    }

    /// Everything that the producer may write lies in the pool: filling it would hit the guard.
    void publish() {
        if (!producer_) return;
        const std::optional<PoolRef> slot = producer_->acquire();
        if (!slot) return;
        PACE_CHECK(producer_->fault().ok(), "a slot from a broken pool");
        const TensorMemory memory = producer_->place(*slot);
        std::memset(memory.data, 0x5a, memory.bytes);
        producer_->publish(*slot, script_.byte() % (memory.bytes + 1));
        known_ = *slot;
    }

    void abandon() {
        if (!producer_) return;
        const std::optional<PoolRef> slot = producer_->acquire();
        if (slot) producer_->abandon(*slot);
    }

    void view(PoolRef slot) {
        if (!consumer_) return;
        const std::size_t wanted = script_.byte();
        const Status named = consumer_->announce(slot);
        PACE_CHECK(named.ok() || named.error().code == Errc::Protocol, "another error");
        const Result<TensorMemory> seen = consumer_->view_memory(slot, wanted);
        if (!seen.ok()) {
            PACE_CHECK(seen.error().code == Errc::Protocol, "another error than it promises");
            return;
        }
        const TensorMemory bytes = seen.value();
        const bool here = bytes.place == MemoryPlace::Host;
        const std::span<std::byte> slots = here ? memory_ : slots_memory_;
        PACE_CHECK(bytes.bytes == wanted, "a view of another size");
        PACE_CHECK(bytes.data >= slots.data(), "a view before the pool");
        PACE_CHECK(bytes.data + bytes.bytes <= slots.data() + slots.size(),
                   "a view after the pool");
    }

    void release(PoolRef slot) {
        if (consumer_) consumer_->release(slot);
    }

    void want_room() {
        if (producer_) {
            producer_->want_room();
            (void)producer_->has_room();
            (void)producer_->take_starved();
        }
        if (consumer_) (void)consumer_->take_room_wanted();
    }

    FuzzReader& script_;
    std::uint32_t slots_ = 1;
    std::span<std::byte> memory_;
    std::span<std::byte> slots_memory_;  // of a pool whose slots are elsewhere
    std::optional<TensorProducer> producer_;
    std::optional<TensorConsumer> consumer_;
    PoolRef known_;
};

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    FuzzBytes script(1, static_cast<std::uint8_t>(random.below(32)));
    if ((script[0] & 8U) != 0) {  // a scribble that hits nothing
        for (const int byte : {100, 0, 0, 0}) script.push_back(static_cast<std::uint8_t>(byte));
    }
    for (std::uint32_t steps = 4 + random.below(24); steps > 0; --steps) {
        const auto step = static_cast<std::uint8_t>(random.below(kSteps));
        script.push_back(step);
        if (step == kViewAny || step == kReleaseAny) {
            const PoolRef slot{random.below(5), random.below(6)};
            const auto* bytes = reinterpret_cast<const std::uint8_t*>(&slot);
            script.insert(script.end(), bytes, bytes + sizeof slot);
        }
        if (step == kScribble) {
            for (int i = 0; i < 6; ++i) script.push_back(static_cast<std::uint8_t>(random.next()));
        }
        script.push_back(static_cast<std::uint8_t>(random.next()));
    }
    return script;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzReader script{std::span{data, size}};
    PoolFuzz{script}.run();
    return 0;
}
