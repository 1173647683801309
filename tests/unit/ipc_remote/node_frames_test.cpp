#include "ipc/remote/node_frames.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

#include <doctest/doctest.h>

#include "ipc/remote/frame_reader.hpp"
#include "tests/fuzz/node_frame_samples.hpp"

using namespace paceline;
using namespace paceline::remote;
using paceline::test::node_frame;
using paceline::test::SeededRandom;

namespace {

using Bytes = std::vector<std::byte>;

Bytes encoded(const Frame& frame,
              Channel channel = Channel::Main,
              const Build& build = this_build()) {
    Bytes bytes;
    append_frame(bytes, frame, Epoch{3}, build, channel);
    return bytes;
}

Hello hello(Channel channel = Channel::Main) {
    Hello said;
    said.build = this_build().name;
    said.channel = channel;
    return said;
}

/// A reader that has had its Hello, and what it calls.
struct Reader {
    explicit Reader(Channel with = Channel::Main) : channel{with}, reader{this_build(), with} {
        REQUIRE(take(encoded(hello(with), with)).ok());
        frames = 0;
        again.clear();
    }
    Status take(std::span<const std::byte> bytes) {
        return reader.take(bytes, [this](const Frame& frame, Epoch node_epoch) -> Status {
            ++frames;
            last_epoch = node_epoch;
            append_frame(again, frame, node_epoch, this_build(), channel);
            return {};
        });
    }
    std::string error_of(const Bytes& bytes) {
        const Status status = take(bytes);
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().code == Errc::Protocol);
        return status.error().what;
    }
    Channel channel;
    FrameReader reader;
    int frames = 0;
    Epoch last_epoch;
    Bytes again;
};

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

template <class Number>
void overwrite(Bytes& bytes, std::size_t at, Number number) {
    std::memcpy(bytes.data() + at, &number, sizeof number);
}

}  // namespace

TEST_CASE("a frame of each kind is the same after its encoding, on the connections that carry it") {
    SeededRandom random{1};
    for (const Channel channel : {Channel::Main, Channel::Bulk}) {
        for (std::uint32_t which = 1; which < test::kNodeFrameKinds; ++which) {
            const auto kind = static_cast<std::uint16_t>(which + 1);
            CAPTURE(name_of(static_cast<Kind>(kind)));
            if (body_bytes_max(kind, channel) == 0) continue;
            for (int i = 0; i < 20; ++i) {
                const Bytes bytes = encoded(node_frame(which, channel, random), channel);
                Reader reader{channel};
                REQUIRE(reader.take(bytes).ok());
                CHECK(reader.frames == 1);
                CHECK(reader.last_epoch == Epoch{3});
                CHECK(reader.again == bytes);
            }
        }
    }
}

TEST_CASE("frames arrive whole and in order, however their bytes are divided") {
    SeededRandom random{2};
    Bytes bytes;
    constexpr int kFrames = 60;
    for (int i = 0; i < kFrames; ++i) {
        std::uint32_t which = 0;
        do {
            which = 1 + random.below(test::kNodeFrameKinds - 1);
        } while (body_bytes_max(static_cast<std::uint16_t>(which + 1), Channel::Main) == 0);
        append_frame(bytes, node_frame(which, Channel::Main, random), Epoch{3}, this_build(),
                     Channel::Main);
    }
    for (int round = 0; round < 50; ++round) {
        Reader reader;
        std::span<const std::byte> left{bytes};
        while (!left.empty()) {
            const std::size_t count =
                std::min<std::size_t>(left.size(), 1 + random.below(round * 20 + 1));
            REQUIRE(reader.take(left.first(count)).ok());
            left = left.subspan(count);
        }
        CHECK(reader.frames == kFrames);
        CHECK(reader.again == bytes);
        CHECK(reader.reader.waiting() == 0);
    }
}

TEST_CASE("the first frame has to be a hello or a refusal") {
    FrameReader reader{this_build(), Channel::Main};
    const auto nothing = [](const Frame&, Epoch) -> Status { return {}; };
    const Status status = reader.take(encoded(Kill{}), nothing);
    REQUIRE_FALSE(status.ok());
    CHECK(has(status.error().what, "the first frame is 'kill', not 'hello'"));
    FrameReader refused{this_build(), Channel::Main};
    CHECK(refused.take(encoded(Refused{"no"}), nothing).ok());
    CHECK_FALSE(refused.greeted());
}

TEST_CASE("a second hello is refused, and one of the other connection") {
    Reader reader;
    CHECK(has(reader.error_of(encoded(hello())), "a second frame 'hello'"));
    FrameReader bulk{this_build(), Channel::Bulk};
    const Status status =
        bulk.take(encoded(hello(Channel::Main)), [](const Frame&, Epoch) -> Status { return {}; });
    REQUIRE_FALSE(status.ok());
    CHECK(has(status.error().what, "field 'channel'"));
}

TEST_CASE("bytes that are no frame, and another version, are refused by their header") {
    Reader magic;
    Bytes bytes = encoded(Kill{});
    overwrite(bytes, 0, std::uint32_t{0x20544547});  // "GET "
    CHECK(has(magic.error_of(bytes), "field 'magic' of a frame is 0x20544547"));
    Reader version;
    bytes = encoded(Kill{});
    overwrite(bytes, 4, static_cast<std::uint16_t>(kNodeVersion + 1));
    CHECK(
        has(version.error_of(bytes),
            fmt::format("field 'version': the other machine speaks version {}", kNodeVersion + 1)));
    Reader zero;
    bytes = encoded(Kill{});
    overwrite(bytes, 24, std::uint64_t{1});
    CHECK(has(zero.error_of(bytes), "field 'zero'"));
}

TEST_CASE("a hello of another build is refused with both names, later frames by the number") {
    const Build other = build_of("another build");
    Hello said = hello();
    said.build = other.name;
    FrameReader reader{this_build(), Channel::Main};
    const auto never = [](const Frame&, Epoch) -> Status {
        FAIL("it was delivered");
        return {};
    };
    const Status status = reader.take(encoded(said, Channel::Main, other), never);
    REQUIRE_FALSE(status.ok());
    CHECK(has(status.error().what, "field 'build'"));
    CHECK(has(status.error().what, "'another build'"));
    CHECK(has(status.error().what, this_build().name.c_str()));
    Reader later;
    CHECK(has(later.error_of(encoded(Kill{}, Channel::Main, other)),
              "field 'build' of a frame 'kill'"));
}

TEST_CASE("a truncated body is refused with its kind and the field that is missing") {
    Bytes bytes = encoded(LeaseAsk{1, 2});
    bytes.resize(bytes.size() - 4);
    overwrite(bytes, 8, static_cast<std::uint32_t>(bytes.size() - kNodeHeaderBytes));
    Reader reader;
    const std::string error = reader.error_of(bytes);
    CHECK(has(error, "a frame 'lease-ask' of 13 bytes does not decode: field 'asked'"));
    // And nothing else is read after it.
    CHECK(reader.error_of(encoded(Kill{})) == error);
}

TEST_CASE("a body with bytes left over is refused") {
    Bytes bytes = encoded(EdgeRoom{1, 2});
    bytes.resize(bytes.size() + 3);
    overwrite(bytes, 8, static_cast<std::uint32_t>(bytes.size() - kNodeHeaderBytes));
    Reader reader;
    CHECK(has(reader.error_of(bytes), "a frame 'edge-room' has 3 bytes too many after 'taken'"));
}

TEST_CASE("a length over its kind's limit is refused before a byte of the body has come") {
    for (std::uint32_t which = 1; which < test::kNodeFrameKinds; ++which) {
        const auto kind = static_cast<std::uint16_t>(which + 1);
        const std::uint32_t limit = body_bytes_max(kind, Channel::Main);
        if (limit == 0) continue;
        Bytes header = encoded(Kill{});
        header.resize(kNodeHeaderBytes);
        overwrite(header, 6, kind);
        overwrite(header, 8, limit + 1);
        Reader reader;
        const std::string error = reader.error_of(header);
        CHECK(has(error, "field 'len'"));
        CHECK(has(error, name_of(static_cast<Kind>(kind))));
    }
}

TEST_CASE("memory grows with the bytes that came, not with those that were promised") {
    Bytes header = encoded(Refused{""});
    header.resize(kNodeHeaderBytes);
    overwrite(header, 8, body_bytes_max(static_cast<std::uint16_t>(Kind::Refused), Channel::Main));
    Reader reader;
    REQUIRE(reader.take(header).ok());
    CHECK(reader.reader.waiting() == kNodeHeaderBytes);
}

TEST_CASE("a count over its field's limit, or beyond the bytes that are left, is refused by name") {
    Bytes bytes = encoded(DropMemory{{1, 2, 3}});
    const std::size_t count_at = kNodeHeaderBytes + 1;  // behind the archive's first byte
    overwrite(bytes, count_at, std::uint32_t{4});
    Reader beyond;
    CHECK(has(beyond.error_of(bytes),
              "a frame 'drop-memory' of 29 bytes does not decode: field 'ids': "
              "a count beyond the message"));
    overwrite(bytes, count_at, kMemoriesMax + 1);
    Reader over;
    CHECK(has(over.error_of(bytes), "field 'ids': a count over its limit"));
}

TEST_CASE("kinds that do not exist or belong to the other connection are refused") {
    for (const std::uint16_t kind : {0, 20, 999}) {
        Bytes bytes = encoded(Kill{});
        overwrite(bytes, 6, kind);
        Reader reader;
        CHECK(has(reader.error_of(bytes), "field 'kind'"));
    }
    Reader bulk{Channel::Bulk};
    CHECK(has(bulk.error_of(encoded(Kill{})), "a frame of kind 16 (kill) does not belong"));
}

TEST_CASE("a long Begin travels on the bulk connection, everything else on the main one") {
    StageControl begin;
    begin.type = static_cast<std::uint16_t>(control::Type::Begin);
    begin.body.resize(kMainBeginBytesMax + 1);
    Reader main;
    CHECK(has(main.error_of(encoded(begin, Channel::Bulk)), "'begin' does not belong"));
    Reader bulk{Channel::Bulk};
    CHECK(bulk.take(encoded(begin, Channel::Bulk)).ok());
    StageControl ready;
    ready.type = static_cast<std::uint16_t>(control::Type::Ready);
    Reader other{Channel::Bulk};
    CHECK(has(other.error_of(encoded(ready)), "'ready' does not belong"));
}

TEST_CASE("a control message of unknown type, or longer than its type allows, is refused") {
    StageControl ready;
    ready.type = static_cast<std::uint16_t>(control::Type::Ready);
    ready.body.resize(5);
    Bytes bytes = encoded(ready);
    const std::size_t type_at = kNodeHeaderBytes + 1 + 6 + 4;
    overwrite(bytes, type_at, std::uint16_t{77});
    Reader unknown;
    CHECK(has(unknown.error_of(bytes), "field 'type': a control message of unknown type"));
    StageControl assign;
    assign.type = static_cast<std::uint16_t>(control::Type::Assign);
    assign.body.resize(10'000);
    bytes = encoded(assign);
    overwrite(bytes, type_at, static_cast<std::uint16_t>(control::Type::Ready));
    Reader over;
    CHECK(has(over.error_of(bytes), "field 'body': a count over its limit"));
}

TEST_CASE("a part of a tensor ends within the tensor, and a tensor within a slot") {
    TensorPart part;
    const Bytes payload(100);
    part.bytes = payload;
    part.offset = 50;
    part.total = 150;
    Bytes bytes = encoded(part);
    Reader fits;
    CHECK(fits.take(bytes).ok());
    const std::size_t total_at = kNodeHeaderBytes + 1 + 12;
    overwrite(bytes, total_at, std::uint64_t{149});
    Reader beyond;
    CHECK(has(beyond.error_of(bytes), "field 'bytes' ends behind 'total'"));
    overwrite(bytes, total_at, kPoolSlotBytesMax + 1);
    Reader large;
    CHECK(has(large.error_of(bytes), "field 'total'"));
    overwrite(bytes, total_at, std::uint64_t{150});
    overwrite(bytes, total_at + 8, ~std::uint64_t{0});
    Reader wraps;
    CHECK(has(wraps.error_of(bytes), "field 'bytes' ends behind 'total'"));
}

TEST_CASE("values that do not exist are refused") {
    Bytes bytes = encoded(StageReport{});
    overwrite(bytes, kNodeHeaderBytes + 1 + 6, std::uint8_t{StageReport::kWhatLast + 1});
    Reader report;
    CHECK(has(report.error_of(bytes), "field 'what': a value that does not exist"));
    bytes = encoded(EdgeFrame{});
    overwrite(bytes, kNodeHeaderBytes + 1 + 6, std::uint8_t{2});
    Reader edge;
    CHECK(has(edge.error_of(bytes), "field 'urgent': neither 0 nor 1"));
}

TEST_CASE("an error of the callback ends the reader") {
    FrameReader reader{this_build(), Channel::Main};
    int calls = 0;
    const auto fails = [&calls](const Frame&, Epoch) -> Status {
        ++calls;
        return Error{Errc::BadArgument, "two tasks on one machine"};
    };
    Bytes bytes = encoded(hello());
    const Bytes more = encoded(Kill{});
    bytes.insert(bytes.end(), more.begin(), more.end());
    CHECK(reader.take(bytes, fails).error().what == "two tasks on one machine");
    CHECK(reader.take(bytes, fails).error().what == "two tasks on one machine");
    CHECK(calls == 1);
}
