// BatchCosts: the time of a verify batch by its rows, as measured in this pipeline.
//
//     key                    number of requests, tokens of context; each in powers of two
//     curve of a key         rows -> time of the longest segment, and of all segments in sum
//
// Between two measured numbers of rows the time is interpolated; beyond the largest it grows by
// kRowShare of a batch of one row per row, as measured for weights of 4 to 16 bits on CPUs; a wrong
// share is corrected by the first batch of that size. A key that was not measured uses the nearest
// one. Times are microseconds. Old measurements fade (RobustMean), and a number of rows that no
// batch had for kForgotten batches of its key counts as not measured: a wrong time that keeps
// batches from having so many rows would never be corrected. For the same reason the first
// measurement of a number of rows counts as at most kFirstMost times what the others predict: it
// may have been interrupted, and alone it would decide. Not thread-safe. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "actors/account/robust_mean.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// What a batch is of.
struct BatchSize {
    std::uint32_t rows = 0;      // of all requests, 1 .. kVerifyRowsMax
    std::uint32_t requests = 0;  // at least 1
    std::uint64_t context = 0;   // tokens before the rows, of all requests
};

class BatchCosts {
public:
    static constexpr double kRowShare = 0.06;
    static constexpr std::uint64_t kForgotten = 96;
    static constexpr double kFirstMost = 1.5;

    /// `cost` is known.
    void learn(const BatchSize& size, const msg::BatchCost& cost);

    struct Time {
        double sum_us = 0.0;      // of all segments; 0: nothing is known
        double longest_us = 0.0;  // of one
    };
    [[nodiscard]] Time expected(const BatchSize& size) const;

private:
    struct Point {
        RobustMean sum;
        RobustMean longest;
        std::uint64_t seen = 0;  // the curve's batch that was the last of this size
    };
    struct Curve {
        std::array<Point, kVerifyRowsMax + 1> points = {};  // by rows
        std::uint64_t batches = 0;

        [[nodiscard]] bool knows(std::uint32_t rows) const {
            return points[rows].sum.known() && batches - points[rows].seen <= kForgotten;
        }
    };
    using Key = std::pair<int, int>;  // powers of two: requests, context

    [[nodiscard]] static Key key_of(const BatchSize& size);
    [[nodiscard]] const Curve* curve_near(const Key& key) const;

    std::map<Key, Curve> curves_;
};

}  // namespace paceline
