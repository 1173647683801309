// What no real model reaches: the bounds of every format's configuration. Products of any two of
// them fit an int64 many times over, so later arithmetic on shapes need not ask again. Constants;
// any thread.
#pragma once

namespace paceline::config_limits {

inline constexpr int kLayersMax = 1024;
inline constexpr int kDimMax = 1 << 17;
inline constexpr int kHeadsMax = 4096;
inline constexpr int kHeadDimMax = 1024;
inline constexpr int kFfnDimMax = 1 << 20;
inline constexpr int kVocabMax = 1 << 24;
inline constexpr int kContextMax = 1 << 24;
inline constexpr double kRopeFactorMax = 4096;

}  // namespace paceline::config_limits
