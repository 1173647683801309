// docs/wire-format.md against the structs: offsets of the tables, sizes of the headings, and the
// bytes of the examples.
#include <cstddef>
#include <cstdio>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/transport/spsc_ring.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/data_kinds.hpp"
#include "ipc/wire/messages.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;

namespace {

std::string page() {
    std::ifstream file{testing::source_tree() + "/docs/wire-format.md"};
    return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

/// What stands between two texts of the page.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t first = text.find(begin);
    REQUIRE_MESSAGE(first != std::string::npos, begin);
    return text.substr(first, text.find(end, first) - first);
}

struct Field {
    std::size_t offset;
    const char* name;
};

/// Each field stands in the section as a row of its table: "| 16 | u32 | `batch` |".
void check_fields(const std::string& section, const std::vector<Field>& fields) {
    for (const Field& field : fields) {
        CAPTURE(field.name);
        const std::string begin = "\n| " + std::to_string(field.offset) + " | ";
        bool found = false;
        for (std::size_t at = section.find(begin); at != std::string::npos && !found;
             at = section.find(begin, at + 1)) {
            const std::string row = section.substr(at + 1, section.find('\n', at + 1) - at - 1);
            found = row.find(std::string{"| `"} + field.name + "` |") != std::string::npos;
        }
        CHECK(found);
    }
}

std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte byte : bytes) {
        char two[4];
        std::snprintf(two, sizeof two, "%02x ", std::to_integer<unsigned>(byte));
        text += two;
    }
    text.pop_back();
    return text;
}

#define FIELD(type, name)           \
    Field {                         \
        offsetof(type, name), #name \
    }

}  // namespace

TEST_CASE("the page has the offset of every field of ring and data messages") {
    const std::string text = page();
    check_fields(
        between(text, "## A ring", "A slot is"),
        {FIELD(RingHeader, magic), FIELD(RingHeader, layout_version), FIELD(RingHeader, slot_count),
         FIELD(RingHeader, urgent_slots), FIELD(RingHeader, slot_stride),
         FIELD(RingHeader, payload_bytes), FIELD(RingHeader, epoch), FIELD(RingHeader, flags)});
    using namespace msg;
    check_fields(between(text, "### Proposal, 2,336 bytes", "### Batch"),
                 {FIELD(Proposal, root_position), FIELD(Proposal, root_token),
                  FIELD(Proposal, state), FIELD(Proposal, count), FIELD(Proposal, nodes)});
    check_fields(
        between(text, "### Batch, 40 bytes, 32 for each part and 28 for each row", "A part"),
        {FIELD(BatchHeader, epoch), FIELD(BatchHeader, part_count), FIELD(BatchHeader, row_count),
         FIELD(BatchHeader, tensor), FIELD(BatchHeader, tensor_generation),
         FIELD(BatchHeader, tensor_rows), FIELD(BatchHeader, draw_count),
         FIELD(BatchHeader, drawn_token_count), FIELD(BatchHeader, cost)});
    check_fields(between(text, "A part, 32 bytes", "A row"),
                 {FIELD(BatchPart, request), FIELD(BatchPart, attempt), FIELD(BatchPart, batch),
                  FIELD(BatchPart, kind), FIELD(BatchPart, base), FIELD(BatchPart, rows),
                  FIELD(BatchPart, hold), FIELD(BatchPart, last)});
    check_fields(between(text, "A draw of a batch, 8 bytes", "### Verdict"),
                 {FIELD(BatchDraw, row), FIELD(BatchDraw, support), FIELD(BatchDraw, drawn)});
    check_fields(
        between(text, "### Draw, 416 bytes", "### Price"),
        {FIELD(Draw, root_position), FIELD(Draw, root_token), FIELD(Draw, depth),
         FIELD(Draw, support), FIELD(Draw, drawn), FIELD(Draw, path), FIELD(Draw, tokens)});
    check_fields(between(text, "A row, 28 bytes", "### Verdict"),
                 {FIELD(BatchRow, node), FIELD(BatchRow, parent), FIELD(BatchRow, token),
                  FIELD(BatchRow, position), FIELD(BatchRow, slot), FIELD(BatchRow, tensor_row),
                  FIELD(BatchRow, start), FIELD(BatchRow, origin), FIELD(BatchRow, observe)});
    check_fields(between(text, "### Verdict, 352 bytes", "Example"),
                 {FIELD(Verdict, batch), FIELD(Verdict, base), FIELD(Verdict, count),
                  FIELD(Verdict, batch_rows), FIELD(Verdict, depth), FIELD(Verdict, finish),
                  FIELD(Verdict, cost), FIELD(Verdict, cached), FIELD(Verdict, matched),
                  FIELD(Verdict, tokens), FIELD(Verdict, nodes), FIELD(Verdict, origins)});
    check_fields(between(text, "### Price, 48 bytes", "### TensorNote"),
                 {FIELD(Price, generation), FIELD(Price, mode), FIELD(Price, candidates_max),
                  FIELD(Price, token_us), FIELD(Price, plain_us), FIELD(Price, row_us),
                  FIELD(Price, pass_share), FIELD(Price, extra_us)});
    check_fields(between(text, "### TensorNote, 48 bytes", "### Prefix"),
                 {FIELD(TensorNote, role), FIELD(TensorNote, type), FIELD(TensorNote, layer),
                  FIELD(TensorNote, first_position), FIELD(TensorNote, rows),
                  FIELD(TensorNote, row_elements), FIELD(TensorNote, tensor),
                  FIELD(TensorNote, tensor_generation)});
    check_fields(between(text, "### OwnTokens, 544 bytes", "### Stop"),
                 {FIELD(OwnTokens, batch), FIELD(OwnTokens, root_position),
                  FIELD(OwnTokens, root_token), FIELD(OwnTokens, count), FIELD(OwnTokens, tokens)});
    check_fields(between(text, "### Scores, 536 bytes", "### OwnTokens"),
                 {FIELD(Scores, first), FIELD(Scores, tokens), FIELD(Scores, top),
                  FIELD(Scores, reserved), FIELD(Scores, entries)});
    check_fields(between(text, "### Prefix, 536 bytes", "### Scores"),
                 {FIELD(Prefix, first_block), FIELD(Prefix, count), FIELD(Prefix, matched),
                  FIELD(Prefix, behind), FIELD(Prefix, pages)});
}

TEST_CASE("the sizes that the page gives are those of the structs") {
    CHECK(sizeof(msg::Proposal) == 2336);
    CHECK(sizeof(msg::BatchHeader) == 40);
    CHECK(sizeof(msg::BatchDraw) == 8);
    CHECK(sizeof(msg::TokenWeight) == 8);
    CHECK(sizeof(msg::Draw) == 416);
    CHECK(sizeof(msg::BatchPart) == 32);
    CHECK(sizeof(msg::BatchRow) == 28);
    CHECK(sizeof(msg::Verdict) == 352);
    CHECK(sizeof(msg::Prefix) == 536);
    CHECK(sizeof(msg::Scores) == 536);
    CHECK(sizeof(msg::OwnTokens) == 544);
    CHECK(sizeof(msg::Price) == 48);
    CHECK(sizeof(msg::TensorNote) == 48);
    CHECK(sizeof(msg::Stop) == 16);
    const std::string version = "is " + std::to_string(msg::kWireVersion) + ";";
    CHECK(page().find(version) != std::string::npos);
    CHECK(frame_bytes_for(kVerifyRowsMax) == 3880);
    CHECK(frame_bytes_for(kBatchRowsMax) == 16'424);
    CHECK(frame_bytes_for(kVerifyRowsMax, true) == 20'776);
    const auto kilobytes = [](const RingOptions& options) {
        return fmt::format("{} KB", (ring_bytes(options).value() + 512) / 1000);
    };
    const std::string rings = between(page(), "A ring from a segment to the next has", "## Data");
    for (const auto& [slots, rows] : {std::pair{16U, kVerifyRowsMax}, std::pair{16U, kBatchRowsMax},
                                      std::pair{64U, kVerifyRowsMax}}) {
        const std::string has =
            kilobytes({.slots = slots, .urgent_slots = 4, .payload_bytes = frame_bytes_for(rows)});
        CHECK_MESSAGE(rings.find(has) != std::string::npos, has);
    }
    const std::string drawn = kilobytes(
        {.slots = 16, .urgent_slots = 4, .payload_bytes = frame_bytes_for(kVerifyRowsMax, true)});
    CHECK_MESSAGE(rings.find(drawn) != std::string::npos, drawn);
}

TEST_CASE("the example of a verdict's frame is what a producer writes") {
    const RingOptions options{.slots = 64,
                              .urgent_slots = 16,
                              .payload_bytes = frame_bytes_for(kVerifyRowsMax),
                              .epoch = Epoch{3}};
    const std::size_t bytes = ring_bytes(options).value();
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };
    std::vector<Line> lines(bytes / kLineBytes);
    const std::span<std::byte> memory{lines.front().bytes, bytes};
    format_ring(memory, options);
    auto producer = RingProducer::attach_memory(memory, Epoch{3}, kDataKinds).value();
    msg::Verdict verdict{};
    verdict.route = {RequestId{1}, Attempt{2}, Epoch{3}};
    verdict.batch = BatchId{7};
    verdict.base = 41;
    verdict.count = 3;
    verdict.batch_rows = 5;
    verdict.depth = 4;
    verdict.tokens = {504, 6376, 314};
    REQUIRE(producer.try_push(static_cast<std::uint16_t>(msg::Verdict::kKind),
                              std::as_bytes(std::span{&verdict, 1})) == Push::Ok);
    const std::string text = page();
    for (std::size_t at = 0; at < 96; at += 16) {
        const std::string line = hex(memory.subspan(sizeof(RingHeader) + at, 16));
        CHECK_MESSAGE(text.find(std::to_string(at) + "  " + line) != std::string::npos, line);
    }
    CHECK(text.find('`' + hex(control::encode(control::Ready{Epoch{2}})) + '`') !=
          std::string::npos);
}
