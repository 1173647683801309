// Every hot message, in the order in which a token branch meets them.
//
// Plain structs of fixed layout: they are copied into ring frames (spsc_ring.hpp) as they are. Only
// a Batch's frame has the length of what it carries (batch_frame.hpp).
// All say which request and attempt they belong to (a Batch for each of its parts); what is of an
// old attempt changes nothing. Cold messages (configuration, prompt, hello, statistics) are in
// control.hpp. What a peer claims (counts, indices, positions) is checked before use
// (actors/protocol/message_checks.hpp).
//
//     draft --Proposal--> first segment --Batch--> exit segment --Batch--> last segment
//       | ^                    ^ ^                   |                       |
//       | |                    | +----- Proposal ----+ (its own next token)  |
//       | +------ Proposal (the exit's candidates) --+                       |
//       v                      |                                             |
//     correct ---- Proposal ---+        Verdict: from the last segment to everyone
//
//     draft, correct --Draw--> first segment: candidates that were drawn, and from what
//
// A Batch announces its own hidden states; any other tensor travels with a TensorNote.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/finish_reason.hpp"

namespace paceline::msg {

// Of these layouts, of control.cpp's and of what an Assign carries.
inline constexpr std::uint32_t kWireVersion = 9;
inline constexpr std::uint32_t kNoParent = 0xffffffffU;
inline constexpr std::uint32_t kNoTensor = 0xffffffffU;

enum class Kind : std::uint16_t {
    Proposal = 1,
    Batch = 2,
    Verdict = 3,
    Stop = 4,
    TensorNote = 5,
    Draw = 6,
};

struct Route {
    RequestId request;
    Attempt attempt;
    Epoch epoch;  // of the sending stage
};

/// The proposer of a candidate: for figures, and for whoever grows the tree further.
enum class Origin : std::uint16_t {
    Trunk,     // the draft's first choice after its parent
    RunnerUp,  // another choice of the draft
    Exit,      // proposed by an early exit of the target
    Lookup,    // stood there before in the text
    Heads,     // heads of the last layer that look several tokens ahead
};
inline constexpr std::uint16_t kOrigins = 5;

/// One candidate in a proposal's tree.
struct ProposedNode {
    TokenId token;
    std::int16_t parent;  // index of an earlier node of the proposal, or kBelowRoot
    Origin origin;
    float log_prob;  // of this token after its path, as the proposer believes; <= 0
};
inline constexpr std::int16_t kBelowRoot = -1;

enum class ProposalState : std::uint32_t {
    Growing,   // more may follow for this root
    Halfway,   // lockstep: the draft's first gamma1 steps are done
    Complete,  // all that will be said about this root, unless an exit says something new
};

/// Candidates below a root, as a tree. Always the whole tree as it stands, so that any proposal may
/// be lost: what it has in common with the receiver's tree is merged, the rest is added. A root
/// that the text has passed is no harm: what continues the text since then still counts.
///   draft, correct -> first segment   what they believe; none: "nothing to propose"
///   draft -> correct                  the trunk
///   exit segment -> draft, correct    the rows of a batch, and the exit's candidates after each
///   exit segment -> first segment     a row's path and the exit's own next token (AdaDecode)
struct Proposal {
    static constexpr Kind kKind = Kind::Proposal;
    Route route;
    Position root_position;  // of a committed token
    TokenId root_token;
    ProposalState state;
    std::uint32_t count;
    std::array<ProposedNode, kProposalNodesMax> nodes;  // parents before their children
};

/// A token and its probability. A distribution is a list of them: its whole support.
struct TokenWeight {
    TokenId token;
    float weight;  // > 0; they need not sum to 1

    friend bool operator==(const TokenWeight&, const TokenWeight&) = default;
};

/// draft, correct -> first segment, with the rejection rule: the children of one node were drawn, one
/// after the other and without putting back, from these tokens (actors/decoding/drawn_siblings.hpp). Sent
/// once, as soon as they are drawn; where it is lost, or comes when the node's row was sent, its tokens
/// count as deterministic candidates.
struct Draw {
    static constexpr Kind kKind = Kind::Draw;
    Route route;
    Position root_position;  // of a committed token
    TokenId root_token;
    std::uint32_t depth;    // of the node below the root: so many tokens of `path`
    std::uint16_t support;  // so many of `tokens`
    std::uint16_t drawn;  // the first of them: the siblings, in the order in which they were drawn
    std::array<TokenId, kGammaMax> path;
    std::array<TokenWeight, kDrawnSupportMax> tokens;
};

/// One row of a batch: a node of the token tree and the KV slot that all segments write it to.
struct BatchRow {
    NodeId node;
    std::uint32_t parent;  // node id of the parent, kNoParent for a row whose parent is committed
    TokenId token;
    Position position;
    KvSlot slot;
    // Of the batch's tensor, below Batch::tensor_rows: rows that were dropped stay in it.
    std::uint32_t tensor_row = 0;
    // Sub-layers below this one are done for the row, its keys and values there are in `slot`: a
    // draft has computed them. A segment begins with it, or with its own first one.
    std::uint32_t start = 0;
};

enum class BatchKind : std::uint32_t {
    Prefill,  // committed tokens that only fill the KV cache; no verdict follows
    Verify,   // the root and its speculation; a verdict follows
};

/// The rows of one request in a batch.
struct BatchPart {
    RequestId request;
    Attempt attempt;
    BatchId batch;  // counted per request
    BatchKind kind;
    Position base;       // committed tokens already in the KV cache when the part starts
    std::uint32_t rows;  // the next so many rows of the batch
    std::uint32_t hold;  // 1: may wait at the next segment until a part of this request that is
                         // not held comes after it (deferred layers); 0: run it in order
};

/// The children of a row's node were drawn; whether they have rows makes no difference. The next
/// `support` of the batch's drawn_tokens are the distribution, the first `drawn` of them the siblings.
struct BatchDraw {
    std::uint32_t row;  // of the batch
    std::uint16_t support;
    std::uint16_t drawn;
};

/// The beginning of a Batch's frame; so many parts, rows, draws and drawn tokens follow.
struct BatchHeader {
    Epoch epoch;  // of the sending stage
    std::uint32_t part_count;
    std::uint32_t row_count;
    std::uint32_t tensor;
    std::uint32_t tensor_generation;
    std::uint32_t tensor_rows;
    std::uint32_t draw_count;
    std::uint32_t drawn_token_count;
};

/// segment -> next segment. Parts of different requests, at most one of each; the rows of a part
/// stand together, in tree order: a parent before its children. At most kVerifyRowsMax of the rows
/// are of verify parts.
struct Batch {
    static constexpr Kind kKind = Kind::Batch;
    Epoch epoch;  // of the sending stage
    // Slot of the tensor pool: [tensor_rows, dim] float32 hidden states.
    std::uint32_t tensor = kNoTensor;
    std::uint32_t tensor_generation = 0;
    std::uint32_t tensor_rows = 0;
    std::vector<BatchPart> parts = {};  // 1 .. kBatchPartsMax
    std::vector<BatchRow> rows = {};    // 1 .. kBatchRowsMax
    std::vector<BatchDraw> draws = {};  // by row, ascending; at most kVerifyRowsMax
    std::vector<TokenWeight> drawn_tokens = {};
};

enum class TensorRole : std::uint32_t { Hidden, Keys, Values, Tap };
enum class TensorType : std::uint32_t { F32, Bf16, F16, I8 };

/// stage -> stage: a tensor [rows, row_elements] lies in the pool beside this channel. The
/// receiver reads it in place (TensorConsumer::view) and gives the slot back.
struct TensorNote {
    static constexpr Kind kKind = Kind::TensorNote;
    Route route;
    TensorRole role;
    TensorType type;
    std::uint32_t layer;      // whose keys or values they are, or whose output
    Position first_position;  // row i is that of position first_position + i
    std::uint32_t rows;
    std::uint32_t row_elements;
    std::uint32_t tensor;  // slot of the tensor pool
    std::uint32_t tensor_generation;
};

/// 0 for a type that does not exist.
[[nodiscard]] constexpr std::uint64_t element_bytes(TensorType type) {
    switch (type) {
        case TensorType::F32:
            return 4;
        case TensorType::Bf16:
        case TensorType::F16:
            return 2;
        case TensorType::I8:
            return 1;
    }
    return 0;
}

/// The size of the tensor; nothing if no such tensor can be: an unknown type, or a shape that
/// would wrap.
[[nodiscard]] constexpr std::optional<std::uint64_t> tensor_bytes(const TensorNote& note) {
    const std::uint64_t each = element_bytes(note.type);
    const std::uint64_t elements = std::uint64_t{note.rows} * note.row_elements;  // cannot wrap
    if (each == 0 || elements > std::numeric_limits<std::uint64_t>::max() / each) {
        return std::nullopt;
    }
    return elements * each;
}

/// last segment -> everyone. `accepted` nodes below the root stand, then the target's own next
/// token, which is the new root: count = accepted + 1 tokens are committed, always.
struct Verdict {
    static constexpr Kind kKind = Kind::Verdict;
    Route route;
    BatchId batch;
    Position base;             // position of tokens[0]: where the first token committed here stands
    std::uint32_t count;       // accepted + 1
    std::uint32_t batch_rows;  // rows of this request that were verified, the root included
    std::uint32_t depth;       // of the deepest of them below the root: how much could be accepted
    FinishReason finish;       // not None: tokens[count-1] is the last token of the answer
    std::array<TokenId, kGammaMax + 1> tokens;
    std::array<NodeId, kGammaMax + 1> nodes;  // the accepted nodes, count - 1 of them
};

/// conductor -> all. The request is over (stop string, client gone): drop what is in flight.
struct Stop {
    static constexpr Kind kKind = Kind::Stop;
    Route route;
};

/// A message whose frame is the struct.
template <class M>
concept PlainMessage = std::is_trivially_copyable_v<M> && std::is_standard_layout_v<M> && requires {
    { M::kKind } -> std::convertible_to<Kind>;
};
template <class M>
concept HotMessage = PlainMessage<M> || std::is_same_v<M, Batch>;
static_assert(PlainMessage<Proposal> && PlainMessage<TensorNote> && PlainMessage<Verdict> &&
              PlainMessage<Stop> && PlainMessage<Draw> && HotMessage<Batch>);

/// Whose a frame is, for whoever only passes it on or writes it down. Of a Batch: its first part.
/// Nothing for a kind that does not exist, or bytes that are too few. What is said is a claim.
[[nodiscard]] inline std::optional<Route> route_of(std::uint16_t kind,
                                                   std::span<const std::byte> bytes) {
    Route route{};
    switch (static_cast<Kind>(kind)) {
        case Kind::Proposal:
        case Kind::Verdict:
        case Kind::Stop:
        case Kind::TensorNote:
        case Kind::Draw:
            if (bytes.size() < sizeof route) return std::nullopt;
            std::memcpy(&route, bytes.data(), sizeof route);
            return route;
        case Kind::Batch: {
            BatchPart part{};
            if (bytes.size() < sizeof(BatchHeader) + sizeof part) return std::nullopt;
            std::memcpy(&part, bytes.data() + sizeof(BatchHeader), sizeof part);
            std::memcpy(&route.epoch, bytes.data() + offsetof(BatchHeader, epoch),
                        sizeof route.epoch);
            route.request = part.request;
            route.attempt = part.attempt;
            return route;
        }
    }
    return std::nullopt;
}

/// How much a frame stands for: rows of a Batch or a tensor, 1 for the others and for whatever
/// claims none or is too short.
[[nodiscard]] inline std::uint32_t rows_of(std::uint16_t kind, std::span<const std::byte> bytes) {
    std::size_t offset = 0;
    switch (static_cast<Kind>(kind)) {
        case Kind::Batch:
            offset = offsetof(BatchHeader, row_count);
            break;
        case Kind::TensorNote:
            offset = offsetof(TensorNote, rows);
            break;
        case Kind::Proposal:
        case Kind::Verdict:
        case Kind::Stop:
        case Kind::Draw:
            return 1;
    }
    std::uint32_t rows = 0;
    if (offset == 0 || bytes.size() < offset + sizeof rows) return 1;
    std::memcpy(&rows, bytes.data() + offset, sizeof rows);
    return rows == 0 ? 1 : rows;
}

// A layout change must bump kWireVersion.
static_assert(sizeof(Route) == 16);
static_assert(sizeof(ProposedNode) == 12);
static_assert(sizeof(Proposal) == 16 + 16 + 12 * kProposalNodesMax);
static_assert(sizeof(BatchRow) == 28);
static_assert(sizeof(BatchPart) == 32);
static_assert(sizeof(BatchHeader) == 32);
static_assert(sizeof(BatchDraw) == 8);
static_assert(sizeof(TokenWeight) == 8);
static_assert(sizeof(Draw) == 16 + 16 + 4 * kGammaMax + 8 * kDrawnSupportMax);
static_assert(sizeof(Verdict) == 16 + 24 + 4 * (2 * kGammaMax + 2));
static_assert(sizeof(TensorNote) == 16 + 8 * 4);

}  // namespace paceline::msg
