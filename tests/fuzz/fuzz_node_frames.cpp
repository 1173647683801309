// Fuzzes the reader of frames between machines: which connection, how the bytes are divided, then
// the bytes. What it accepts must encode to a frame that it accepts again, and it must not matter
// how the bytes were divided.
#include <algorithm>

#include "ipc/remote/frame_reader.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/fuzz/node_frame_samples.hpp"

using namespace paceline;
using namespace paceline::test;
using remote::Channel;

namespace {

/// What the reader made of some bytes: its frames, encoded again, and its error.
struct Read {
    std::vector<std::byte> again;
    std::string error;
};

Read read(std::span<const std::byte> bytes, Channel channel, std::size_t step) {
    remote::FrameReader reader{remote::this_build(), channel};
    Read result;
    const auto keep = [&](const remote::Frame& frame, Epoch node_epoch) -> Status {
        remote::append_frame(result.again, frame, node_epoch, remote::this_build(), channel);
        return {};
    };
    while (!bytes.empty()) {
        const std::span<const std::byte> piece = bytes.first(std::min(step, bytes.size()));
        bytes = bytes.subspan(piece.size());
        const Status status = reader.take(piece, keep);
        PACE_CHECK(reader.waiting() <= (32U << 20), "more memory than the longest frame");
        if (status.ok()) continue;
        PACE_CHECK(status.error().code == Errc::Protocol, "another error than it promises");
        result.error = status.error().what;
        const Status later = reader.take(bytes, keep);
        PACE_CHECK(!later.ok() && later.error().what == result.error, "it forgot its error");
        break;
    }
    return result;
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    const Channel channel = random.one_in(4) ? Channel::Bulk : Channel::Main;
    std::vector<std::byte> bytes;
    const auto add = [&](std::uint32_t which) {
        if (remote::body_bytes_max(static_cast<std::uint16_t>(which + 1), channel) == 0) return;
        remote::append_frame(bytes, node_frame(which, channel, random), Epoch{random.below(9)},
                             remote::this_build(), channel);
    };
    add(0);
    for (std::uint32_t i = random.below(4); i > 0; --i) add(1 + random.below(kNodeFrameKinds - 1));
    FuzzBytes input = {static_cast<std::uint8_t>(channel),
                       static_cast<std::uint8_t>(random.next())};
    for (const std::byte byte : bytes) input.push_back(std::to_integer<std::uint8_t>(byte));
    return input;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzReader input{std::span{data, size}};
    const Channel channel = (input.byte() & 1) != 0 ? Channel::Bulk : Channel::Main;
    const std::size_t step = 1 + input.byte();
    const std::span<const std::byte> bytes = input.rest(size);
    const Read whole = read(bytes, channel, size + 1);
    const Read divided = read(bytes, channel, step);
    PACE_CHECK(whole.again == divided.again, "the division of the bytes changed a frame");
    PACE_CHECK(whole.error == divided.error, "the division of the bytes changed the error");
    const Read again = read(whole.again, channel, size + 1);
    PACE_CHECK(again.error.empty() && again.again == whole.again, "not the same again");
    return 0;
}
