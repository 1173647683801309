// NcclIssuer: the one thread of a device that calls NCCL.
//
// NCCL requires one order of operations on a device: the thread serves its channels
// (nccl_channel.hpp) in turn, and while an operation of one is being launched no other starts one
// (turn). It sleeps while all are idle.
//
// abort() of a communicator can take long, or not return (a dead peer, a driver that waits). Then
// health() returns an error: memory and communicator remain, and only the end of the process frees
// them.
//
// Threads: add(), nudge(), health() and the destructor from the loop's; the rest is the issuer's
// own. The destructor closes all channels and waits at most kCloseLimit.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "ipc/base/result.hpp"
#include "ipc/device/driver.hpp"
#include "ipc/device/nccl.hpp"

namespace paceline {

class NcclChannel;

class NcclIssuer {
public:
    static constexpr std::chrono::seconds kCloseLimit{5};

    NcclIssuer(std::shared_ptr<Driver> driver, std::shared_ptr<Nccl> nccl);
    NcclIssuer(const NcclIssuer&) = delete;
    NcclIssuer& operator=(const NcclIssuer&) = delete;
    ~NcclIssuer();

    void add(std::shared_ptr<NcclChannel> channel);
    /// A channel has something to do.
    void nudge();
    /// An error is final: the process has to end. Names the link whose abort does not return.
    [[nodiscard]] Status health() const;

private:
    struct Shared;
    static void run(const std::shared_ptr<Shared>& shared);

    std::shared_ptr<Shared> shared_;  // the thread's too, which may outlive this object
    std::thread thread_;
};

}  // namespace paceline
