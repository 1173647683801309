// Every hot message, in the order in which a token branch meets them.
//
// Plain structs of fixed layout: they are copied into ring frames (spsc_ring.hpp) as they are.
// Every one starts with the request and the attempt it belongs to; a message of an old attempt
// changes nothing. Cold messages (configuration, prompt, hello, statistics) are in control.hpp.
// What a peer claims (counts, indices, positions) is range-checked by valid() before use.
//
//     draft --Proposal--> first segment --Wave--> ... --Wave--> last segment
//       ^                      ^                                     |
//       +------- Verdict ------+--------------- Verdict -------------+--- Verdict ---> conductor
//
// A Wave announces its own hidden states; any other tensor travels with a TensorNote.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"

namespace paceline::msg {

inline constexpr std::uint32_t kWireVersion = 2;
inline constexpr std::uint32_t kNoParent = 0xffffffffU;
inline constexpr std::uint32_t kNoTensor = 0xffffffffU;

enum class Kind : std::uint16_t { Proposal = 1, Wave = 2, Verdict = 3, Stop = 4, TensorNote = 5 };

struct Route {
    RequestId request;
    Attempt attempt;
    Epoch epoch;  // of the sending stage
};

/// draft -> first segment. A chain that continues the root: tokens[i] is guessed for the
/// position root_position + 1 + i. An empty one says "nothing to propose": start with the root.
struct Proposal {
    static constexpr Kind kKind = Kind::Proposal;
    Route route;
    Position root_position;  // of the last committed token, the root
    TokenId root_token;
    std::uint32_t count;
    std::array<TokenId, kGammaMax> tokens;
};

/// One row of a wave: a node of the token tree and the KV slot that all segments write it to.
struct WaveRow {
    NodeId node;
    std::uint32_t parent;  // node id of the parent, kNoParent for a row whose parent is committed
    TokenId token;
    Position position;
    KvSlot slot;
};

enum class WaveKind : std::uint32_t {
    Prefill,  // committed tokens that only fill the KV cache; no verdict follows
    Verify,   // the root and its speculation; a verdict follows
};

/// segment -> next segment. Rows in tree order: a parent stands before its children.
struct Wave {
    static constexpr Kind kKind = Kind::Wave;
    Route route;
    WaveId wave;
    WaveKind kind;
    Position base;  // committed tokens already in the KV cache when the wave starts
    std::uint32_t row_count;
    std::uint32_t tensor;  // slot of the tensor pool: [row_count, dim] float32 hidden states
    std::uint32_t tensor_generation;
    std::array<WaveRow, kWaveRowsMax> rows;
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

enum class Finish : std::uint32_t { No, EndToken, MaxTokens, ContextFull, Failed };

/// last segment -> everyone. `accepted` nodes below the root stand, then the target's own next
/// token, which is the new root: count = accepted + 1 tokens are committed, always.
struct Verdict {
    static constexpr Kind kKind = Kind::Verdict;
    Route route;
    WaveId wave;
    Position base;            // position of tokens[0]: where the first token committed here stands
    std::uint32_t count;      // accepted + 1
    std::uint32_t wave_rows;  // rows that were judged, for the figures
    Finish finish;            // not No: tokens[count-1] is the last token of the answer
    std::array<TokenId, kGammaMax + 1> tokens;
    std::array<NodeId, kGammaMax + 1> nodes;  // the accepted nodes, count - 1 of them
};

/// conductor -> all. The request is over (stop string, client gone): drop what is in flight.
struct Stop {
    static constexpr Kind kKind = Kind::Stop;
    Route route;
};

template <class M>
concept HotMessage = std::is_trivially_copyable_v<M> && std::is_standard_layout_v<M> && requires {
    { M::kKind } -> std::convertible_to<Kind>;
};
static_assert(HotMessage<Proposal> && HotMessage<Wave> && HotMessage<TensorNote> &&
              HotMessage<Verdict> && HotMessage<Stop>);

// A layout change must bump kWireVersion.
static_assert(sizeof(Route) == 16);
static_assert(sizeof(Proposal) == 16 + 12 + 4 * kGammaMax + 4);
static_assert(sizeof(WaveRow) == 20);
static_assert(sizeof(TensorNote) == 16 + 8 * 4);

}  // namespace paceline::msg
