// MethodInUse: the method that a server decodes with now, for what it tells of itself.
//
// With --method auto it may change between two requests, so each reader takes a copy.
// Threads: all members of SharedMethod from any.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace paceline::serve {

struct MethodInUse {
    std::string name = {};      // of the pipeline
    std::string reason = {};    // why this one; empty: it was named by the user
    int gamma = 0;              // candidates after each other that it verifies at most
    std::uint64_t changes = 0;  // since the server's start
};

class SharedMethod {
public:
    [[nodiscard]] MethodInUse get() const {
        const std::lock_guard lock{mutex_};
        return now_;
    }
    void set(MethodInUse now) {
        const std::lock_guard lock{mutex_};
        now_ = std::move(now);
    }

private:
    mutable std::mutex mutex_;
    MethodInUse now_;
};

}  // namespace paceline::serve
