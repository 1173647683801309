// Ids: strong types, so that an epoch cannot be passed as an attempt.
//
// Token ids and positions are plain 32-bit integers, because the numeric code uses them as indices.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>

namespace paceline {

template <class Tag, std::integral Rep>
struct Strong {
    Rep value{};
    constexpr Strong() = default;
    constexpr explicit Strong(Rep v) : value{v} {}
    friend constexpr auto operator<=>(Strong, Strong) = default;
};

using TokenId = std::int32_t;   // an index into the vocabulary
using Position = std::int32_t;  // index in the sequence; the first token has position 0
using KvSlot = std::int32_t;    // place of one row's keys and values, the same in all layers

using RequestId = Strong<struct RequestIdTag, std::uint64_t>;  // one prompt and its answer
using Attempt = Strong<struct AttemptTag, std::uint32_t>;  // incarnation of a request's decoding
using Epoch = Strong<struct EpochTag, std::uint32_t>;      // incarnation of a stage
using NodeId =
    Strong<struct NodeIdTag, std::uint32_t>;  // a node of a request's token tree, never reused
using BatchId =
    Strong<struct BatchIdTag, std::uint32_t>;  // a set of rows sent through the target together
using StageId = Strong<struct StageIdTag, std::uint16_t>;  // a process of the pipeline

}  // namespace paceline

template <class Tag, std::integral Rep>
struct std::hash<paceline::Strong<Tag, Rep>> {
    std::size_t operator()(paceline::Strong<Tag, Rep> id) const noexcept {
        return std::hash<Rep>{}(id.value);
    }
};
