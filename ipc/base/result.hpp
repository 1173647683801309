// Result<T>: a value, or the reason why there is none.
//
// For errors of files, peers, devices and users. The text of an Error is one sentence for the user:
// the operation, its object, the numbers, and the next step.
// Owns its value; not thread-safe.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "ipc/base/check.hpp"

namespace paceline {

enum class Errc : unsigned char {
    BadArgument,  // an invalid value or combination of values from the user
    BadFile,      // a file is missing, unreadable, truncated, corrupt
    Unsupported,  // well-formed, but Paceline cannot run it; the text names the feature
    OutOfMemory,  // does not fit into the memory of the device or the host
    PeerGone,     // a stage died or closed its channel
    Protocol,     // a peer sent an invalid message
    Cancelled,    // stopped by the user or a caller
    System,       // a system call failed
};

struct Error {
    Errc code = Errc::System;
    std::string what;
};

template <class T>
class [[nodiscard]] Result {
public:
    // NOLINTNEXTLINE(google-explicit-constructor): `return value;` must read naturally
    Result(T value) : state_{std::in_place_index<0>, std::move(value)} {}
    // NOLINTNEXTLINE(google-explicit-constructor): `return Error{...};` must read naturally
    Result(Error error) : state_{std::in_place_index<1>, std::move(error)} {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    [[nodiscard]] T& value() & {
        PACE_CHECK(ok(), "value() of a failed Result");
        return std::get<0>(state_);
    }
    [[nodiscard]] const T& value() const& {
        PACE_CHECK(ok(), "value() of a failed Result");
        return std::get<0>(state_);
    }
    [[nodiscard]] T&& value() && {
        PACE_CHECK(ok(), "value() of a failed Result");
        return std::get<0>(std::move(state_));
    }
    [[nodiscard]] const Error& error() const {
        PACE_CHECK(!ok(), "error() of a successful Result");
        return std::get<1>(state_);
    }

private:
    std::variant<T, Error> state_;
};

/// The outcome of an operation without a value.
class [[nodiscard]] Status {
public:
    Status() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): `return Error{...};` must read naturally
    Status(Error error) : failed_{true}, error_{std::move(error)} {}

    [[nodiscard]] bool ok() const { return !failed_; }
    explicit operator bool() const { return ok(); }
    [[nodiscard]] const Error& error() const {
        PACE_CHECK(failed_, "error() of a successful Status");
        return error_;
    }

private:
    bool failed_ = false;
    Error error_;
};

}  // namespace paceline
