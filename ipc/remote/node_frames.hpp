// Frames between the conductor's machine and the agents of other machines (runtime/cluster).
//
//     agent                                conductor
//       | ---- Hello ----------------------> |  build, node, devices, models
//       | <--- Hello ----------------------- |  of the conductor; or Refused, and the end
//       | ---- LeaseAsk -------------------> |  every 0.5 s
//       | <--- LeaseGrant ------------------ |  with the node's epoch
//       | <--- StartStage ------------------ |  one incarnation of one process
//       | ---- StageReport ----------------> |  ended, silent, hung, stopped, a line of its log
//       | <--- MakeMemory, DropMemory ------ |  rings, pools, doorbells: never descriptors
//       | <--- StageControl ---------------> |  a control message to or from a stage
//       | <--- EdgeFrame, TensorPart ------> |  a ring's frame; the tensor that it announces
//       | <--- EdgeRoom, TensorFree -------> |  frames taken from the ring; a slot is free
//       | <--- BoardLine ------------------> |  cancelled attempts, committed tokens
//       | ---- Counters -------------------> |  several times a second, and when asked:
//       | <--- CountersAsk ----------------- |  an answer is over
//       | <--- Kill, Shutdown, BulkMark ---- |
//
//   0       4         6      8     12      16           24    32
//   +-------+---------+------+-----+-------+------------+-----+------+
//   | magic | version | kind | len | epoch | build u64  | 0   | body |
//   +-------+---------+------+-----+-------+------------+-----+------+
//
// Little-endian on every machine. `epoch` is the node epoch under which it was sent; the receiver
// of an older one drops the frame (runtime/cluster does). `build` is the hash of the build's name;
// only a Hello may have another one, so that its refusal can tell both names.
// Two connections join each pair (Channel): Bulk takes long Begins, so none of them delays a token;
// a kind or a length that the connection does not allow is refused.
//
// Bodies are cereal's portable archives with bounded containers, as in control.hpp. EdgeFrame and
// TensorPart end with their bytes, which are borrowed: a decoded frame refers to the received bytes
// and is valid during its callback. Memory is taken as bytes arrive, not as they are promised, and
// never more than the longest frame of the connection (frame_reader.hpp).
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/ring_layout.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/control_socket.hpp"

namespace paceline::remote {

inline constexpr std::uint32_t kNodeMagic = 0x4e434150U;  // "PACN"
inline constexpr std::uint16_t kNodeVersion = 4;          // of these layouts
inline constexpr std::size_t kNodeHeaderBytes = 32;

inline constexpr std::uint32_t kNameBytesMax = control::kNameBytesMax;
inline constexpr std::uint32_t kTextBytesMax = control::kTextBytesMax;
inline constexpr std::uint32_t kDevicesMax = 64;           // of one machine
inline constexpr std::uint32_t kModelsMax = 256;           // below an agent's --models folder
inline constexpr std::uint32_t kCoresMax = 1024;           // that a stage is pinned to
inline constexpr std::uint32_t kStagesMax = 72;            // of one machine
inline constexpr std::uint32_t kMemoriesMax = 800;         // made by one frame: kControlFilesMax
inline constexpr std::uint32_t kBlockBytesMax = 1024;      // of a telemetry block without its trace
inline constexpr std::uint32_t kTraceBytesMax = 256 * 56;  // of a stage's new trace events
inline constexpr std::uint32_t kPartBytesMax = 1U << 18;   // of a tensor or a telemetry block
inline constexpr std::uint32_t kMainBeginBytesMax = 64U << 10;  // of a Begin on Main
static_assert(kMemoriesMax == kControlFilesMax);

/// Which of the two connections.
enum class Channel : std::uint8_t { Main = 0, Bulk = 1 };

/// The name of a build, and the hash of it that every frame carries.
struct Build {
    std::string name;
    std::uint64_t hash = 0;
};
[[nodiscard]] Build build_of(std::string name);
/// Of this program: version, compiler, build type, and the versions of messages and frames.
[[nodiscard]] const Build& this_build();

enum class Kind : std::uint16_t {
    Hello = 1,
    Refused = 2,
    LeaseAsk = 3,
    LeaseGrant = 4,
    StartStage = 5,
    StageReport = 6,
    MakeMemory = 7,
    DropMemory = 8,
    StageControl = 9,
    EdgeFrame = 10,
    TensorPart = 11,
    EdgeRoom = 12,
    TensorFree = 13,
    BoardLine = 14,
    Counters = 15,
    Kill = 16,
    Shutdown = 17,
    BulkMark = 18,
    CountersAsk = 19,
};

/// One incarnation of a stage process.
struct StageKey {
    StageId stage;
    Epoch epoch;
    friend auto operator<=>(const StageKey&, const StageKey&) = default;
};

struct DeviceFound {
    std::string name;   // "cpu", "cuda:0"
    std::string model;  // "NVIDIA H100 80GB HBM3"
    std::uint64_t memory_bytes = 0;
};
struct ModelFound {
    std::string path;         // below the --models folder, without it
    std::string fingerprint;  // empty: not looked at yet
    std::uint64_t bytes = 0;
};

/// Both ways, first on each connection. The receiver has checked version and build.
struct Hello {
    std::string build;    // Build::name
    std::string node;     // name of the machine, for messages: "b"
    std::string machine;  // differs between machines: boot id and host name
    Channel channel = Channel::Main;
    std::uint64_t session = 0;  // random, of the sender's process; the agent's Bulk repeats it
    std::uint32_t cores = 0;
    std::uint64_t memory_bytes = 0;
    std::uint32_t lease_ms = 0;  // of the conductor: the agent's first lease
    std::vector<DeviceFound> devices;
    std::vector<ModelFound> models;
};

/// Instead of an answer: the sender closes the connection for this reason.
struct Refused {
    std::string reason;
    bool passes = false;  // of the conductor: the reason may end with a lease, try again
};

/// agent -> conductor. Times are of the sender's CLOCK_MONOTONIC and mean nothing elsewhere.
struct LeaseAsk {
    std::uint64_t number = 0;  // counts up
    std::uint64_t asked_ns = 0;
};
/// conductor -> agent: the stages may run until `lease_ms` after `asked_ns`.
struct LeaseGrant {
    std::uint64_t number = 0;
    std::uint64_t asked_ns = 0;    // as it came
    std::uint64_t granted_ns = 0;  // the conductor's clock: aligns traces
    Epoch node_epoch;
    std::uint32_t lease_ms = 0;
};

/// conductor -> agent: start this process, this program as a stage. Its telemetry block and cancel
/// board are made by the agent; its Assign follows as a StageControl with their ids.
struct StartStage {
    StageKey who;
    std::vector<StageId> actors;
    std::string name;
    std::vector<std::uint32_t> cores;  // empty: not pinned
    std::uint32_t stop_grace_ms = 0;
    std::uint32_t trace_events = 0;
    std::vector<std::byte> spec;  // what more the agent has to know; opaque here
};

/// agent -> conductor: what NodeEvents tells of a local stage.
struct StageReport {
    enum class What : std::uint8_t {
        Started = 0,   // number: its process id on its machine
        Ended = 1,     // reaped; number: 1 ended well, 0 not; text: the exit report
        Silent = 2,    // number: an Errc; text: what is wrong with its control socket
        Hung = 3,      // a passed deadline; text: the sentence about it
        Stopped = 4,   // number: 1 stopped, 0 continued
        Unpinned = 5,  // number: errno of sched_setaffinity
        Line = 6,      // text: a line of its output
        Flushed = 7,   // queued control messages were sent
    };
    static constexpr std::uint8_t kWhatLast = 7;
    StageKey who;
    What what = What::Started;
    std::int64_t number = 0;
    std::string text;
};

/// One piece of memory that stages share. The same id is the same memory, on one machine.
struct MemorySpec {
    enum class Type : std::uint8_t { Doorbell = 0, Ring = 1, Pool = 2, Telemetry = 3, Board = 4 };
    static constexpr std::uint8_t kTypeLast = 4;
    /// Which end of a ring or pool is on another machine: the agent moves its frames.
    enum class Relay : std::uint8_t { None = 0, ProducerAway = 1, ConsumerAway = 2 };
    static constexpr std::uint8_t kRelayLast = 2;
    std::uint64_t id = 0;
    Type type = Type::Doorbell;
    StageKey owner;                  // of a doorbell or telemetry block; a ring's producer
    std::uint32_t slots = 0;         // of a ring or pool; events of a trace
    std::uint32_t urgent_slots = 0;  // of a ring
    std::uint64_t slot_bytes = 0;    // the longest payload of a ring; of a pool's slot
    bool checksums = false;          // of a ring's payloads
    bool elsewhere = false;          // a pool whose slots a link provides
    Relay relay = Relay::None;
    std::uint32_t edge = 0;          // of a relayed ring or pool: the id in its frames
    std::uint64_t partner_bell = 0;  // of a relayed ring: id of the local end's doorbell
    std::string name;
};
/// conductor -> agent, before the first StageControl that names these ids.
struct MakeMemory {
    std::vector<MemorySpec> memories;
};
/// conductor -> agent: no further message names them; edges among them are over.
struct DropMemory {
    std::vector<std::uint64_t> ids;
};

/// Either way: a control message. A Begin longer than kMainBeginBytesMax on Bulk.
struct StageControl {
    StageKey who;  // the stage that it is to or from
    Envelope envelope;
    std::uint16_t type = 0;            // a control::Type
    std::uint32_t limit_ms = 0;        // as NodeAgent::send()
    std::vector<std::uint64_t> files;  // ids of memories, in the order of the message's numbers
    std::vector<std::byte> body;       // control::encode()
};

/// Either way: one frame of a relayed ring. Frames of one edge stay in order.
struct EdgeFrame {
    std::uint32_t edge = 0;
    std::uint16_t kind = 0;  // of the ring's frame
    bool urgent = false;
    std::span<const std::byte> payload;  // borrowed
};
/// Either way: a part of a pool's slot, behind the frame that announces it; offsets ascend.
struct TensorPart {
    std::uint32_t edge = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    std::uint64_t total = 0;           // bytes of the tensor
    std::uint64_t offset = 0;          // offset + bytes.size() <= total, checked
    std::span<const std::byte> bytes;  // borrowed; at most kPartBytesMax
};
/// From the consumer's machine: frames that were put into the local ring and taken since the edge
/// began. The other side sends no more than the ring has slots beyond these.
struct EdgeRoom {
    std::uint32_t edge = 0;
    std::uint64_t taken = 0;
};
/// From the consumer's machine: the slot was released.
struct TensorFree {
    std::uint32_t edge = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
};

/// Either way: an entry of the cancel board. Late or lost ones are allowed.
struct BoardLine {
    RequestId request;
    Attempt attempt;
    bool committed = false;  // false: attempts below `attempt` are cancelled
    Position position = 0;   // true: `token` is committed there
    TokenId token = 0;
};

struct StageCounters {
    StageKey who;
    std::vector<std::byte> block;   // its telemetry block without the trace, as it lies in memory
    std::vector<std::byte> events;  // of its trace, since the last frame; opaque here
};
/// agent -> conductor.
struct Counters {
    std::uint64_t sampled_ns = 0;  // the agent's clock
    std::int64_t ahead_ns = 0;     // what the conductor's clock shows more; 0: not known yet
    std::uint64_t answers = 0;     // this CountersAsk, all before it included; 0: none
    std::vector<StageCounters> stages;
};

/// conductor -> agent: SIGKILL to the stage; its StageReport follows.
struct Kill {
    StageKey who;
};
/// Either way: the sender ends the run in order.
struct Shutdown {
    std::string reason;
};
/// conductor -> agent, on Main: what follows for this stage comes after so many Begins that went to
/// it on Bulk since the connection began.
struct BulkMark {
    StageKey who;
    std::uint64_t begins = 0;
};

/// conductor -> agent: Counters as they are now, with all trace events until now; the last frame of
/// them names the number.
struct CountersAsk {
    std::uint64_t number = 0;  // counts up from 1
};

using Frame = std::variant<Hello,
                           Refused,
                           LeaseAsk,
                           LeaseGrant,
                           StartStage,
                           StageReport,
                           MakeMemory,
                           DropMemory,
                           StageControl,
                           EdgeFrame,
                           TensorPart,
                           EdgeRoom,
                           TensorFree,
                           BoardLine,
                           Counters,
                           Kill,
                           Shutdown,
                           BulkMark,
                           CountersAsk>;

[[nodiscard]] Kind kind_of(const Frame& frame);
[[nodiscard]] const char* name_of(Kind kind);
/// The longest body of this kind on this connection; 0: it is not allowed there.
[[nodiscard]] std::uint32_t body_bytes_max(std::uint16_t kind, Channel channel);

/// Appends header and body. Precondition: the frame keeps its limits and is allowed on `channel`.
void append_frame(std::vector<std::byte>& out,
                  const Frame& frame,
                  Epoch node_epoch,
                  const Build& build,
                  Channel channel);

/// The body of a frame of `kind`. Errc::Protocol names the kind and the field that is wrong.
[[nodiscard]] Result<Frame> decode_body(std::uint16_t kind,
                                        std::span<const std::byte> body,
                                        Channel channel);

}  // namespace paceline::remote
