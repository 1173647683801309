// OptimiseBudget: whether a job that looks for a better skip set may run: only while all such jobs
// have taken less than a share of the time of decoding.
//
// A value; not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace paceline {

class OptimiseBudget {
public:
    using Micros = std::chrono::microseconds;

    /// `share`: of the decoding time. A job has so many rows, of which `rows_of_round` take about
    /// as long as a round; a batch of many rows costs less for each.
    OptimiseBudget(double share, std::int32_t job_rows, int rows_of_round)
        : share_{share}, job_rows_{job_rows}, rows_of_round_{rows_of_round} {}

    void round_ended() { ++rounds_; }
    /// `whole`: it was not cancelled, and did more than write a file: the next one takes about as
    /// long.
    void job_ended(Micros took, bool whole) {
        spent_ += took;
        if (whole) last_ = took;
    }
    /// The next job's time: that of the last whole one; before the first one an estimate from its
    /// rows and the time of a round.
    [[nodiscard]] Micros next_job(Micros decoding) const {
        if (last_ > Micros{0}) return last_;
        return decoding * job_rows_ / (std::max<std::int64_t>(rounds_, 1) * rows_of_round_);
    }
    /// Whether a job that takes so long may follow so much time of decoding.
    [[nodiscard]] bool allows(Micros job, Micros decoding) const {
        const auto limit = static_cast<double>(decoding.count()) * share_;
        return static_cast<double>((spent_ + job).count()) < limit;
    }

private:
    double share_;
    std::int32_t job_rows_;
    int rows_of_round_;
    std::int64_t rounds_ = 0;
    Micros spent_{0};  // by all jobs
    Micros last_{0};
};

}  // namespace paceline
