// BodyBudget: how many bytes of requests' bodies the server holds at once, over all connections.
//
//     BodyShare share{budget, declared length, or the most that a body may have};
//     if (!share.taken()) ...   503: others hold too much
//     share.shrink_to(bytes);   the body is read, and so long
//
// A share is given back with its object. On the I/O thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace paceline::serve {

struct BodyBudget {
    std::uint64_t most = std::uint64_t{256} * 1024 * 1024;
    std::uint64_t held = 0;
};

class BodyShare {
public:
    BodyShare(BodyBudget& budget, std::uint64_t bytes) : budget_{budget} {
        taken_ = bytes <= budget.most - std::min(budget.most, budget.held);
        if (taken_) hold(bytes);
    }
    BodyShare(const BodyShare&) = delete;
    BodyShare& operator=(const BodyShare&) = delete;
    ~BodyShare() { budget_.held -= bytes_; }

    [[nodiscard]] bool taken() const { return taken_; }
    /// At most what was asked for. Precondition: taken().
    void shrink_to(std::uint64_t bytes) {
        budget_.held -= bytes_;
        hold(std::min(bytes, bytes_));
    }

private:
    void hold(std::uint64_t bytes) {
        bytes_ = bytes;
        budget_.held += bytes;
    }

    BodyBudget& budget_;
    std::uint64_t bytes_ = 0;
    bool taken_ = false;
};

}  // namespace paceline::serve
