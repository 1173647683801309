// FakeDevice: a TensorDevice whose memory is the host's, for tests of loops and processes without a
// GPU.
//
//   Exported   slots in a memfd, whose descriptor is the offer: what the producer writes is there
//              at once.
//   Nccl       slots of each end's own; a memfd between them takes tensors in the order of send(),
//              and gives them out in the order of expect(). A count that differs is noticed
//              (mismatches).
//
// A test can delay or break links: they do not open until may_open, tensors do not arrive until
// may_arrive. Call nudge() after changing one of these. Threads: the switches and counters are
// atomic; a consumer's Nccl end has a thread that calls `wake`, as real links have.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ipc/transport/tensor_link.hpp"

namespace paceline::testing {

class FakeDevice final : public TensorDevice {
public:
    struct Switches {
        std::atomic<bool> may_open{true};
        std::atomic<bool> may_arrive{true};
        std::atomic<bool> may_reuse{true};
        std::atomic<bool> opening_fails{false};
        std::atomic<bool> polling_fails{false};
        std::atomic<bool> out_of_memory{false};
    };
    struct Counts {
        std::atomic<int> sent{0};
        std::atomic<int> expected{0};
        std::atomic<int> mismatches{0};
        std::atomic<int> links{0};  // that live
        std::atomic<int> opened_in{0};
        std::atomic<int> opened_out{0};
    };
    /// What links share with their device; they may outlive it.
    struct State {
        Switches may;
        Counts counts;
        std::mutex mutex;
        std::vector<const LinkSpec*> specs;  // of links that live; under the mutex
    };

    FakeDevice();
    [[nodiscard]] Switches& may() { return state_->may; }
    [[nodiscard]] const Counts& counts() const { return state_->counts; }
    /// Calls `wake` of all links.
    void nudge();

    [[nodiscard]] Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override;
    [[nodiscard]] Result<std::unique_ptr<InLink>> open_in(Transport transport,
                                                          LinkSpec spec,
                                                          LinkOffer& offer) override;
    [[nodiscard]] Result<std::unique_ptr<OutLink>> open_out(Transport transport,
                                                            LinkSpec spec,
                                                            LinkOffer offer) override;

private:
    std::shared_ptr<State> state_;
};

}  // namespace paceline::testing
