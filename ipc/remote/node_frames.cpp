#include "ipc/remote/node_frames.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <istream>
#include <ostream>
#include <type_traits>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/remote/frame_fields.hpp"
#include "ipc/wire/messages.hpp"

#ifndef PACELINE_BUILD_ID
#define PACELINE_BUILD_ID "unknown"
#endif

namespace paceline::remote {
namespace {

/// The largest body of fixed fields and its containers at their limits, with room to spare.
constexpr std::uint32_t roomy(std::uint32_t containers) {
    return containers + 1024;
}

constexpr std::uint32_t kHelloBytes = 3 * kNameBytesMax + kDevicesMax * (2 * kNameBytesMax + 16) +
                                      kModelsMax * (2 * kNameBytesMax + 16);
constexpr std::uint32_t kStartBytes =
    2 * control::kActorsMax + kNameBytesMax + 4 * kCoresMax + control::kAssignBytesMax;
constexpr std::uint32_t kMakeBytes = kMemoriesMax * (kMemoryBytesMin + kNameBytesMax);
constexpr std::uint32_t kCountersBytes =
    kStagesMax * (kStageCountersBytesMin + kBlockBytesMax + kTraceBytesMax);

/// The longest control message of a connection: a long Begin has one of its own.
std::uint32_t control_bytes_max(Channel channel) {
    if (channel == Channel::Bulk) {
        return control::body_bytes_max(static_cast<std::uint16_t>(control::Type::Begin));
    }
    std::uint32_t longest = 0;
    for (std::uint16_t type = 1; control::body_bytes_max(type) != 0; ++type) {
        if (type == static_cast<std::uint16_t>(control::Type::Begin)) continue;
        longest = std::max(longest, control::body_bytes_max(type));
    }
    return longest;
}

bool may_travel(const StageControl& message, Channel channel) {
    const bool begin = message.type == static_cast<std::uint16_t>(control::Type::Begin);
    if (channel == Channel::Bulk) return begin;
    return !begin || message.body.size() <= kMainBeginBytesMax;
}

template <class M>
Result<Frame> decode_as(std::span<const std::byte> body, Kind kind) {
    FieldBuffer buffer{body};
    std::istream stream{&buffer};
    M message{};
    try {
        BoundedInput archive{buffer, stream};
        archive(message);
    } catch (const cereal::Exception& problem) {
        return Error{Errc::Protocol,
                     fmt::format("a frame '{}' of {} bytes does not decode: field '{}': {}",
                                 name_of(kind), body.size(), buffer.field, problem.what())};
    }
    if constexpr (requires { borrowed_field(message); }) {
        auto [name, bytes, limit] = borrowed_field(message);
        bytes = body.last(buffer.left());
        if (bytes.size() > limit) {
            return Error{
                Errc::Protocol,
                fmt::format("a frame '{}': field '{}' has {} bytes; at most {} are allowed",
                            name_of(kind), name, bytes.size(), limit)};
        }
    } else if (buffer.left() != 0) {
        return Error{Errc::Protocol, fmt::format("a frame '{}' has {} bytes too many after '{}'",
                                                 name_of(kind), buffer.left(), buffer.field)};
    }
    if (const char* wrong = contradiction(message); wrong != nullptr) {
        return Error{Errc::Protocol,
                     fmt::format("a frame '{}' contradicts itself: {}", name_of(kind), wrong)};
    }
    return Frame{std::move(message)};
}

using Decode = Result<Frame> (*)(std::span<const std::byte>, Kind);

template <std::size_t... Index>
constexpr auto decoders(std::index_sequence<Index...>) {
    return std::array<Decode, sizeof...(Index)>{
        decode_as<std::variant_alternative_t<Index, Frame>>...};
}

constexpr std::size_t kKinds = std::variant_size_v<Frame>;
constexpr std::array<Decode, kKinds> kDecoders = decoders(std::make_index_sequence<kKinds>{});
static_assert(kKinds == static_cast<std::size_t>(Kind::CountersAsk), "numbered in Frame's order");
static_assert(std::is_same_v<std::variant_alternative_t<8, Frame>, StageControl>);
static_assert(std::is_same_v<std::variant_alternative_t<15, Frame>, Kill>);

template <class Number>
void put(std::byte* at, Number number) {
    for (std::size_t i = 0; i < sizeof number; ++i) {
        at[i] = static_cast<std::byte>(static_cast<std::uint64_t>(number) >> (8 * i));
    }
}

}  // namespace

Build build_of(std::string name) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return {std::move(name), hash};
}

const Build& this_build() {
    static const Build build = build_of(fmt::format("{} messages {} frames {}", PACELINE_BUILD_ID,
                                                    msg::kWireVersion, kNodeVersion));
    return build;
}

Kind kind_of(const Frame& frame) {
    return static_cast<Kind>(frame.index() + 1);
}

const char* name_of(Kind kind) {
    constexpr std::array<const char*, kKinds> kNames = {
        "hello",        "refused",     "lease-ask",   "lease-grant",   "start-stage",
        "stage-report", "make-memory", "drop-memory", "stage-control", "edge-frame",
        "tensor-part",  "edge-room",   "tensor-free", "board-line",    "counters",
        "kill",         "shutdown",    "bulk-mark",   "counters-ask",
    };
    const auto number = static_cast<std::size_t>(kind);
    return number >= 1 && number <= kKinds ? kNames[number - 1] : "unknown";
}

std::uint32_t body_bytes_max(std::uint16_t kind, Channel channel) {
    const bool bulk = channel == Channel::Bulk;
    switch (static_cast<Kind>(kind)) {
        case Kind::Hello:
            return roomy(kHelloBytes);
        case Kind::Refused:
        case Kind::Shutdown:
            return roomy(kTextBytesMax);
        case Kind::StageControl:
            return roomy(8 * kMemoriesMax + control_bytes_max(channel));
        case Kind::LeaseAsk:
        case Kind::LeaseGrant:
        case Kind::EdgeRoom:
        case Kind::TensorFree:
        case Kind::BoardLine:
        case Kind::Kill:
        case Kind::BulkMark:
        case Kind::CountersAsk:
            return bulk ? 0 : roomy(0);
        case Kind::StartStage:
            return bulk ? 0 : roomy(kStartBytes);
        case Kind::StageReport:
            return bulk ? 0 : roomy(kTextBytesMax);
        case Kind::MakeMemory:
            return bulk ? 0 : roomy(kMakeBytes);
        case Kind::DropMemory:
            return bulk ? 0 : roomy(8 * kMemoriesMax);
        case Kind::EdgeFrame:
            return bulk ? 0 : roomy(kFramePayloadMax);
        case Kind::TensorPart:
            return bulk ? 0 : roomy(kPartBytesMax);
        case Kind::Counters:
            return bulk ? 0 : roomy(kCountersBytes);
    }
    return 0;
}

void append_frame(std::vector<std::byte>& out,
                  const Frame& frame,
                  Epoch node_epoch,
                  const Build& build,
                  Channel channel) {
    const auto kind = static_cast<std::uint16_t>(kind_of(frame));
    const std::uint32_t limit = body_bytes_max(kind, channel);
    PACE_CHECK(limit != 0, "a frame that its connection does not carry");
    if (const auto* message = std::get_if<StageControl>(&frame)) {
        PACE_CHECK(may_travel(*message, channel),
                   "a long Begin, and nothing else, travels on Bulk");
    }
    const std::size_t start = out.size();
    out.resize(start + kNodeHeaderBytes);
    VectorBuffer buffer{out};
    std::ostream stream{&buffer};
    BoundedOutput archive{stream};
    std::visit(
        [&](const auto& body) {
            PACE_CHECK(contradiction(body) == nullptr, "a frame that contradicts itself");
            archive(body);
            if constexpr (requires { borrowed_field(body); }) {
                const auto& [name, bytes, bytes_max] = borrowed_field(body);
                PACE_CHECK(bytes.size() <= bytes_max, "a frame over its own limits");
                out.insert(out.end(), bytes.begin(), bytes.end());
            }
        },
        frame);
    const std::size_t length = out.size() - start - kNodeHeaderBytes;
    PACE_CHECK(length <= limit, "a frame over its kind's limit");
    std::byte* header = out.data() + start;
    put(header, kNodeMagic);
    put(header + 4, kNodeVersion);
    put(header + 6, kind);
    put(header + 8, static_cast<std::uint32_t>(length));
    put(header + 12, node_epoch.value);
    put(header + 16, build.hash);
    put(header + 24, std::uint64_t{0});
}

Result<Frame> decode_body(std::uint16_t kind, std::span<const std::byte> body, Channel channel) {
    const std::uint32_t limit = body_bytes_max(kind, channel);
    const char* name = name_of(static_cast<Kind>(kind));
    if (limit == 0) {
        return Error{Errc::Protocol, fmt::format("field 'kind': a frame of kind {} ({}) does not "
                                                 "belong on this connection",
                                                 kind, name)};
    }
    if (body.size() > limit) {
        return Error{Errc::Protocol,
                     fmt::format("field 'len': a frame '{}' of {} bytes; at most {} are allowed",
                                 name, body.size(), limit)};
    }
    Result<Frame> frame = kDecoders[kind - 1U](body, static_cast<Kind>(kind));
    if (!frame.ok()) return frame;
    const auto* message = std::get_if<StageControl>(&frame.value());
    if (message != nullptr && !may_travel(*message, channel)) {
        return Error{
            Errc::Protocol,
            fmt::format("a frame 'stage-control': field 'type': a control message '{}' does "
                        "not belong on this connection",
                        control::name_of(static_cast<control::Type>(message->type)))};
    }
    return frame;
}

}  // namespace paceline::remote
