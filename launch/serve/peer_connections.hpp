// PeerConnections: how many connections each address has open, with a limit.
//
// The empty name is this machine, which has no limit: a proxy here brings all clients. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace paceline::serve {

class PeerConnections {
public:
    /// `most`: of one address; 0: no limit.
    explicit PeerConnections(std::size_t most) : most_{most} {}

    void set_most(std::size_t most) { most_ = most; }
    /// False: the peer has as many as it may. Each true is followed by a remove().
    [[nodiscard]] bool add(const std::string& peer) {
        const auto at = open_.try_emplace(peer, 0).first;
        if (!peer.empty() && most_ > 0 && at->second >= most_) return false;
        ++at->second;
        return true;
    }
    void remove(const std::string& peer) {
        const auto at = open_.find(peer);
        if (at != open_.end() && --at->second == 0) open_.erase(at);
    }
    [[nodiscard]] std::size_t peers() const { return open_.size(); }

private:
    std::size_t most_;
    std::map<std::string, std::size_t> open_;
};

}  // namespace paceline::serve
