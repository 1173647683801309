// Cold messages: what the conductor and the stages say to each other outside the token path.
//
//     conductor                         stage
//        | ---- Assign ------------------> |  who you are, what to load (opaque to the runtime)
//        |                                 |  loads; this takes seconds
//        | <--- Hello -------------------- |  what I am: class, fingerprint, sizes
//        | ---- Wire (+ memory files) ---> |  your doorbell and your channels
//        | <--- Ready -------------------- |
//        | ---- Begin -------------------> |  one request: prompt and parameters (opaque)
//        | <--- BeginWanted --------------- |  I missed what was committed: that Begin once more
//        | ---- Unwire ------------------> |  that peer is lost: its channels are closed
//        | ---- Rewire (+ memory files) -> |  its next incarnation: new channels
//        | <--- Rewired ------------------ |  attached
//        | <--- EdgeOffer (+ descriptors) - |  my end of a device edge: how its producer opens the other
//        | ---- EdgeOffer (+ descriptors) > |  the same, to the producer, if both are still current
//        | <--- EdgeFault ---------------- |  that peer broke a channel's layout: replace it
//        | <--- Failed ------------------- |  I cannot go on, and why; the stage exits
//        | ---- Shutdown ----------------> |  finish in good order
//
// Encoded with cereal's portable binary archive. Every container is bounded twice when it is
// read: by the limit beside its field here, and by the bytes that are left (a length that claims
// more than was received allocates nothing). Decoding must consume every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline::control {

inline constexpr std::uint32_t kNameBytesMax = 256;         // names, classes, fingerprints
inline constexpr std::uint32_t kTextBytesMax = 16 * 1024;   // error texts
inline constexpr std::uint32_t kEdgesMax = 256;             // channels of one process
inline constexpr std::uint32_t kAssignBytesMax = 1U << 20;  // configuration of one stage
inline constexpr std::uint32_t kBeginBytesMax = 16U << 20;  // token ids and parameters
inline constexpr std::uint32_t kOfferBytesMax = 4096;       // of a link's offer
inline constexpr std::uint32_t kOfferFilesMax = 16;         // descriptors that come with it
inline constexpr std::uint32_t kActorsMax = 72;             // actors that share a process
inline constexpr std::uint32_t kNoFile = 0xffffffffU;
static_assert(kSegmentsMax + 4 <= kActorsMax, "a whole pipeline may share one process");
static_assert(2 * (kSegmentsMax + 4) <= kEdgesMax, "one actor may have channels with all others");

enum class Type : std::uint16_t {
    Assign = 1,
    Hello = 2,
    Wire = 3,
    Ready = 4,
    Begin = 5,
    Failed = 6,
    Shutdown = 7,
    Unwire = 8,
    Rewire = 9,
    Rewired = 10,
    EdgeFault = 11,
    EdgeOffer = 12,
    BeginWanted = 13,
};

/// conductor -> stage, once, right after the process started. Two memory files come along: the
/// process's page (stage_telemetry.hpp) and the cancel board (cancel_board.hpp).
struct Assign {
    StageId stage;
    Epoch epoch;
    std::vector<StageId> actors;     // the addresses in this process; the first is `stage`
    std::string name;                // for messages and logs, e.g. "segment-1"
    std::vector<std::byte> payload;  // what to be and to load; only the actors understand it
};

/// stage -> conductor, once it has loaded. What must agree between stages is compared by the
/// conductor as plain equality; it knows nothing of models.
struct Hello {
    std::uint32_t wire_version = 0;
    std::uint32_t pid = 0;
    std::string role;               // "draft", "segment"
    std::string equality_class;     // equal bits are promised within one class
    std::string model_fingerprint;  // empty: this stage holds no part of the target
    std::uint32_t vocab_size = 0;
    std::uint32_t dim = 0;
    std::uint32_t first_layer = 0;  // the segment holds layers [first, last); both 0 for others
    std::uint32_t last_layer = 0;
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t workspace_bytes = 0;
    std::uint64_t pinned_bytes = 0;
};

/// One channel as one of its two ends sees it. File numbers index the descriptors that travel
/// with the Wire message; several edges may name the same file.
struct EdgeWire {
    StageId self;  // which actor of this process
    StageId peer;
    Epoch peer_epoch;
    bool outgoing = false;  // this stage is the producer
    std::uint32_t ring_file = kNoFile;
    std::uint32_t pool_file = kNoFile;      // kNoFile: no tensors travel on this edge
    std::uint32_t bell_file = kNoFile;      // the peer's doorbell
    Transport transport = Transport::Host;  // how its tensors travel
    std::string name = {};                  // "early -> final", for messages; of edges with a link
};

/// conductor -> stage, with the memory files as descriptors.
struct Wire {
    std::uint32_t bell_file = kNoFile;  // this stage's own doorbell
    std::uint32_t spin_micros = 0;      // how long to spin before sleeping; 0 = never spin
    std::uint32_t hang_limit_ms = 0;    // what takes longer than this hangs; 0: not limited
    std::uint32_t link_limit_ms = 0;    // a link must be open by then; 0: not limited
    std::vector<EdgeWire> edges;        // without a ring: the peer is lost at the moment
};

struct Ready {
    Epoch epoch;
};

/// conductor -> stage: one request starts. Sent to every stage before any stage can act on it:
/// those that act first get theirs last.
struct Begin {
    RequestId request;
    Attempt attempt;
    std::vector<std::byte> payload;  // token ids and parameters; only the actors understand it
};

/// stage -> conductor: the stage has missed committed tokens of this attempt and wants its Begin once
/// more, as soon as prompt and committed tokens are `position` tokens long.
struct BeginWanted {
    RequestId request;
    Attempt attempt;
    Position position = 0;
};

/// stage -> conductor: the stage cannot go on and exits.
struct Failed {
    std::uint8_t code = 0;  // an Errc
    std::string text;
};

struct Shutdown {};

/// conductor -> stage: the process of these actors is lost. What was on its way from or to them
/// is gone; what is sent to them from now on changes nothing.
struct Unwire {
    std::vector<StageId> peers;
    Epoch peer_epoch;
};

/// conductor -> stage: channels to the next incarnation of the process of these actors, with the
/// memory files as descriptors. Replaces what there was.
struct Rewire {
    std::vector<StageId> peers;
    Epoch peer_epoch;
    std::vector<EdgeWire> edges;
};

/// stage -> conductor: the Rewire for this incarnation is done.
struct Rewired {
    StageId peer;  // the first of Rewire::peers
    Epoch peer_epoch;
};

/// stage -> conductor: the peer broke a channel's layout. The channel is closed at this end.
struct EdgeFault {
    StageId peer;
    Epoch peer_epoch;
    std::string text;
};

/// consumer's process -> conductor -> producer's process: how the producer opens its end of a link
/// (tensor_link.hpp), with the descriptors of the offer. Meant for these two incarnations alone.
struct EdgeOffer {
    StageId from;      // the producer
    Epoch from_epoch;  // of its process
    StageId to;        // the consumer
    Epoch to_epoch;
    std::vector<std::byte> bytes;  // only the device's code understands them
};

using Message = std::variant<Assign,
                             Hello,
                             Wire,
                             Ready,
                             Begin,
                             Failed,
                             Shutdown,
                             Unwire,
                             Rewire,
                             Rewired,
                             EdgeFault,
                             EdgeOffer,
                             BeginWanted>;

[[nodiscard]] Type type_of(const Message& message);
[[nodiscard]] const char* name_of(Type type);
/// The most bytes a body of this type may have; 0 for a type that does not exist.
[[nodiscard]] std::uint32_t body_bytes_max(std::uint16_t type);

/// The body alone, without frame header. A container over its limit is a bug of the sender.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// Errc::Protocol on an unknown type, an over-long container, missing or trailing bytes.
[[nodiscard]] Result<Message> decode(std::uint16_t type, std::span<const std::byte> body);

}  // namespace paceline::control
