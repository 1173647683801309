// RunEnd: why a run has to end: a signal to this process, or a recovery that was given up, with the
// failures that led to it.
//
// Threads: the supervisor's.
#pragma once

#include <optional>

#include "ipc/base/result.hpp"
#include "runtime/parent/failure_log.hpp"

namespace paceline {

class RunEnd {
public:
    /// SIGINT or SIGTERM.
    void interrupt(int signal) { signal_ = signal; }
    /// The orderly stop begins; another signal cuts it short.
    void forget_signal() { signal_ = 0; }
    /// Adds the failures of the run to the reason.
    void give_up(const Error& error) {
        given_up_ = Error{error.code, error.what + failures_.text()};
    }
    [[nodiscard]] FailureLog& failures() { return failures_; }

    /// Errc::Cancelled after a signal.
    [[nodiscard]] Status interrupted() const;
    [[nodiscard]] Status given_up() const { return given_up_ ? Status{*given_up_} : Status{}; }

private:
    int signal_ = 0;
    FailureLog failures_;
    std::optional<Error> given_up_;
};

}  // namespace paceline
