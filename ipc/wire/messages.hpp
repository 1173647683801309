// The data messages (one or more per token), in the order in which a branch of candidates causes
// them.
//
// Plain structs of fixed layout, copied into ring frames (spsc_ring.hpp) byte for byte. Only the
// frame of a Batch has a variable length (batch_frame.hpp). Each message names its request and
// attempt (a Batch does so in each part); receivers drop messages of an old attempt. Control
// messages (configuration, prompt, hello, statistics) are in control.hpp. Receivers check counts,
// indices and positions before use (actors/protocol/message_checks.hpp).
//
//     draft --Proposal--> first segment --Batch--> exit segment --Batch--> last segment
//       | ^                    ^ ^                   |                       |
//       | |                    | +----- Proposal ----+ (its own next token)  |
//       | +------ Proposal (the exit's candidates) --+                       |
//       v                      |                                             |
//     correct ---- Proposal ---+        Verdict: from the last segment to all other stages
//                                       and the conductor
//
//     draft, correct --Draw--> first segment: drawn candidates and their distribution
//     first segment --Price--> draft, correct, exits: whether and at what price they speculate
//     first segment --Prefix--> next segment --> ... --> last segment: pages that hold a text's
//                               first tokens already
//     last segment --Scores--> conductor: log probabilities, before the verdict on the tokens
//     last segment --OwnTokens--> draft, correct: the target's tokens after observed rows
//
// A Batch announces its own hidden states; every other tensor is announced by a TensorNote.
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

// Version of these layouts, of those of control.cpp and of the payloads of Assign and Begin.
inline constexpr std::uint32_t kWireVersion = 19;
inline constexpr std::uint32_t kNoParent = 0xffffffffU;
inline constexpr std::uint32_t kNoTensor = 0xffffffffU;

enum class Kind : std::uint16_t {
    Proposal = 1,
    Batch = 2,
    Verdict = 3,
    Stop = 4,
    TensorNote = 5,
    Draw = 6,
    Price = 7,
    Prefix = 8,
    Scores = 9,
    OwnTokens = 10,
};

struct Route {
    RequestId request;
    Attempt attempt;
    Epoch epoch;  // of the sending stage
};

/// The proposer of a candidate; used by figures and by the stages that grow the tree.
enum class Origin : std::uint8_t {
    Trunk,     // the draft's first choice after its parent
    RunnerUp,  // another choice of the draft
    Exit,      // proposed by an early exit of the target
    Lookup,    // without a model: found in the text or in a datastore, or guessed from own tokens
    Heads,     // look-ahead heads after the last layer
    Forced,    // by the grammar of the answer
};
inline constexpr std::uint16_t kOrigins = 6;

/// One candidate in a proposal's tree.
struct ProposedNode {
    TokenId token;
    std::int16_t parent;  // index of an earlier node of the proposal, or kBelowRoot
    Origin origin;
    // Not 0: the target's token after this row is wanted (OwnTokens), also if the row is rejected;
    // the proposer's name for it.
    std::uint8_t observe = 0;
    float log_prob;  // the proposer's estimate for this token after its path; <= 0
};
inline constexpr std::int16_t kBelowRoot = -1;

enum class ProposalState : std::uint32_t {
    Growing,   // the draft may send more for this root
    Halfway,   // lockstep: the draft's first gamma1 steps are done
    Complete,  // final for this root, unless an exit's candidates add to it
};

/// Candidates below a root, as a tree. A proposal carries the sender's whole tree, so any proposal
/// may be lost: the receiver merges the nodes that it has and adds the others. If the text has
/// grown beyond the root meanwhile, the nodes that continue the committed text remain valid.
///   draft, correct -> first segment   their candidates; count 0: nothing to propose
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

/// A token and its probability. A distribution is the list of its support.
struct TokenWeight {
    TokenId token;
    float weight;  // > 0; they need not sum to 1

    friend bool operator==(const TokenWeight&, const TokenWeight&) = default;
};

/// draft, correct -> first segment, with the rejection rule: the children of one node were drawn
/// one after the other, without replacement, from these tokens
/// (actors/decoding/drawn_siblings.hpp). Sent once, as soon as they are drawn. If it is lost, or
/// arrives after the node's row was sent, the children count as deterministic candidates.
struct Draw {
    static constexpr Kind kKind = Kind::Draw;
    Route route;
    Position root_position;  // of a committed token
    TokenId root_token;
    std::uint32_t depth;    // of the node below the root: the length of `path`
    std::uint16_t support;  // the length of `tokens`
    std::uint16_t drawn;    // the first of `tokens`: the siblings, in the order of the draws
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
    // Index in the batch's tensor, < Batch::tensor_rows: dropped rows stay in the tensor.
    std::uint32_t tensor_row = 0;
    // Sub-layers before this one are done, with their keys and values in `slot`: computed by a
    // draft, or, of a prompt's row, before a segment was lost. A segment begins at this sub-layer,
    // or at its own first one if that is later.
    std::uint16_t start = 0;
    Origin origin = Origin::Trunk;  // of a candidate
    std::uint8_t observe = 0;       // as in ProposedNode
};

enum class BatchKind : std::uint32_t {
    Prefill,  // committed tokens that only fill the KV cache; no verdict follows
    Verify,   // the root and its candidates; a verdict follows
};

/// The time of a batch's jobs so far, in microseconds. Durations, never readings of a clock: clocks
/// of different machines differ. Both 0: not known, for prompts or other batches shared its jobs.
struct BatchCost {
    std::uint32_t sum_us = 0;      // of all segments
    std::uint32_t longest_us = 0;  // of one segment

    [[nodiscard]] bool known() const { return sum_us > 0; }
    friend bool operator==(const BatchCost&, const BatchCost&) = default;
};

/// The rows of one request in a batch.
struct BatchPart {
    RequestId request;
    Attempt attempt;
    BatchId batch;  // counted per request
    BatchKind kind;
    Position base;       // committed tokens already in the KV cache when the part starts
    std::uint32_t rows;  // number of the batch's rows that belong to this part
    std::uint16_t hold;  // 1: may wait at the next segment until a part of this request without
                         // `hold` follows (deferred layers); 0: is run in order
    StageId last = {};   // of a prefill: the segment after which it ends, because those behind it
                         // have kept its keys; 0: the last one
};

/// The children of a row's node were drawn, whether or not they have rows. The next `support` of
/// the batch's drawn_tokens are the distribution, the first `drawn` of them the siblings.
struct BatchDraw {
    std::uint32_t row;  // of the batch
    std::uint16_t support;
    std::uint16_t drawn;
};

/// The beginning of a Batch's frame; the parts, rows, draws and drawn tokens that it counts follow.
struct BatchHeader {
    Epoch epoch;  // of the sending stage
    std::uint32_t part_count;
    std::uint32_t row_count;
    std::uint32_t tensor;
    std::uint32_t tensor_generation;
    std::uint32_t tensor_rows;
    std::uint32_t draw_count;
    std::uint32_t drawn_token_count;
    BatchCost cost;
};

/// segment -> next segment. At most one part per request. The rows of a part are consecutive and in
/// tree order: a parent before its children. At most kVerifyRowsMax rows belong to verify parts.
struct Batch {
    static constexpr Kind kKind = Kind::Batch;
    Epoch epoch;  // of the sending stage
    // Slot of the tensor pool: [tensor_rows, dim] float32 hidden states.
    std::uint32_t tensor = kNoTensor;
    std::uint32_t tensor_generation = 0;
    std::uint32_t tensor_rows = 0;
    BatchCost cost = {};
    std::vector<BatchPart> parts = {};  // 1 .. kBatchPartsMax
    std::vector<BatchRow> rows = {};    // 1 .. kBatchRowsMax
    std::vector<BatchDraw> draws = {};  // by row, ascending; at most kVerifyRowsMax
    std::vector<TokenWeight> drawn_tokens = {};
};

enum class TensorRole : std::uint32_t { Hidden, Keys, Values, Tap, Features };
enum class TensorType : std::uint32_t { F32, Bf16, F16, I8 };

/// stage -> stage: a tensor [rows, row_elements] is in the pool beside this channel. The receiver
/// reads it in place (TensorConsumer::view) and releases the slot.
struct TensorNote {
    static constexpr Kind kKind = Kind::TensorNote;
    Route route;
    TensorRole role;
    TensorType type;
    std::uint32_t layer;      // of the keys or values, or of the output
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

/// The size of the tensor; nothing for an unknown type, or if the size overflows 64 bits.
[[nodiscard]] constexpr std::optional<std::uint64_t> tensor_bytes(const TensorNote& note) {
    const std::uint64_t each = element_bytes(note.type);
    const std::uint64_t elements = std::uint64_t{note.rows} * note.row_elements;  // fits
    if (each == 0 || elements > std::numeric_limits<std::uint64_t>::max() / each) {
        return std::nullopt;
    }
    return elements * each;
}

/// last segment -> all other stages and the conductor. Commits count = accepted + 1 tokens: the
/// accepted nodes below the root, then the target's own next token, which is the new root.
struct Verdict {
    static constexpr Kind kKind = Kind::Verdict;
    Route route;
    BatchId batch;
    Position base;             // position of tokens[0]
    std::uint32_t count;       // accepted + 1
    std::uint32_t batch_rows;  // rows of this request that were verified, the root included
    std::uint32_t depth;  // of the deepest of them below the root: the most that can be accepted
    FinishReason finish;  // not None: tokens[count-1] is the last token of the answer
    BatchCost cost;       // of the batch, all requests
    Position cached;      // tokens of the attempt's text that were in the KV cache when it began
    Position matched;     // and that it had in common with what was cached, blocks or not
    std::array<TokenId, kGammaMax + 1> tokens;
    std::array<NodeId, kGammaMax + 1> nodes;  // the accepted nodes, count - 1 of them
    std::array<Origin, kGammaMax> origins;    // whose candidates they were
};

inline constexpr std::uint32_t kPrefixPagesMax = 126;  // of one message, without padding

/// segment -> next segment, on the channel of its batches and before the first one of the attempt:
/// the text's first tokens are in these pages of the KV cache, 32 in each. A longer prefix takes
/// several messages.
struct Prefix {
    static constexpr Kind kKind = Kind::Prefix;
    Route route;
    std::uint32_t first_block;  // of the text, in pages[0]
    std::uint32_t count;        // 1 .. kPrefixPagesMax
    Position matched;           // as in Verdict
    std::uint32_t behind;       // a stage: segments up to it have lost these keys, and get the rows
                                // again; those behind it take the pages. 0: all take them
    std::array<std::int32_t, kPrefixPagesMax> pages;
};

inline constexpr std::uint32_t kScoreEntriesMax =
    63;  // of one message: three tokens with 20 others

/// Of a scored token: its rank and log probability; of each of the most probable ones beside it:
/// the token and its log probability.
struct ScoreEntry {
    std::int32_t value;  // rank, 0 for the most probable; or the token
    float log_prob;      // <= 0, -inf for a token that the model excludes
};

/// last segment -> conductor, on the channel of the verdicts: log probabilities of consecutive
/// tokens, of an answer before the verdict that commits them, of a prompt as its rows are computed.
struct Scores {
    static constexpr Kind kKind = Kind::Scores;
    Route route;
    Position first;          // position of the first token
    std::uint32_t tokens;    // 1 .. kScoreEntriesMax / (1 + top)
    std::uint32_t top;       // most probable ones beside each, 0 .. kTopScoresMax
    std::uint32_t reserved;  // 0
    std::array<ScoreEntry, kScoreEntriesMax> entries;  // 1 + top for each token
};

inline constexpr std::uint32_t kOwnTokensMax = kVerifyRowsMax;

struct OwnToken {
    std::uint32_t node;  // ProposedNode::observe of the row
    TokenId token;       // the target's own after it
};

/// last segment -> draft, correct, on the channel of the verdicts: what the target itself would say
/// after the observed rows of a batch, accepted or not. Ahead of the verdict on that batch, since
/// the proposer uses it as soon as it has the verdict. If it is lost, late or doubled, the next
/// candidates are worse.
struct OwnTokens {
    static constexpr Kind kKind = Kind::OwnTokens;
    Route route;
    BatchId batch;
    Position root_position;  // of the batch
    TokenId root_token;
    std::uint32_t count;  // 1 .. kOwnTokensMax
    std::array<OwnToken, kOwnTokensMax> tokens;
};

/// conductor -> all. The request has ended (stop string, client gone): receivers drop its rows and
/// candidates.
struct Stop {
    static constexpr Kind kKind = Kind::Stop;
    Route route;
};

enum class SpeculationMode : std::uint32_t {
    On,     // as far as it pays at this price
    Off,    // nothing is drafted or evaluated
    Probe,  // also what does not seem to pay: few rounds, to learn what it gains by now
    Rest,   // Off in this turn and not in the next ones: prompts are read meanwhile
};
/// Whether nothing is drafted or evaluated in this turn.
[[nodiscard]] constexpr bool is_off(SpeculationMode mode) {
    return mode == SpeculationMode::Off || mode == SpeculationMode::Rest;
}

/// first segment -> draft, correct and exits: what time is worth (actors/account), for all requests
/// of the receiver; the route is that of one of them. The newest counts. A lost one costs speed.
struct Price {
    static constexpr Kind kKind = Kind::Price;
    Route route;
    std::uint32_t generation;  // counts up
    SpeculationMode mode;
    std::uint32_t candidates_max;  // of a request in a round
    float token_us;                // per token of any request, by the best plan; 0: not known yet
    float plain_us;                // the same without speculation; 0: not known yet
    float row_us;                  // of one more row in a verify batch
    float pass_share;  // the part of a pass's time by which decoding gets longer: 0 .. 1
    float extra_us;    // by which a batch takes longer while exits and drafts work; 0: unknown
};

/// A message whose frame is the bytes of its struct.
template <class M>
concept PlainMessage = std::is_trivially_copyable_v<M> && std::is_standard_layout_v<M> && requires {
    { M::kKind } -> std::convertible_to<Kind>;
};
template <class M>
concept DataMessage = PlainMessage<M> || std::is_same_v<M, Batch>;
static_assert(PlainMessage<Proposal> && PlainMessage<TensorNote> && PlainMessage<Verdict> &&
              PlainMessage<Stop> && PlainMessage<Draw> && PlainMessage<Price> &&
              PlainMessage<Prefix> && PlainMessage<Scores> && PlainMessage<OwnTokens> &&
              DataMessage<Batch>);

/// The route that a frame claims, for code that forwards or logs it; of a Batch that of its first
/// part. Nothing for an unknown kind or a frame that is too short. Unchecked.
[[nodiscard]] inline std::optional<Route> route_of(std::uint16_t kind,
                                                   std::span<const std::byte> bytes) {
    Route route{};
    switch (static_cast<Kind>(kind)) {
        case Kind::Proposal:
        case Kind::Verdict:
        case Kind::Stop:
        case Kind::TensorNote:
        case Kind::Draw:
        case Kind::Price:
        case Kind::Prefix:
        case Kind::Scores:
        case Kind::OwnTokens:
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

/// The number of rows that a frame claims: of a Batch or a tensor; 1 for other kinds, for a count
/// of 0 and for a frame that is too short. Unchecked.
[[nodiscard]] inline std::uint32_t rows_of(std::uint16_t kind, std::span<const std::byte> bytes) {
    std::size_t offset = 0;
    if (static_cast<Kind>(kind) == Kind::Batch) offset = offsetof(BatchHeader, row_count);
    if (static_cast<Kind>(kind) == Kind::TensorNote) offset = offsetof(TensorNote, rows);
    std::uint32_t rows = 0;
    if (offset == 0 || bytes.size() < offset + sizeof rows) return 1;
    std::memcpy(&rows, bytes.data() + offset, sizeof rows);
    return rows == 0 ? 1 : rows;
}

// A change of a layout must raise kWireVersion.
static_assert(sizeof(Route) == 16);
static_assert(sizeof(ProposedNode) == 12);
static_assert(sizeof(Proposal) == 16 + 16 + 12 * kProposalNodesMax);
static_assert(sizeof(BatchRow) == 28);
static_assert(sizeof(BatchPart) == 32);
static_assert(sizeof(BatchHeader) == 40);
static_assert(sizeof(BatchDraw) == 8);
static_assert(sizeof(TokenWeight) == 8);
static_assert(sizeof(Draw) == 16 + 16 + 4 * kGammaMax + 8 * kDrawnSupportMax);
static_assert(sizeof(Verdict) == 16 + 40 + 4 * (2 * kGammaMax + 2) + kGammaMax);
static_assert(sizeof(Prefix) == 16 + 16 + 4 * kPrefixPagesMax);
static_assert(sizeof(Scores) == 16 + 16 + 8 * kScoreEntriesMax);
static_assert(kScoreEntriesMax >= 1 + kTopScoresMax, "a token with all its neighbours fits");
static_assert(sizeof(OwnTokens) == 16 + 16 + 8 * kOwnTokensMax);
static_assert(sizeof(BatchCost) == 8);
static_assert(sizeof(Price) == 16 + 32);
static_assert(sizeof(TensorNote) == 16 + 8 * 4);

}  // namespace paceline::msg
