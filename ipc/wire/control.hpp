// Control messages: between the conductor and the stages, not used per token.
//
//     conductor                         stage
//        | ---- Assign ------------------> |  ids, and what to load (opaque to the runtime)
//        |                                 |  loads; this takes seconds
//        | <--- Hello -------------------- |  equality class, fingerprint, sizes
//        | ---- Wire (+ memory files) ---> |  the stage's doorbell and channels
//        | <--- Ready -------------------- |
//        | ---- Begin -------------------> |  one request: prompt and parameters (opaque)
//        | <--- BeginWanted -------------- |  committed tokens were missed: the Begin is sent again
//        | ---- Unwire ------------------> |  a peer is lost: its channels are closed
//        | ---- Rewire (+ memory files) -> |  channels to the peer's next incarnation
//        | <--- Rewired ------------------ |  they are attached
//        | <--- PagesWanted -------------- |  no KV page is free for a running request's text
//        | <--- EdgeOffer (+ descriptors)  |  of a device edge's consumer: how to open it
//        | ---- EdgeOffer (+ descriptors)> |  the same, to the producer, if both epochs are current
//        | <--- EdgeFault ---------------- |  a peer broke a channel's layout and is to be replaced
//        | <--- Failed ------------------- |  the reason why the stage exits
//        | ---- Shutdown ----------------> |  the stage ends in order
//
// Encoded with cereal's portable binary archive. Decoding bounds every container twice: by the
// limit of its field, and by the bytes that are left, so a length beyond the received bytes
// allocates nothing. A body with bytes left over is refused.
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
inline constexpr std::uint32_t kBeginBytesMax = 22U << 20;  // token ids, parameters, a grammar
inline constexpr std::uint32_t kOfferBytesMax = 4096;       // of a link's offer
inline constexpr std::uint32_t kOfferFilesMax = 16;         // descriptors sent with it
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
    PagesWanted = 14,
};

/// conductor -> stage, once, after the process has started. Sent with two memory files: the
/// telemetry block (stage_telemetry.hpp) and the cancel board (cancel_board.hpp).
struct Assign {
    StageId stage;
    Epoch epoch;
    std::vector<StageId> actors;     // the addresses in this process; the first is `stage`
    std::string name;                // for messages and logs, e.g. "segment-1"
    std::vector<std::byte> payload;  // role and files; decoded by the actors alone
};

/// stage -> conductor, after loading. The conductor compares the fields that must agree between
/// stages for equality; it does not interpret them.
struct Hello {
    std::uint32_t wire_version = 0;
    std::uint32_t pid = 0;
    std::string role;               // "draft", "segment"
    std::string equality_class;     // results are bit-equal within one class
    std::string model_fingerprint;  // empty: the stage holds no part of the target
    std::uint32_t vocab_size = 0;
    std::uint32_t dim = 0;
    std::uint32_t first_layer = 0;  // the segment holds layers [first, last); both 0 for others
    std::uint32_t last_layer = 0;
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t workspace_bytes = 0;
    std::uint64_t pinned_bytes = 0;
};

/// One end of a channel. File numbers index the descriptors sent with the message; several edges
/// may use the same file.
struct EdgeWire {
    StageId self;  // the actor of this process
    StageId peer;
    Epoch peer_epoch;
    bool outgoing = false;  // `self` is the producer
    std::uint32_t ring_file = kNoFile;
    std::uint32_t pool_file = kNoFile;      // kNoFile: no tensors travel on this edge
    std::uint32_t bell_file = kNoFile;      // the peer's doorbell
    Transport transport = Transport::Host;  // how its tensors travel
    std::string name = {};  // of an edge with a link, for messages: "early -> final"
};

/// conductor -> stage, with the memory files as descriptors.
struct Wire {
    std::uint32_t bell_file = kNoFile;  // the stage's own doorbell
    std::uint32_t spin_micros = 0;      // time to spin before sleeping; 0: none
    std::uint32_t hang_limit_ms = 0;    // a job or handler that takes longer hangs; 0: no limit
    std::uint32_t link_limit_ms = 0;    // time for a link to open; 0: no limit
    std::vector<EdgeWire> edges;        // one without a ring: the peer is lost now
};

struct Ready {
    Epoch epoch;
};

/// conductor -> stage: a request starts. Sent last to the stages that act first, so it was sent to
/// every stage before one can act on it.
struct Begin {
    RequestId request;
    Attempt attempt;
    std::vector<std::byte> payload;  // token ids and parameters; decoded by the actors alone
};

/// stage -> conductor: the stage missed committed tokens of this attempt and requests its Begin
/// again, as soon as prompt and committed tokens are `position` tokens long.
struct BeginWanted {
    RequestId request;
    Attempt attempt;
    Position position = 0;
};

/// first segment -> conductor: the text of this attempt cannot grow because no KV page is free.
/// `running`: requests that have pages there and are not over; more than the conductor knows of
/// means that a Stop is still on its way, whose pages may be enough.
struct PagesWanted {
    RequestId request;
    Attempt attempt;
    std::uint32_t running = 0;
};

/// stage -> conductor: the stage exits because of this error.
struct Failed {
    std::uint8_t code = 0;  // an Errc
    std::string text;
};

struct Shutdown {};

/// conductor -> stage: the process of these actors is lost. Messages in flight from or to them are
/// lost; messages sent to them from now on are dropped.
struct Unwire {
    std::vector<StageId> peers;
    Epoch peer_epoch;
};

/// conductor -> stage: channels to the next incarnation of the process of these actors, with the
/// memory files as descriptors. They replace the earlier channels.
struct Rewire {
    std::vector<StageId> peers;
    Epoch peer_epoch;
    std::vector<EdgeWire> edges;
};

/// stage -> conductor: the channels of the Rewire for this incarnation are attached.
struct Rewired {
    StageId peer;  // the first of Rewire::peers
    Epoch peer_epoch;
};

/// stage -> conductor: the peer broke a channel's layout. The reporting stage has closed its end.
struct EdgeFault {
    StageId peer;
    Epoch peer_epoch;
    std::string text;
};

/// consumer's process -> conductor -> producer's process: how the producer opens its end of a link
/// (tensor_link.hpp), with the descriptors of the offer. Valid for these two incarnations only.
struct EdgeOffer {
    StageId from;      // the producer
    Epoch from_epoch;  // of its process
    StageId to;        // the consumer
    Epoch to_epoch;
    std::vector<std::byte> bytes;  // decoded by the device's code alone
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
                             BeginWanted,
                             PagesWanted>;

[[nodiscard]] Type type_of(const Message& message);
[[nodiscard]] const char* name_of(Type type);
/// The longest body of this type, in bytes; 0 for an unknown type.
[[nodiscard]] std::uint32_t body_bytes_max(std::uint16_t type);

/// The body without frame header. Precondition: no container is over its limit.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// Errc::Protocol on an unknown type, an over-long container, missing or trailing bytes.
[[nodiscard]] Result<Message> decode(std::uint16_t type, std::span<const std::byte> body);

}  // namespace paceline::control
