// Actors that pass numbers on in tensors, wherever these lie: the device is FakeDevice, so the
// addresses may be followed. Behind each tensor's note comes a plain frame, which must not overtake
// it.
#pragma once

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "tests/unit/runtime/toy_actors.hpp"

namespace paceline::test {

/// For each number of a Proposal: a tensor with it, its note, and a Proposal with the number.
struct TensorSender : Actor {
    explicit TensorSender(StageId peer) : to{peer} {}
    void on_start(StageContext& given) override { context = &given; }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        numbers.push_back(as<msg::Proposal>(bytes).root_position);
        send_on();
    }
    void on_room(StageId) override {
        ++rooms;
        send_on();
    }
    void on_peer(StageId, PeerChange change) override {
        if (change == PeerChange::Lost) {  // who asked asks again
            notes.clear();
            numbers.clear();
        }
        (change == PeerChange::Lost ? lost : joined) += 1;
        send_on();
    }

    void send_on() {
        for (;;) {
            while (!notes.empty()) {
                if (send(*context, to, notes.front().first) == Push::Full) return;
                if (!std::exchange(notes.front().second, true)) {
                    msg::Proposal behind{};
                    behind.root_position = notes.front().first.first_position;
                    if (send(*context, to, behind) == Push::Full) lost_frames += 1;
                }
                notes.pop_front();
            }
            TensorProducer* pool = context->tensors_to(to);
            if (numbers.empty() || pool == nullptr) return;
            const std::optional<PoolRef> slot = pool->acquire();
            if (!slot) return;  // on_room follows
            const std::int32_t number = numbers.front();
            numbers.pop_front();
            const TensorMemory memory = pool->place(*slot);
            places.push_back(memory.place);
            std::memcpy(memory.data, &number, sizeof number);
            pool->publish(*slot, sizeof number);
            if (number == unsaid) continue;
            notes.push_back({{.route = {RequestId{1}, Attempt{1}, context->epoch()},
                              .role = msg::TensorRole::Hidden,
                              .type = msg::TensorType::F32,
                              .layer = 0,
                              .first_position = number,
                              .rows = 1,
                              .row_elements = 1,
                              .tensor = slot->index,
                              .tensor_generation = slot->generation},
                             false});
        }
    }

    StageId to;
    StageContext* context = nullptr;
    std::deque<std::int32_t> numbers;
    std::deque<std::pair<msg::TensorNote, bool>> notes;  // and whether its Proposal was sent
    std::vector<MemoryPlace> places;
    std::int32_t unsaid = -1;  // the tensor with this number is published and never announced
    int rooms = 0;
    int lost = 0;
    int joined = 0;
    int lost_frames = 0;
};

/// Checks each tensor and the order, and passes the number plus 1000 on.
struct TensorReader : Actor {
    explicit TensorReader(StageId peer) : to{peer} {}
    void on_start(StageContext& given) override { context = &given; }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (kind != static_cast<std::uint16_t>(msg::Kind::TensorNote)) {
            const Position number = as<msg::Proposal>(bytes).root_position;
            if (number < 0) return;  // of another edge than the tensors'
            if (read.empty() || read.back() != number)
                context->fail({Errc::Protocol, "a frame has overtaken a tensor"});
            return;
        }
        const auto note = as<msg::TensorNote>(bytes);
        TensorConsumer& pool = *context->tensors_from(from);
        const PoolRef slot{note.tensor, note.tensor_generation};
        const Result<TensorMemory> memory = pool.view_memory(slot, sizeof(std::int32_t));
        if (!memory.ok()) return context->fail(memory.error());
        std::int32_t number = 0;
        std::memcpy(&number, memory.value().data, sizeof number);
        if (number != note.first_position)
            return context->fail({Errc::Protocol, "a tensor holds another number"});
        read.push_back(number);
        places.push_back(memory.value().place);
        pool.release(slot);
        msg::Proposal answer{};
        answer.root_position = number + 1000;
        answers.push_back(answer);
        forward();
    }
    void on_room(StageId) override { forward(); }
    void forward() {
        while (!answers.empty() && send(*context, to, answers.front()) == Push::Ok) {
            answers.pop_front();
        }
    }

    StageId to;
    StageContext* context = nullptr;
    std::vector<std::int32_t> read;
    std::vector<MemoryPlace> places;
    std::deque<msg::Proposal> answers;
};

}  // namespace paceline::test
