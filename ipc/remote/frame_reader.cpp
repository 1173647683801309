#include "ipc/remote/frame_reader.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline::remote {
namespace {

template <class Number>
Number get(std::span<const std::byte> bytes, std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
        value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
    }
    return static_cast<Number>(value);
}

Error wrong(std::string text) {
    return {Errc::Protocol, std::move(text)};
}

}  // namespace

struct FrameReader::Header {
    std::uint16_t kind = 0;
    std::uint32_t len = 0;
    Epoch node_epoch;
    std::uint64_t build = 0;
};

Result<FrameReader::Header> FrameReader::read_header(std::span<const std::byte> bytes) const {
    if (get<std::uint32_t>(bytes, 0) != kNodeMagic) {
        return wrong(fmt::format("field 'magic' of a frame is {:#x}, not {:#x}",
                                 get<std::uint32_t>(bytes, 0), kNodeMagic));
    }
    const auto version = get<std::uint16_t>(bytes, 4);
    if (version != kNodeVersion) {
        return wrong(
            fmt::format("field 'version': the other machine speaks version {} of the "
                        "frames between machines, this one version {}: use one build on "
                        "all machines",
                        version, kNodeVersion));
    }
    Header header{get<std::uint16_t>(bytes, 6), get<std::uint32_t>(bytes, 8),
                  Epoch{get<std::uint32_t>(bytes, 12)}, get<std::uint64_t>(bytes, 16)};
    const auto kind = static_cast<Kind>(header.kind);
    const std::uint32_t limit = body_bytes_max(header.kind, channel_);
    if (limit == 0) {
        return wrong(
            fmt::format("field 'kind': a frame of kind {} ({}) does not belong on this "
                        "connection",
                        header.kind, name_of(kind)));
    }
    if (header.len > limit) {
        return wrong(
            fmt::format("field 'len': a frame '{}' claims {} bytes; at most {} are allowed",
                        name_of(kind), header.len, limit));
    }
    if (get<std::uint64_t>(bytes, 24) != 0) {
        return wrong(fmt::format("field 'zero' of a frame '{}' is not 0", name_of(kind)));
    }
    if (!greeted_ && kind != Kind::Hello && kind != Kind::Refused) {
        return wrong(fmt::format("the first frame is '{}', not 'hello'", name_of(kind)));
    }
    if (header.build != own_.hash && kind != Kind::Hello && kind != Kind::Refused) {
        return wrong(
            fmt::format("field 'build' of a frame '{}' is {:#x}, here it is {:#x}: use "
                        "one build on all machines",
                        name_of(kind), header.build, own_.hash));
    }
    return header;
}

Status FrameReader::take_frame(const Header& header,
                               std::span<const std::byte> body,
                               const OnFrame& on_frame) {
    const Result<Frame> frame = decode_body(header.kind, body, channel_);
    const auto* hello = frame.ok() ? std::get_if<Hello>(&frame.value()) : nullptr;
    const bool is_hello = static_cast<Kind>(header.kind) == Kind::Hello;
    if (is_hello &&
        (header.build != own_.hash || (hello != nullptr && hello->build != own_.name))) {
        // Another build may have other fields: then only its hash is known.
        const std::string theirs = hello != nullptr ? fmt::format("'{}'", hello->build)
                                                    : fmt::format("{:#x}", header.build);
        return wrong(
            fmt::format("field 'build': the other machine runs build {}, this one '{}': "
                        "use one build on all machines",
                        theirs, own_.name));
    }
    if (!frame.ok()) return frame.error();
    if (hello != nullptr && by_hello_ && !greeted_) channel_ = hello->channel;
    if (hello != nullptr && hello->channel != channel_) {
        return wrong("field 'channel' of a frame 'hello' is that of the other connection");
    }
    if (hello != nullptr && greeted_) return wrong("a second frame 'hello'");
    greeted_ = greeted_ || hello != nullptr;
    return on_frame(frame.value(), header.node_epoch);
}

/// Completes the frame that was begun in earlier bytes; takes what it needs from `bytes`.
Status FrameReader::take_pending(std::span<const std::byte>& bytes, const OnFrame& on_frame) {
    const auto fill = [this, &bytes](std::size_t wanted) {
        const std::size_t count =
            std::min(bytes.size(), wanted - std::min(wanted, pending_.size()));
        pending_.insert(pending_.end(), bytes.begin(),
                        bytes.begin() + static_cast<std::ptrdiff_t>(count));
        bytes = bytes.subspan(count);
        return pending_.size() >= wanted;
    };
    if (!fill(kNodeHeaderBytes)) return {};
    const Result<Header> header = read_header(pending_);
    if (!header.ok()) return header.error();
    if (!fill(kNodeHeaderBytes + header.value().len)) return {};
    const Status taken =
        take_frame(header.value(), std::span{pending_}.subspan(kNodeHeaderBytes), on_frame);
    pending_.clear();
    if (pending_.capacity() > kPendingKept) pending_.shrink_to_fit();
    return taken;
}

Status FrameReader::take(std::span<const std::byte> bytes, const OnFrame& on_frame) {
    while (fault_.ok() && !bytes.empty()) {
        if (!pending_.empty()) {
            fault_ = take_pending(bytes, on_frame);
            continue;
        }
        if (bytes.size() >= kNodeHeaderBytes) {
            const Result<Header> header = read_header(bytes);
            if (!header.ok()) {
                fault_ = header.error();
                break;
            }
            const std::size_t whole = kNodeHeaderBytes + header.value().len;
            if (bytes.size() >= whole) {
                fault_ = take_frame(header.value(),
                                    bytes.subspan(kNodeHeaderBytes, header.value().len), on_frame);
                bytes = bytes.subspan(whole);
                continue;
            }
        }
        pending_.assign(bytes.begin(), bytes.end());
        bytes = {};
        if (pending_.size() < kNodeHeaderBytes) break;
    }
    return fault_;
}

}  // namespace paceline::remote
