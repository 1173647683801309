// The fields of every frame (node_frames.hpp), in their order on the wire, for both directions.
//
// One serialize() per frame. An archive that reads knows the name of the field that it is at
// (FieldBuffer), for errors. Included by node_frames.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/remote/node_frames.hpp"
#include "ipc/wire/bounded_archive.hpp"

namespace paceline::remote {

/// Received bytes, and the name of the field that is being read.
class FieldBuffer : public SpanBuffer {
public:
    using SpanBuffer::SpanBuffer;
    const char* field = "";
};

template <class Archive, class Value>
void field(Archive& archive, const char* name, Value&& value) {
    if constexpr (Archive::is_loading::value) {
        // decode_as() makes no other buffer.
        static_cast<FieldBuffer&>(cereal::get_user_data<SpanBuffer>(archive)).field = name;
    } else if constexpr (requires { value.count_max; }) {
        PACE_CHECK(value.items.size() <= value.count_max, "a frame over its own limits");
    }
    archive(std::forward<Value>(value));
}

/// A bool is one byte, 0 or 1.
template <class Archive>
void flag(Archive& archive, const char* name, bool& value) {
    std::uint8_t byte = value ? 1 : 0;
    field(archive, name, byte);
    if constexpr (Archive::is_loading::value) {
        if (byte > 1) throw cereal::Exception("neither 0 nor 1");
        value = byte == 1;
    }
}

/// An enum is one byte, at most `last`.
template <class Archive, class Enum>
void choice(Archive& archive, const char* name, Enum& value, std::uint8_t last) {
    auto byte = static_cast<std::uint8_t>(value);
    field(archive, name, byte);
    if constexpr (Archive::is_loading::value) {
        if (byte > last) throw cereal::Exception("a value that does not exist");
        value = static_cast<Enum>(byte);
    }
}

// Least bytes of an item on the wire.
inline constexpr std::uint32_t kDeviceBytesMin = 4 + 4 + 8;
inline constexpr std::uint32_t kModelBytesMin = 4 + 4 + 8;
inline constexpr std::uint32_t kStageKeyBytes = 2 + 4;
inline constexpr std::uint32_t kMemoryBytesMin =
    8 + 1 + kStageKeyBytes + 4 + 4 + 8 + 1 + 1 + 1 + 4 + 8 + 4;
inline constexpr std::uint32_t kStageCountersBytesMin = kStageKeyBytes + 4 + 4;

template <class Archive>
void serialize(Archive& a, StageKey& key) {
    field(a, "stage", key.stage);
    field(a, "stage epoch", key.epoch);
}

template <class Archive>
void serialize(Archive& a, DeviceFound& device) {
    field(a, "device name", bounded(device.name, kNameBytesMax));
    field(a, "device model", bounded(device.model, kNameBytesMax));
    field(a, "device memory", device.memory_bytes);
}

template <class Archive>
void serialize(Archive& a, ModelFound& model) {
    field(a, "model path", bounded(model.path, kNameBytesMax));
    field(a, "model fingerprint", bounded(model.fingerprint, kNameBytesMax));
    field(a, "model bytes", model.bytes);
}

template <class Archive>
void serialize(Archive& a, Hello& hello) {
    field(a, "build", bounded(hello.build, kNameBytesMax));
    field(a, "node", bounded(hello.node, kNameBytesMax));
    field(a, "machine", bounded(hello.machine, kNameBytesMax));
    choice(a, "channel", hello.channel, static_cast<std::uint8_t>(Channel::Bulk));
    field(a, "session", hello.session);
    field(a, "cores", hello.cores);
    field(a, "memory", hello.memory_bytes);
    field(a, "lease", hello.lease_ms);
    field(a, "devices", bounded(hello.devices, kDevicesMax, kDeviceBytesMin));
    field(a, "models", bounded(hello.models, kModelsMax, kModelBytesMin));
}

template <class Archive>
void serialize(Archive& a, Refused& refused) {
    field(a, "reason", bounded(refused.reason, kTextBytesMax));
    flag(a, "passes", refused.passes);
}

template <class Archive>
void serialize(Archive& a, LeaseAsk& ask) {
    field(a, "number", ask.number);
    field(a, "asked", ask.asked_ns);
}

template <class Archive>
void serialize(Archive& a, LeaseGrant& grant) {
    field(a, "number", grant.number);
    field(a, "asked", grant.asked_ns);
    field(a, "granted", grant.granted_ns);
    field(a, "node epoch", grant.node_epoch);
    field(a, "lease", grant.lease_ms);
}

template <class Archive>
void serialize(Archive& a, StartStage& start) {
    field(a, "who", start.who);
    field(a, "actors", bounded(start.actors, control::kActorsMax, 2));
    field(a, "name", bounded(start.name, kNameBytesMax));
    field(a, "cores", bounded(start.cores, kCoresMax, 4));
    field(a, "stop grace", start.stop_grace_ms);
    field(a, "trace events", start.trace_events);
    field(a, "spec", bounded(start.spec, control::kAssignBytesMax));
}

template <class Archive>
void serialize(Archive& a, StageReport& report) {
    field(a, "who", report.who);
    choice(a, "what", report.what, StageReport::kWhatLast);
    field(a, "number", report.number);
    field(a, "text", bounded(report.text, kTextBytesMax));
}

template <class Archive>
void serialize(Archive& a, MemorySpec& memory) {
    field(a, "memory id", memory.id);
    choice(a, "memory type", memory.type, MemorySpec::kTypeLast);
    field(a, "memory owner", memory.owner);
    field(a, "slots", memory.slots);
    field(a, "urgent slots", memory.urgent_slots);
    field(a, "slot bytes", memory.slot_bytes);
    flag(a, "checksums", memory.checksums);
    flag(a, "elsewhere", memory.elsewhere);
    choice(a, "relay", memory.relay, MemorySpec::kRelayLast);
    field(a, "edge", memory.edge);
    field(a, "partner bell", memory.partner_bell);
    field(a, "memory name", bounded(memory.name, kNameBytesMax));
}

template <class Archive>
void serialize(Archive& a, MakeMemory& make) {
    field(a, "memories", bounded(make.memories, kMemoriesMax, kMemoryBytesMin));
}

template <class Archive>
void serialize(Archive& a, DropMemory& drop) {
    field(a, "ids", bounded(drop.ids, kMemoriesMax, 8));
}

template <class Archive>
void serialize(Archive& a, StageControl& message) {
    field(a, "who", message.who);
    field(a, "from", message.envelope.from);
    field(a, "to", message.envelope.to);
    field(a, "type", message.type);
    const std::uint32_t limit = control::body_bytes_max(message.type);
    if (Archive::is_loading::value && limit == 0) {
        throw cereal::Exception("a control message of unknown type");
    }
    field(a, "limit", message.limit_ms);
    field(a, "files", bounded(message.files, kMemoriesMax, 8));
    field(a, "body", bounded(message.body, limit));
}

template <class Archive>
void serialize(Archive& a, EdgeFrame& frame) {
    field(a, "edge", frame.edge);
    field(a, "kind", frame.kind);
    flag(a, "urgent", frame.urgent);
}

template <class Archive>
void serialize(Archive& a, TensorPart& part) {
    field(a, "edge", part.edge);
    field(a, "slot", part.slot);
    field(a, "generation", part.generation);
    field(a, "total", part.total);
    field(a, "offset", part.offset);
}

template <class Archive>
void serialize(Archive& a, EdgeRoom& room) {
    field(a, "edge", room.edge);
    field(a, "taken", room.taken);
}

template <class Archive>
void serialize(Archive& a, TensorFree& free) {
    field(a, "edge", free.edge);
    field(a, "slot", free.slot);
    field(a, "generation", free.generation);
}

template <class Archive>
void serialize(Archive& a, BoardLine& line) {
    field(a, "request", line.request);
    field(a, "attempt", line.attempt);
    flag(a, "committed", line.committed);
    field(a, "position", line.position);
    field(a, "token", line.token);
}

template <class Archive>
void serialize(Archive& a, StageCounters& stage) {
    field(a, "who", stage.who);
    field(a, "block", bounded(stage.block, kBlockBytesMax));
    field(a, "events", bounded(stage.events, kTraceBytesMax));
}

template <class Archive>
void serialize(Archive& a, Counters& counters) {
    field(a, "sampled", counters.sampled_ns);
    field(a, "ahead", counters.ahead_ns);
    field(a, "answers", counters.answers);
    field(a, "stages", bounded(counters.stages, kStagesMax, kStageCountersBytesMin));
}

template <class Archive>
void serialize(Archive& a, CountersAsk& ask) {
    field(a, "number", ask.number);
}

template <class Archive>
void serialize(Archive& a, Kill& kill) {
    field(a, "who", kill.who);
}

template <class Archive>
void serialize(Archive& a, Shutdown& shutdown) {
    field(a, "reason", bounded(shutdown.reason, kTextBytesMax));
}

template <class Archive>
void serialize(Archive& a, BulkMark& mark) {
    field(a, "who", mark.who);
    field(a, "begins", mark.begins);
}

// ---- bytes behind the fields, and rules between fields ----

/// The last field of a frame that ends with borrowed bytes.
template <class Bytes>
struct Borrowed {
    const char* name;
    Bytes& bytes;  // of the frame
    std::uint32_t bytes_max;
};
template <class M>
requires std::is_same_v<std::remove_const_t<M>, EdgeFrame>
auto borrowed_field(M& frame) {
    return Borrowed<decltype((frame.payload))>{"payload", frame.payload, kFramePayloadMax};
}
template <class M>
requires std::is_same_v<std::remove_const_t<M>, TensorPart>
auto borrowed_field(M& part) {
    return Borrowed<decltype((part.bytes))>{"bytes", part.bytes, kPartBytesMax};
}

/// What is wrong between the fields of a frame, or nullptr.
template <class M>
const char* contradiction([[maybe_unused]] const M& frame) {
    if constexpr (requires { frame.offset; }) {
        if (frame.total > kPoolSlotBytesMax) return "field 'total' is over the limit of a slot";
        if (frame.offset > frame.total || frame.bytes.size() > frame.total - frame.offset) {
            return "field 'bytes' ends behind 'total'";
        }
    }
    return nullptr;
}

}  // namespace paceline::remote
