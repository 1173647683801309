// rows_worth(): how many candidates a verify batch takes.
//
// A round takes `fixed` + t(rows) and yields one token for each request and p more for each
// candidate that is right with probability p (its whole path). Of all numbers of rows the one with
// the greatest tokens per time is taken, plain decoding included: with rows in the order of p this
// is where p falls below g dt, g being the rate of the best plan. A row must also be worth its
// time at plain decoding's rate: a slow round must not admit more rows. All stopping places are
// compared, since t(rows) has steps (tiles of a kernel).
// Source: SmartSpec (arXiv 2406.14066) for the goal; rows are compared one by one here, since each
// has an estimate of its own.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace paceline {

struct RowPrices {
    double fixed_us = 0.0;    // of the round beside its batch: waits, passes, hops
    double plain_rate = 0.0;  // tokens per microsecond of all requests; 0: not known
    std::function<double(std::uint32_t rows)> time_us;  // of a batch; < 0: unknown
};

/// `probabilities`: of the candidates, descending. `base`: rows that the batch has in any case,
/// each of which yields a token. 0: a batch beside others that are on their way, at the rate
/// `plain_rate`; without candidates it is not sent and costs nothing.
[[nodiscard]] std::size_t rows_worth(std::span<const double> probabilities,
                                     std::uint32_t base,
                                     const RowPrices& prices);

}  // namespace paceline
