#include "ipc/wire/messages.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/wire/data_kinds.hpp"

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

std::vector<std::byte> a_batch(std::uint32_t rows) {
    msg::Batch batch{.epoch = Epoch{9}};
    batch.parts.resize(2);
    batch.parts[0].request = RequestId{0x1'0000'0007ULL};
    batch.parts[0].attempt = Attempt{3};
    batch.parts[1].request = RequestId{8};
    batch.parts[1].attempt = Attempt{4};
    batch.rows.resize(rows);
    for (std::uint32_t i = 0; i < rows; ++i) batch.rows[i].slot = static_cast<KvSlot>(2 * i);
    return msg::frame_of(batch);
}

std::uint16_t number(msg::Kind kind) {
    return static_cast<std::uint16_t>(kind);
}

}  // namespace

TEST_CASE("whose a frame is can be told for every kind; a batch is its first part's") {
    const std::vector<std::pair<msg::Kind, std::vector<std::byte>>> frames{
        {msg::Kind::Proposal, routed<msg::Proposal>()},
        {msg::Kind::Batch, a_batch(5)},
        {msg::Kind::Verdict, routed<msg::Verdict>()},
        {msg::Kind::Stop, routed<msg::Stop>()},
        {msg::Kind::TensorNote, routed<msg::TensorNote>()},
        {msg::Kind::Draw, routed<msg::Draw>()},
        {msg::Kind::Price, routed<msg::Price>()},
        {msg::Kind::Prefix, routed<msg::Prefix>()},
        {msg::Kind::Scores, routed<msg::Scores>()},
        {msg::Kind::OwnTokens, routed<msg::OwnTokens>()}};
    CHECK(frames.size() == kDataKinds.size());
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
    CHECK_FALSE(msg::route_of(0, a_batch(5)));
    CHECK_FALSE(msg::route_of(200, a_batch(5)));
    for (const KindRule& rule : kDataKinds) {
        for (std::size_t size = 0; size < 64; ++size) {
            // Its own allocation, so that a sanitizer sees a read beyond it.
            const std::vector<std::byte> bytes(size, std::byte{0xff});
            const auto route = msg::route_of(rule.kind, bytes);
            if (size < sizeof(msg::Route)) CHECK_FALSE(route);
            CHECK(msg::rows_of(rule.kind, bytes) >= 1);
        }
    }
}

TEST_CASE("a batch's frame has the bytes of its parts and rows, and comes back as it was") {
    CHECK(a_batch(1).size() == 40 + 2 * 32 + 28);
    CHECK(msg::batch_frame_bytes(1, 1) == 100);
    for (const std::uint32_t rows : {1U, 64U, 65U, kBatchRowsMax}) {
        const std::vector<std::byte> frame = a_batch(rows);
        CHECK(frame.size() == msg::batch_frame_bytes(2, rows));
        CHECK(allows(kBatchRule, frame));
        const Result<msg::Batch> batch = msg::decode_batch(frame);
        REQUIRE(batch);
        CHECK(batch.value().epoch == Epoch{9});
        REQUIRE(batch.value().parts.size() == 2);
        CHECK(batch.value().parts[1].request == RequestId{8});
        REQUIRE(batch.value().rows.size() == rows);
        CHECK(batch.value().rows.back().slot == static_cast<KvSlot>(2 * (rows - 1)));
        CHECK(msg::frame_of(batch.value()) == frame);
    }
}

TEST_CASE("a batch's frame has what was drawn after its rows, if anything was") {
    msg::Batch batch = msg::decode_batch(a_batch(5)).value();
    CHECK(batch.draws.empty());
    batch.draws = {{.row = 1, .support = 2, .drawn = 1}, {.row = 4, .support = 1, .drawn = 1}};
    batch.drawn_tokens = {{7, 0.5F}, {3, 0.25F}, {9, 1.0F}};
    const std::vector<std::byte> frame = msg::frame_of(batch);
    CHECK(frame.size() == a_batch(5).size() + 2 * 8 + 3 * 8);
    CHECK(allows(kBatchRule, frame));
    const msg::Batch back = msg::decode_batch(frame).value();
    REQUIRE(back.draws.size() == 2);
    CHECK(back.draws[1].row == 4);
    CHECK(back.drawn_tokens == batch.drawn_tokens);
    CHECK(msg::frame_of(back) == frame);
}

TEST_CASE("a batch's frame of another length than its counts say is refused, whatever it claims") {
    const auto refused = [](const std::vector<std::byte>& frame, const std::string& says) {
        CHECK_FALSE(allows(kBatchRule, frame));
        const Result<msg::Batch> batch = msg::decode_batch(frame);
        REQUIRE_FALSE(batch);
        CHECK(batch.error().code == Errc::Protocol);
        CHECK(batch.error().what.find(says) != std::string::npos);
    };
    const auto claiming = [](std::size_t offset, std::uint32_t count) {
        std::vector<std::byte> frame = a_batch(5);
        std::memcpy(frame.data() + offset, &count, sizeof count);
        return frame;
    };
    std::vector<std::byte> frame = a_batch(5);
    frame.pop_back();
    refused(frame, "has 243 bytes, not 244");
    frame = a_batch(5);
    frame.push_back({});
    refused(frame, "has 245 bytes, not 244");
    for (std::size_t size = 0; size < sizeof(msg::BatchHeader); ++size)
        refused(std::vector<std::byte>(size), "its header alone");
    constexpr std::size_t kParts = offsetof(msg::BatchHeader, part_count);
    constexpr std::size_t kRows = offsetof(msg::BatchHeader, row_count);
    refused(claiming(kRows, 6), "row_count = 6");
    refused(claiming(kRows, 0), "row_count = 0");
    refused(claiming(kRows, kBatchRowsMax + 1), "row_count = 513");
    // Lengths that would wrap in 32 bits.
    refused(claiming(kRows, 5 + (1U << 30U)), "row_count");
    refused(claiming(kParts, 2 + (1U << 27U)), "part_count");
    refused(claiming(kParts, 0), "part_count = 0");
    refused(claiming(kParts, 17), "part_count = 17");
    constexpr std::size_t kDraws = offsetof(msg::BatchHeader, draw_count);
    constexpr std::size_t kTokens = offsetof(msg::BatchHeader, drawn_token_count);
    refused(claiming(kDraws, 1), "has 244 bytes, not 252");
    refused(claiming(kTokens, 1), "has 244 bytes, not 252");
    refused(claiming(kDraws, kVerifyRowsMax + 1), "draw_count = 65");
    refused(claiming(kTokens, 1U << 29U), "drawn_token_count");
}

TEST_CASE("a batch stands for its rows, a tensor note for its own, everything else for one") {
    CHECK(msg::rows_of(number(msg::Kind::Batch), a_batch(5)) == 5);
    CHECK(msg::rows_of(number(msg::Kind::Batch), a_batch(0)) == 1);
    msg::TensorNote note{};
    note.rows = 12;
    note.first_position = 77;
    CHECK(msg::rows_of(number(msg::Kind::TensorNote), bytes_of(note)) == 12);
    msg::Verdict verdict{};
    verdict.count = 9;
    verdict.batch_rows = 30;
    CHECK(msg::rows_of(number(msg::Kind::Verdict), bytes_of(verdict)) == 1);
    CHECK(msg::rows_of(number(msg::Kind::Proposal), routed<msg::Proposal>()) == 1);
    CHECK(msg::rows_of(number(msg::Kind::Draw), routed<msg::Draw>()) == 1);
    CHECK(msg::rows_of(number(msg::Kind::Price), routed<msg::Price>()) == 1);
}
