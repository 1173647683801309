#include "ipc/wire/messages.hpp"

#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/wire/hot_kinds.hpp"

using namespace paceline;

namespace {

template <class M>
std::vector<std::byte> bytes_of(const M& message) {
    std::vector<std::byte> bytes(sizeof message);
    std::memcpy(bytes.data(), &message, sizeof message);
    return bytes;
}

template <class M>
std::vector<std::byte> routed() {
    M message{};
    message.route = {RequestId{0x1'0000'0007ULL}, Attempt{3}, Epoch{9}};
    return bytes_of(message);
}

std::vector<std::byte> a_wave(std::uint32_t rows) {
    msg::Wave wave{};
    wave.epoch = Epoch{9};
    wave.part_count = 2;
    wave.row_count = rows;
    wave.parts[0].request = RequestId{0x1'0000'0007ULL};
    wave.parts[0].attempt = Attempt{3};
    wave.parts[1].request = RequestId{8};
    wave.parts[1].attempt = Attempt{4};
    return bytes_of(wave);
}

std::uint16_t number(msg::Kind kind) {
    return static_cast<std::uint16_t>(kind);
}

}  // namespace

TEST_CASE("whose a frame is can be told for every kind; a wave is its first part's") {
    const std::vector<std::pair<msg::Kind, std::vector<std::byte>>> frames{
        {msg::Kind::Proposal, routed<msg::Proposal>()},
        {msg::Kind::Wave, a_wave(5)},
        {msg::Kind::Verdict, routed<msg::Verdict>()},
        {msg::Kind::Stop, routed<msg::Stop>()},
        {msg::Kind::TensorNote, routed<msg::TensorNote>()}};
    CHECK(frames.size() == kHotKinds.size());
    for (const auto& [kind, bytes] : frames) {
        const auto route = msg::route_of(number(kind), bytes);
        REQUIRE(route);
        CHECK(route->request == RequestId{0x1'0000'0007ULL});
        CHECK(route->attempt == Attempt{3});
        CHECK(route->epoch == Epoch{9});
    }
}

TEST_CASE(
    "a frame of no kind or of too few bytes has no reader, and reading it reads nothing else") {
    CHECK_FALSE(msg::route_of(0, a_wave(5)));
    CHECK_FALSE(msg::route_of(6, a_wave(5)));
    for (const KindRule& rule : kHotKinds) {
        for (std::size_t size = 0; size < 64; ++size) {
            // Its own allocation, so that a sanitizer sees a read beyond it.
            const std::vector<std::byte> bytes(size, std::byte{0xff});
            const auto route = msg::route_of(rule.kind, bytes);
            if (size < sizeof(msg::Route)) CHECK_FALSE(route);
            CHECK(msg::rows_of(rule.kind, bytes) >= 1);
        }
    }
}

TEST_CASE("a wave stands for its rows, a tensor note for its own, everything else for one") {
    CHECK(msg::rows_of(number(msg::Kind::Wave), a_wave(5)) == 5);
    CHECK(msg::rows_of(number(msg::Kind::Wave), a_wave(0)) == 1);
    msg::TensorNote note{};
    note.rows = 12;
    note.first_position = 77;
    CHECK(msg::rows_of(number(msg::Kind::TensorNote), bytes_of(note)) == 12);
    msg::Verdict verdict{};
    verdict.count = 9;
    verdict.wave_rows = 30;
    CHECK(msg::rows_of(number(msg::Kind::Verdict), bytes_of(verdict)) == 1);
    CHECK(msg::rows_of(number(msg::Kind::Proposal), routed<msg::Proposal>()) == 1);
}
