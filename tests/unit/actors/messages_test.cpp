#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/dispatcher.hpp"
#include "actors/inbox_gate.hpp"
#include "actors/message_checks.hpp"
#include "ipc/base/limits.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr MessageLimits kLimits{.vocab_size = 100, .kv_slots = 64, .context = 64};

template <class M>
void refused(const M& message, const std::string& says) {
    const Status status = check_message(message, kLimits);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Errc::Protocol);
    CHECK(status.error().what.find(says) != std::string::npos);
}

msg::Wave good_wave() {
    msg::Wave wave{};
    wave.kind = msg::WaveKind::Verify;
    wave.row_count = 2;
    wave.rows[0] = {NodeId{1}, msg::kNoParent, 5, 10, 10};
    wave.rows[1] = {NodeId{2}, 1, 6, 11, 11};
    return wave;
}

msg::Route route(std::uint64_t request, std::uint32_t attempt, std::uint32_t epoch) {
    return {.request = RequestId{request}, .attempt = Attempt{attempt}, .epoch = Epoch{epoch}};
}

}  // namespace

TEST_CASE("a wave with a count, token, position or slot out of range is refused by field") {
    CHECK(check_message(good_wave(), kLimits));
    msg::Wave wave = good_wave();
    wave.row_count = kWaveRowsMax + 1;
    refused(wave, "row_count = 65");
    wave = good_wave();
    wave.row_count = 0;
    refused(wave, "row_count = 0");
    wave = good_wave();
    wave.rows[1].token = 100;
    refused(wave, "row 1 has token = 100");
    wave = good_wave();
    wave.rows[0].position = -1;
    refused(wave, "row 0 has position = -1");
    wave = good_wave();
    wave.rows[0].slot = 64;
    refused(wave, "row 0 has slot = 64");
    wave = good_wave();
    wave.kind = static_cast<msg::WaveKind>(9);
    refused(wave, "kind = 9");
    wave = good_wave();
    wave.base = 64;
    refused(wave, "base = 64");
}

TEST_CASE("a proposal or verdict with a count or token out of range is refused by field") {
    msg::Proposal proposal{};
    proposal.count = kGammaMax + 1;
    refused(proposal, "count = 33");
    proposal.count = 1;
    proposal.tokens[0] = -5;
    refused(proposal, "tokens[0] = -5");
    proposal.tokens[0] = 5;
    proposal.root_token = 100;
    refused(proposal, "root_token = 100");
    msg::Verdict verdict{};
    refused(verdict, "count = 0");
    verdict.count = kGammaMax + 2;
    refused(verdict, "count = 34");
    verdict.count = 1;
    verdict.finish = static_cast<msg::Finish>(7);
    refused(verdict, "finish = 7");
    verdict.finish = msg::Finish::No;
    verdict.wave_rows = kWaveRowsMax + 1;
    refused(verdict, "wave_rows = 65");
}

TEST_CASE("a tensor note with a field out of range is refused by field, one that fits is not") {
    const TensorLimits limits{.layers = 4, .context = 64, .slot_bytes = 1024};
    const msg::TensorNote good{.route = route(1, 1, 1),
                               .role = msg::TensorRole::Tap,
                               .type = msg::TensorType::F16,
                               .layer = 3,
                               .first_position = 56,
                               .rows = 8,
                               .row_elements = 64,
                               .tensor = 0,
                               .tensor_generation = 1};
    CHECK(check_message(good, limits));  // to the last layer, position and byte
    const auto refused_with = [&](auto change, const std::string& says) {
        msg::TensorNote note = good;
        change(note);
        const Status status = check_message(note, limits);
        REQUIRE_FALSE(status);
        CHECK(status.error().code == Errc::Protocol);
        CHECK_MESSAGE(status.error().what.find(says) != std::string::npos, status.error().what);
    };
    using Note = msg::TensorNote;
    refused_with([](Note& note) { note.role = static_cast<msg::TensorRole>(4); }, "role = 4");
    refused_with([](Note& note) { note.type = static_cast<msg::TensorType>(4); }, "type = 4");
    refused_with([](Note& note) { note.layer = 4; }, "layer = 4");
    refused_with([](Note& note) { note.first_position = -1; }, "first_position = -1");
    refused_with([](Note& note) { note.first_position = 64; }, "first_position = 64");
    refused_with([](Note& note) { note.rows = 0; }, "rows = 0");
    refused_with([](Note& note) { note.rows = 9; }, "rows = 9");
    refused_with([](Note& note) { note.row_elements = 0; }, "row_elements = 0");
    refused_with([](Note& note) { note.row_elements = 65; }, "more than the 1024 bytes");
    refused_with([](Note& note) { note.type = msg::TensorType::F32; }, "more than the 1024 bytes");
}

TEST_CASE("the bytes of a tensor are counted without wrapping") {
    msg::TensorNote note{};
    note.rows = 3;
    note.row_elements = 5;
    note.type = msg::TensorType::F32;
    CHECK(msg::tensor_bytes(note) == 60U);
    note.type = msg::TensorType::I8;
    CHECK(msg::tensor_bytes(note) == 15U);
    note.type = static_cast<msg::TensorType>(77);
    CHECK_FALSE(msg::tensor_bytes(note));
    note.rows = 1U << 31;
    note.row_elements = 1U << 31;
    note.type = msg::TensorType::F16;  // 2^63
    CHECK(msg::tensor_bytes(note) == std::uint64_t{1} << 63U);
    note.type = msg::TensorType::F32;  // 2^64
    CHECK_FALSE(msg::tensor_bytes(note));
}

TEST_CASE("a message of the wrong size is refused") {
    const std::vector<std::byte> bytes(sizeof(msg::Proposal) - 1);
    const auto decoded = decode_message<msg::Proposal>(bytes);
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error().code == Errc::Protocol);
}

TEST_CASE("the gate tells stale from current from early, and gives early ones back in order") {
    InboxGate gate;
    const StageId peer{5};
    const std::vector<std::byte> first{std::byte{1}};
    const std::vector<std::byte> second{std::byte{2}};
    gate.begun(RequestId{3}, Attempt{2});
    CHECK(gate.admit(peer, 1, route(3, 2, 1), first).value() == Age::Current);
    CHECK(gate.admit(peer, 1, route(3, 1, 1), first).value() == Age::Stale);
    // An older id may still begin here: a further turn, at a stage that was started again.
    CHECK(gate.admit(peer, 1, route(2, 1, 1), first).value() == Age::Early);
    CHECK(gate.admit(peer, 1, route(3, 3, 1), first).value() == Age::Early);
    CHECK(gate.admit(peer, 1, route(3, 3, 1), second).value() == Age::Early);
    CHECK(gate.admit(peer, 1, route(4, 1, 1), first).value() == Age::Early);
    CHECK(gate.take_due().empty());
    gate.begun(RequestId{3}, Attempt{3});
    const auto due = gate.take_due();
    REQUIRE(due.size() == 2);
    CHECK(due[0].bytes == first);
    CHECK(due[1].bytes == second);
    CHECK(gate.admit(peer, 1, route(3, 3, 1), first).value() == Age::Current);
}

TEST_CASE("a message of a stage's former incarnation is stale") {
    InboxGate gate;
    gate.begun(RequestId{1}, Attempt{1});
    CHECK(gate.admit(StageId{5}, 1, route(1, 1, 7), {}).value() == Age::Current);
    CHECK(gate.admit(StageId{5}, 1, route(1, 1, 6), {}).value() == Age::Stale);
    CHECK(gate.admit(StageId{6}, 1, route(1, 1, 6), {}).value() == Age::Current);
}

TEST_CASE("what a lost peer sent early is forgotten, what others sent is not") {
    InboxGate gate;
    const std::vector<std::byte> kept{std::byte{7}};
    CHECK(gate.admit(StageId{5}, 1, route(1, 1, 1), {}).value() == Age::Early);
    CHECK(gate.admit(StageId{6}, 1, route(1, 1, 1), kept).value() == Age::Early);
    gate.forget(StageId{5});
    gate.begun(RequestId{1}, Attempt{1});
    const auto due = gate.take_due();
    REQUIRE(due.size() == 1);
    CHECK(due[0].bytes == kept);
}

TEST_CASE("a peer that floods the gate with early messages is refused") {
    InboxGate gate;
    for (std::size_t i = 0; i < InboxGate::kHeldMax; ++i) {
        REQUIRE(gate.admit(StageId{5}, 1, route(9, 1, 1), {}));
    }
    const auto flooded = gate.admit(StageId{5}, 1, route(9, 1, 1), {});
    REQUIRE_FALSE(flooded);
    CHECK(flooded.error().code == Errc::Protocol);
}

TEST_CASE("a draft's gate lets the oldest early messages go instead") {
    InboxGate gate{InboxGate::Overflow::DropOldest};
    for (std::uint32_t i = 0; i <= InboxGate::kHeldMax; ++i) {
        const msg::Route route{RequestId{1}, Attempt{1}, Epoch{1}};
        const auto bytes = std::as_bytes(std::span{&i, 1});
        CHECK(gate.admit(StageId{1}, 3, route, bytes).value() == Age::Early);
    }
    gate.begun(RequestId{1}, Attempt{1});
    const std::vector<InboxGate::Held> due = gate.take_due();
    REQUIRE(due.size() == InboxGate::kHeldMax);
    CHECK(due.front().bytes.front() == std::byte{1});  // number 0 is gone
}

TEST_CASE("dispatch options out of range are refused by name") {
    CHECK(validate(DispatchOptions{}));
    CHECK_FALSE(validate(DispatchOptions{.rows_max = 0}));
    CHECK_FALSE(validate(DispatchOptions{.rows_max = kGammaMax + 2}));
    CHECK_FALSE(validate(DispatchOptions{.prefill_rows = kWaveRowsMax + 1}));
    const Status waves = validate(DispatchOptions{.waves_in_flight_max = 0});
    REQUIRE_FALSE(waves);
    CHECK(waves.error().what.find("waves_in_flight_max = 0") != std::string::npos);
}
