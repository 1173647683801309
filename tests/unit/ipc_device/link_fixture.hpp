// Two ends of a link, tensors through it, and a host-side line between both, in one process or two.
//
// The line is a pair of sockets: one message for every tensor, one for every slot given back.
// Tensors of a run have sizes that follow from their number, and bytes too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ipc/device/device_links.hpp"
#include "ipc/device/driver.hpp"

namespace paceline::test {

using Clock = std::chrono::steady_clock;
inline constexpr std::chrono::seconds kLimit{120};  // so that a test that hangs says where

struct Plan {
    Transport transport = Transport::Exported;
    std::uint32_t slots = 4;
    std::size_t slot_bytes = 4096;
    std::uint32_t tensors = 40;
};

[[nodiscard]] LinkSpec spec_of(const Plan& plan);
[[nodiscard]] std::size_t bytes_of(const Plan& plan, std::uint32_t tensor);

/// A device of the process, and a driver to fill and read what lies on it.
struct Device {
    explicit Device(int number);
    std::unique_ptr<TensorDevice> links;
    std::unique_ptr<Driver> driver;
};

/// Polls until `what` is true; false after `limit`.
bool until(const std::function<bool()>& what, std::chrono::milliseconds limit = kLimit);
/// Empty: open. Else the error, or that it does not open.
[[nodiscard]] std::string opened(TensorLink& link);
/// The error that poll() comes to have; "no error" after `limit`.
[[nodiscard]] Error error_of(TensorLink& link, std::chrono::milliseconds limit = kLimit);

/// A pair of sockets that keep messages apart.
struct Line {
    Line();
    OwnedFd consumer;
    OwnedFd producer;
};

/// Sends the tensors of `plan`. Empty: done; else what went wrong.
[[nodiscard]] std::string produce(OutLink& link, Driver& driver, int line, const Plan& plan);
/// Receives and compares them, each as soon as it is there, in their order.
[[nodiscard]] std::string consume(InLink& link, Driver& driver, int line, const Plan& plan);

/// Both ends in one process, the producer in a thread.
[[nodiscard]] std::string run_both(
    InLink& in, Driver& in_driver, OutLink& out, Driver& out_driver, const Plan& plan);

/// Open descriptors of this process.
[[nodiscard]] int descriptors();

}  // namespace paceline::test
