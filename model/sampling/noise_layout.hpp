// Which random word a token's noise comes from, and the constants of the arithmetic on it.
//
// The vocabulary is cut into tiles of 256 tokens, a tile into 16 groups of 16 tokens. A group is
// a column of the tile, so that a vector register holds one member of each of 16 groups:
//
//     token  = 256 * tile + 16 * member + column       member, column in 0 .. 15
//     group  =  16 * tile + column
//
//     member 0    token   0   1   2 ...  15
//     member 1           16  17  18 ...  31            group 2 = {2, 18, 34, ... 242}
//     ...
//     member 15         240 241 242 ... 255
//
// Only constants: this header is compiled once per instruction set, and an inline function here
// could be taken by the linker from the wrong one.
#pragma once

#include <cstdint>

namespace paceline::noise {

inline constexpr int kColumns = 16;  // groups of a tile
inline constexpr int kMembers = 16;  // tokens of a group
inline constexpr int kTileTokens = kColumns * kMembers;
inline constexpr int kTilesPerBlock = 4;  // words of a Philox block

// Philox4x32-10 (counter_rng.hpp).
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9U;
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85U;
inline constexpr int kPhiloxRounds = 10;

// The use of a block, in the third counter word. The counter is {index, position, use, 0}.
inline constexpr std::uint32_t kUseRace = 0;  // index 16 * (tile / 4) + column, word tile % 4
inline constexpr std::uint32_t kUsePick = 1;  // index group, top 4 bits of word 0
inline constexpr std::uint32_t kUseRest = 2;  // index token, word 0

// Bounds are widened by this much: the computed logarithm is monotonic only up to its rounding.
inline constexpr float kBoundSlack = 1.0f / 1024.0f;

// log(1 + f) = s * (2 + s^2 * (c3 + s^2 * (c5 + ...))) with s = f / (2 + f): the series of
// 2 atanh(s). With |s| < 0.172 the first term left out is below 2e-9 of the result.
inline constexpr float kLog3 = 0.666666687f;
inline constexpr float kLog5 = 0.4f;
inline constexpr float kLog7 = 0.285714298f;
inline constexpr float kLog9 = 0.222222224f;
inline constexpr float kLn2 = 0.693147182f;
inline constexpr std::uint32_t kSqrtHalfBits = 0x3F3504F3U;  // mantissas lie in [sqrt 1/2, sqrt 2)
inline constexpr std::int32_t kNearOne = 0x60000000;         // uniforms of 3/4 and more
inline constexpr float kTwoToMinus31 = 0x1p-31f;

// exp(z) = 2^n * polynomial(r), z = n ln 2 + r; ln 2 in two parts, the first one short enough for
// n * part to be exact. A weight is exp(z) in units of 2^-30, cut off: 0 where z <= kWeightZero.
inline constexpr float kLog2E = 1.44269502f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194442e-4f;
inline constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr float kExp3 = 0.166666672f;
inline constexpr float kExp4 = 0.0416666679f;
inline constexpr float kExp5 = 0.00833333377f;
inline constexpr float kExp6 = 0.00138888892f;
inline constexpr float kWeightZero = -21.0f;
inline constexpr float kExpZero = -86.0f;  // exp is still a normal number there
inline constexpr int kWeightBits = 30;

}  // namespace paceline::noise
