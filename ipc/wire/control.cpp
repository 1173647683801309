#include "ipc/wire/control.hpp"

#include <fmt/core.h>
#include <istream>
#include <ostream>
#include <type_traits>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/bounded_archive.hpp"

namespace paceline::control {
namespace {

constexpr std::size_t kEdgeWireBytes = 2 + 2 + 4 + 1 + 3 * 4 + 1 + 4;  // without its name
constexpr std::uint32_t kEdgesBytesMax =
    kEdgesMax * (static_cast<std::uint32_t>(kEdgeWireBytes) + kNameBytesMax);
constexpr std::size_t kStageIdBytes = 2;

}  // namespace

// One function per message says its fields, for both directions.

template <class Archive>
void serialize(Archive& archive, Assign& message) {
    archive(message.stage.value, message.epoch.value,
            bounded(message.actors, kActorsMax, kStageIdBytes),
            bounded(message.name, kNameBytesMax), bounded(message.payload, kAssignBytesMax));
}

template <class Archive>
void serialize(Archive& archive, Hello& message) {
    archive(message.wire_version, message.pid, bounded(message.role, kNameBytesMax),
            bounded(message.equality_class, kNameBytesMax),
            bounded(message.model_fingerprint, kNameBytesMax), message.vocab_size, message.dim,
            message.first_layer, message.last_layer, message.weight_bytes, message.kv_bytes,
            message.workspace_bytes, message.pinned_bytes);
}

template <class Archive>
void serialize(Archive& archive, EdgeWire& edge) {
    // Any byte but 0 is "true": a bool must never hold what the wire says as it is.
    std::uint8_t outgoing = edge.outgoing ? 1 : 0;
    archive(edge.self.value, edge.peer.value, edge.peer_epoch.value, outgoing, edge.ring_file,
            edge.pool_file, edge.bell_file);
    auto transport = static_cast<std::uint8_t>(edge.transport);
    archive(transport, bounded(edge.name, kNameBytesMax));
    if constexpr (Archive::is_loading::value) {
        edge.outgoing = outgoing != 0;
        if (transport > static_cast<std::uint8_t>(Transport::Nccl)) {
            throw cereal::Exception("a transport that does not exist");
        }
        edge.transport = static_cast<Transport>(transport);
    }
}

template <class Archive>
void serialize(Archive& archive, Wire& message) {
    archive(message.bell_file, message.spin_micros, message.hang_limit_ms, message.link_limit_ms,
            bounded(message.edges, kEdgesMax, kEdgeWireBytes));
}

template <class Archive>
void serialize(Archive& archive, Ready& message) {
    archive(message.epoch.value);
}

template <class Archive>
void serialize(Archive& archive, Begin& message) {
    archive(message.request.value, message.attempt.value, bounded(message.payload, kBeginBytesMax));
}

template <class Archive>
void serialize(Archive& archive, Failed& message) {
    archive(message.code, bounded(message.text, kTextBytesMax));
}

template <class Archive>
void serialize([[maybe_unused]] Archive& archive, [[maybe_unused]] Shutdown& message) {}

template <class Archive>
void serialize(Archive& archive, Unwire& message) {
    archive(bounded(message.peers, kActorsMax, kStageIdBytes), message.peer_epoch.value);
}

template <class Archive>
void serialize(Archive& archive, Rewire& message) {
    archive(bounded(message.peers, kActorsMax, kStageIdBytes), message.peer_epoch.value,
            bounded(message.edges, kEdgesMax, kEdgeWireBytes));
}

template <class Archive>
void serialize(Archive& archive, Rewired& message) {
    archive(message.peer.value, message.peer_epoch.value);
}

template <class Archive>
void serialize(Archive& archive, EdgeFault& message) {
    archive(message.peer.value, message.peer_epoch.value, bounded(message.text, kTextBytesMax));
}

template <class Archive>
void serialize(Archive& archive, EdgeOffer& message) {
    archive(message.from.value, message.from_epoch.value, message.to.value, message.to_epoch.value,
            bounded(message.bytes, kOfferBytesMax));
}

template <class Archive>
void serialize(Archive& archive, BeginWanted& message) {
    archive(message.request.value, message.attempt.value, message.position);
}

template <class Archive>
void serialize(Archive& archive, PagesWanted& message) {
    archive(message.request.value, message.attempt.value, message.running);
}

namespace {

/// The largest body of a fixed part and its containers at their limits, with room to spare.
constexpr std::uint32_t roomy(std::uint32_t containers) {
    return containers + 1024;
}

template <class M>
Result<Message> decode_as(std::span<const std::byte> body, const char* name) {
    SpanBuffer buffer{body};
    std::istream stream{&buffer};
    M message{};
    try {
        BoundedInput archive{buffer, stream};
        archive(message);
    } catch (const cereal::Exception& problem) {
        return Error{Errc::Protocol,
                     fmt::format("a control message '{}' of {} bytes does not decode: {}", name,
                                 body.size(), problem.what())};
    }
    if (buffer.left() != 0) {
        return Error{Errc::Protocol, fmt::format("a control message '{}' has {} bytes too many",
                                                 name, buffer.left())};
    }
    return Message{std::move(message)};
}

void check_limits(const Message& message) {
    const auto fits = [](std::size_t size, std::uint32_t limit) {
        PACE_CHECK(size <= limit, "a control message over its own limits");
    };
    const auto edges_fit = [&fits](const std::vector<EdgeWire>& edges) {
        fits(edges.size(), kEdgesMax);
        for (const EdgeWire& edge : edges) fits(edge.name.size(), kNameBytesMax);
    };
    if (const auto* assign = std::get_if<Assign>(&message)) {
        fits(assign->name.size(), kNameBytesMax);
        fits(assign->payload.size(), kAssignBytesMax);
        fits(assign->actors.size(), kActorsMax);
    } else if (const auto* hello = std::get_if<Hello>(&message)) {
        fits(hello->role.size(), kNameBytesMax);
        fits(hello->equality_class.size(), kNameBytesMax);
        fits(hello->model_fingerprint.size(), kNameBytesMax);
    } else if (const auto* wire = std::get_if<Wire>(&message)) {
        edges_fit(wire->edges);
    } else if (const auto* begin = std::get_if<Begin>(&message)) {
        fits(begin->payload.size(), kBeginBytesMax);
    } else if (const auto* failed = std::get_if<Failed>(&message)) {
        fits(failed->text.size(), kTextBytesMax);
    } else if (const auto* unwire = std::get_if<Unwire>(&message)) {
        fits(unwire->peers.size(), kActorsMax);
    } else if (const auto* rewire = std::get_if<Rewire>(&message)) {
        fits(rewire->peers.size(), kActorsMax);
        edges_fit(rewire->edges);
    } else if (const auto* fault = std::get_if<EdgeFault>(&message)) {
        fits(fault->text.size(), kTextBytesMax);
    } else if (const auto* offer = std::get_if<EdgeOffer>(&message)) {
        fits(offer->bytes.size(), kOfferBytesMax);
    }
}

}  // namespace

Type type_of(const Message& message) {
    static_assert(std::is_same_v<std::variant_alternative_t<0, Message>, Assign>);
    static_assert(std::is_same_v<std::variant_alternative_t<6, Message>, Shutdown>);
    static_assert(std::is_same_v<std::variant_alternative_t<10, Message>, EdgeFault>);
    static_assert(std::is_same_v<std::variant_alternative_t<11, Message>, EdgeOffer>);
    static_assert(std::is_same_v<std::variant_alternative_t<12, Message>, BeginWanted>);
    static_assert(std::is_same_v<std::variant_alternative_t<13, Message>, PagesWanted>);
    static_assert(std::variant_size_v<Message> == 14, "types are numbered in the order of Message");
    return static_cast<Type>(message.index() + 1);
}

const char* name_of(Type type) {
    switch (type) {
        case Type::Assign:
            return "assign";
        case Type::Hello:
            return "hello";
        case Type::Wire:
            return "wire";
        case Type::Ready:
            return "ready";
        case Type::Begin:
            return "begin";
        case Type::Failed:
            return "failed";
        case Type::Shutdown:
            return "shutdown";
        case Type::Unwire:
            return "unwire";
        case Type::Rewire:
            return "rewire";
        case Type::Rewired:
            return "rewired";
        case Type::EdgeFault:
            return "edge-fault";
        case Type::EdgeOffer:
            return "edge-offer";
        case Type::BeginWanted:
            return "begin-wanted";
        case Type::PagesWanted:
            return "pages-wanted";
    }
    return "unknown";
}

std::uint32_t body_bytes_max(std::uint16_t type) {
    switch (static_cast<Type>(type)) {
        case Type::Assign:
            return roomy(kNameBytesMax + kAssignBytesMax + 2 * kActorsMax);
        case Type::Hello:
            return roomy(3 * kNameBytesMax);
        case Type::Wire:
            return roomy(kEdgesBytesMax);
        case Type::Ready:
            return roomy(0);
        case Type::Begin:
            return roomy(kBeginBytesMax);
        case Type::Failed:
            return roomy(kTextBytesMax);
        case Type::Shutdown:
        case Type::Rewired:
        case Type::BeginWanted:
        case Type::PagesWanted:
            return roomy(0);
        case Type::Unwire:
            return roomy(2 * kActorsMax);
        case Type::Rewire:
            return roomy(2 * kActorsMax + kEdgesBytesMax);
        case Type::EdgeFault:
            return roomy(kTextBytesMax);
        case Type::EdgeOffer:
            return roomy(kOfferBytesMax);
    }
    return 0;
}

std::vector<std::byte> encode(const Message& message) {
    check_limits(message);
    std::vector<std::byte> bytes;
    VectorBuffer buffer{bytes};
    std::ostream stream{&buffer};
    BoundedOutput archive{stream};
    std::visit([&archive](const auto& body) { archive(body); }, message);
    return bytes;
}

Result<Message> decode(std::uint16_t type, std::span<const std::byte> body) {
    const std::uint32_t limit = body_bytes_max(type);
    if (limit == 0) {
        return Error{Errc::Protocol, fmt::format("a control message of unknown type {}", type)};
    }
    const char* name = name_of(static_cast<Type>(type));
    if (body.size() > limit) {
        return Error{Errc::Protocol,
                     fmt::format("a control message '{}' of {} bytes; at most {} are allowed", name,
                                 body.size(), limit)};
    }
    switch (static_cast<Type>(type)) {
        case Type::Assign:
            return decode_as<Assign>(body, name);
        case Type::Hello:
            return decode_as<Hello>(body, name);
        case Type::Wire:
            return decode_as<Wire>(body, name);
        case Type::Ready:
            return decode_as<Ready>(body, name);
        case Type::Begin:
            return decode_as<Begin>(body, name);
        case Type::Failed:
            return decode_as<Failed>(body, name);
        case Type::Shutdown:
            return decode_as<Shutdown>(body, name);
        case Type::Unwire:
            return decode_as<Unwire>(body, name);
        case Type::Rewire:
            return decode_as<Rewire>(body, name);
        case Type::Rewired:
            return decode_as<Rewired>(body, name);
        case Type::EdgeFault:
            return decode_as<EdgeFault>(body, name);
        case Type::EdgeOffer:
            return decode_as<EdgeOffer>(body, name);
        case Type::BeginWanted:
            return decode_as<BeginWanted>(body, name);
        case Type::PagesWanted:
            return decode_as<PagesWanted>(body, name);
    }
    return Error{Errc::Protocol, fmt::format("a control message of unknown type {}", type)};
}

}  // namespace paceline::control
