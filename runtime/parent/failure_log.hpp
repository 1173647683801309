// FailureLog: which stage failed first in a run, and what followed.
//
// One failure often causes others, so the last failure is seldom the cause. Kept are the first
// failure in full (with the last lines that the stage wrote) and the latest ones in a line each.
// Bounded; one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "runtime/loop/context.hpp"

namespace paceline {

class FailureLog {
public:
    static constexpr std::size_t kLaterMax = 8;

    /// `why`: a sentence, perhaps with lines after it that the stage wrote. `at`: of any clock that
    /// only goes forward, in the order of the calls.
    void note(Micros at, std::string why);

    /// Lines to append to the error that ends a run, each beginning with a newline; empty if there
    /// was at most one failure, which is that error.
    [[nodiscard]] std::string text() const;

private:
    struct Failure {
        Micros at;
        std::string why;
    };
    std::optional<Failure> first_;
    std::deque<Failure> later_;  // the newest kLaterMax
    std::size_t omitted_ = 0;
};

}  // namespace paceline
