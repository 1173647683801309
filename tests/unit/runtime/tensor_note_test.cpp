// Tensors beside those of batches: KV rows and a tap are sent between two loops, announced by
// notes.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/loop/stage_loop.hpp"
#include "tests/unit/runtime/plan_fixture.hpp"
#include "tests/unit/runtime/toy_actors.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr StageId kA{1};
constexpr StageId kB{2};
constexpr Epoch kEpochA{3};
constexpr std::uint32_t kPoolSlots = 2;  // fewer than there are tensors: the slots must come back

struct Sample {
    msg::TensorRole role;
    msg::TensorType type;
    std::uint32_t layer;
    std::uint32_t rows;
};
constexpr std::array<Sample, 6> kSamples = {{
    {msg::TensorRole::Keys, msg::TensorType::F16, 0, 4},
    {msg::TensorRole::Values, msg::TensorType::F16, 0, 4},
    {msg::TensorRole::Keys, msg::TensorType::I8, 1, 4},
    {msg::TensorRole::Values, msg::TensorType::I8, 1, 4},
    {msg::TensorRole::Tap, msg::TensorType::F32, 1, 2},
    {msg::TensorRole::Features, msg::TensorType::F32, 1, 2},
}};

std::byte byte_of(std::size_t tensor, std::size_t at) {
    return static_cast<std::byte>(tensor * 31 + at * 7 + 1);
}

/// Ends the loop when the test says so.
struct QuietPort : ControlPort {
    [[nodiscard]] Status send(Envelope, const control::Message&) override { return {}; }
    [[nodiscard]] Status poll(const Deliver& deliver) override {
        if (shutdown.load()) deliver(PortMail{{}, control::Shutdown{}});
        return {};
    }
    [[nodiscard]] Status report_fault(StageId, Epoch, const Error&) override { return {}; }
    [[nodiscard]] Status wired(StageId, Epoch) override { return {}; }
    std::atomic<bool> shutdown{false};  // set by the test's thread, read by the loop's
};

/// Fills slots and announces them, as fast as they come back.
struct Sender : Actor {
    void on_start(StageContext& given) override {
        context = &given;
        send_on();
    }
    void handle(StageId, std::uint16_t, std::span<const std::byte>) override {}
    void on_room(StageId) override { send_on(); }

    void send_on() {
        TensorProducer& pool = *context->tensors_to(kB);
        for (; sent < kSamples.size(); ++sent) {
            const std::optional<PoolRef> slot = pool.acquire();
            if (!slot) return;  // on_room follows
            const Sample& sample = kSamples[sent];
            const msg::TensorNote note{.route = {RequestId{7}, Attempt{2}, context->epoch()},
                                       .role = sample.role,
                                       .type = sample.type,
                                       .layer = sample.layer,
                                       .first_position = 32,
                                       .rows = sample.rows,
                                       .row_elements = 8,
                                       .tensor = slot->index,
                                       .tensor_generation = slot->generation};
            const std::size_t size = msg::tensor_bytes(note).value();
            const std::span<std::byte> bytes = pool.bytes(*slot).first(size);
            for (std::size_t i = 0; i < size; ++i) bytes[i] = byte_of(sent, i);
            pool.publish(*slot, size);
            CHECK(send(*context, kB, note) == Push::Ok);
        }
    }

    StageContext* context = nullptr;
    std::size_t sent = 0;
};

/// Reads each tensor where it lies, and gives it back.
struct Receiver : Actor {
    void on_start(StageContext& given) override { context = &given; }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        CHECK(kind == static_cast<std::uint16_t>(msg::Kind::TensorNote));
        notes.push_back(as<msg::TensorNote>(bytes));
        const msg::TensorNote& note = notes.back();
        TensorConsumer& pool = *context->tensors_from(from);
        const std::size_t size = msg::tensor_bytes(note).value();
        const PoolRef slot{note.tensor, note.tensor_generation};
        for (const std::uint32_t wrong : {slot.generation - 2, slot.generation + 2}) {
            const auto refused = pool.view({slot.index, wrong}, size);
            CHECK((!refused.ok() && refused.error().code == Errc::Protocol));
        }
        CHECK_FALSE(pool.view(slot, size + 1).ok());  // more than was published
        const auto viewed = pool.view(slot, size);
        if (!viewed.ok()) return context->fail(viewed.error());
        CHECK(pool.view(slot, size).value().data() == viewed.value().data());  // no copy
        bool same = true;
        for (std::size_t i = 0; i < size; ++i) {
            same = same && viewed.value()[i] == byte_of(notes.size() - 1, i);
        }
        CHECK(same);
        pool.release(slot);
        CHECK_FALSE(pool.view(slot, size).ok());
        if (notes.size() == kSamples.size()) context->stop();
    }

    StageContext* context = nullptr;
    std::vector<msg::TensorNote> notes;
};

}  // namespace

TEST_CASE("KV rows of two layers and a tap travel through the pool, are read in place, come back") {
    const WiringPlan plan = wired_plan({{{kConductor, {kConductor}, 0}, Epoch{1}},
                                        {{kA, {kA}, 0}, kEpochA},
                                        {{kB, {kB}, 0}, Epoch{1}}},
                                       {{kA, kB, 8, 2, kPoolSlots, 64}});
    QuietPort port_a;
    QuietPort port_b;
    Sender sender;
    Receiver receiver;
    StageLoop loop_a{wiring_of(plan, kA, kEpochA), port_a, {}};
    StageLoop loop_b{wiring_of(plan, kB, Epoch{1}), port_b, {}};
    loop_a.add(kA, sender);
    loop_b.add(kB, receiver);
    std::thread thread_a{[&] { CHECK(loop_a.run().ok()); }};
    CHECK(loop_b.run().ok());
    port_a.shutdown = true;
    thread_a.join();
    REQUIRE(receiver.notes.size() == kSamples.size());
    for (std::size_t i = 0; i < kSamples.size(); ++i) {
        const msg::TensorNote& note = receiver.notes[i];
        CHECK(note.route.epoch == kEpochA);
        CHECK(note.role == kSamples[i].role);
        CHECK(note.type == kSamples[i].type);
        CHECK(note.layer == kSamples[i].layer);
        CHECK(note.rows == kSamples[i].rows);
        CHECK(note.first_position == 32);
    }
    TensorProducer& pool = *sender.context->tensors_to(kB);
    for (std::uint32_t i = 0; i < kPoolSlots; ++i) CHECK(pool.acquire());  // none leaked
}
