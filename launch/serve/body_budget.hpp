// BodyBudget: how many bytes of requests' bodies the server holds at once, over all connections.
//
//     BodyShare share{budget};
//     ... some bytes of the body arrive ...
//     if (!share.hold(bytes so far)) ...   503: others hold too much
//
// Bytes count once they are there: a body that was announced and is not sent takes nothing of the
// others' room. A share is given back with its object. On the I/O thread.
#pragma once

#include <cstdint>

namespace paceline::serve {

struct BodyBudget {
    std::uint64_t most = std::uint64_t{256} * 1024 * 1024;
    std::uint64_t held = 0;
};

class BodyShare {
public:
    explicit BodyShare(BodyBudget& budget) : budget_{budget} {}
    BodyShare(const BodyShare&) = delete;
    BodyShare& operator=(const BodyShare&) = delete;
    ~BodyShare() { budget_.held -= bytes_; }

    /// `bytes` in all, at least as many as before. False: there is no room, and nothing changes.
    [[nodiscard]] bool hold(std::uint64_t bytes) {
        const std::uint64_t more = bytes - bytes_;
        if (more > budget_.most - budget_.held) return false;
        budget_.held += more;
        bytes_ = bytes;
        return true;
    }

private:
    BodyBudget& budget_;
    std::uint64_t bytes_ = 0;
};

}  // namespace paceline::serve
