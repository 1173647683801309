// Limits that several parts of the program share, and the relations between them.
#pragma once

#include <cstdint>

namespace paceline {

inline constexpr std::uint32_t kVerifyRowsMax = 64;      // verify rows of one batch
inline constexpr std::uint32_t kBatchRowsMax = 512;      // rows of one batch, prefill included
inline constexpr std::uint32_t kSegmentsMax = 64;        // stages that share the target's layers
inline constexpr std::uint32_t kGammaMax = 32;           // tokens a draft may propose at once
inline constexpr std::uint32_t kBatchPartsMax = 64;      // requests that share a batch
inline constexpr std::uint32_t kProposalNodesMax = 192;  // candidates in one proposal
inline constexpr std::uint32_t kDrawnSupportMax = 32;    // tokens that siblings are drawn from
inline constexpr std::int32_t kTopScoresMax = 20;  // most probable tokens beside one of a text
inline constexpr std::uint32_t kStopStringsMax = 16;
inline constexpr std::uint32_t kRequestsMax = 64;  // requests in flight in one pipeline

static_assert(kVerifyRowsMax <= kBatchRowsMax, "verify rows fit one batch");
static_assert(kGammaMax + 1 <= kVerifyRowsMax, "the root and a whole proposal fit one batch");
static_assert(kGammaMax <= kProposalNodesMax, "the longest chain fits one proposal");
static_assert(kProposalNodesMax <= 0x7fff, "a candidate names its parent with 16 bits");
static_assert(kBatchPartsMax <= kVerifyRowsMax, "every part of a batch has a row");

}  // namespace paceline
