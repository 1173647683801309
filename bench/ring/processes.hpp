// Two processes on chosen cores, and what their times come to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "ipc/base/check.hpp"

namespace paceline::bench {

using Clock = std::chrono::steady_clock;

struct Cores {
    int here = 0;   // of the process that measures
    int there = 0;  // of the one that answers
};

inline void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(core), &set);
    PACE_CHECK(::sched_setaffinity(0, sizeof set, &set) == 0, "cannot pin to the core asked for");
}

/// Runs `there` in a child, `here` in this process, both pinned, until both are over.
template <class Here, class There>
void run_both(Cores cores, Here&& here, There&& there) {
    const pid_t child = ::fork();
    PACE_CHECK(child >= 0, "fork");
    if (child == 0) {
        pin(cores.there);
        there();
        ::_exit(0);
    }
    pin(cores.here);
    here();
    int status = 0;
    PACE_CHECK(::waitpid(child, &status, 0) == child && status == 0, "the other end failed");
}

/// The value below which `share` of them lie.
[[nodiscard]] inline double percentile(std::vector<double> values, double share) {
    PACE_CHECK(!values.empty(), "nothing was measured");
    const auto at = std::min(values.size() - 1,
                             static_cast<std::size_t>(static_cast<double>(values.size()) * share));
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(at);
    std::nth_element(values.begin(), place, values.end());
    return *place;
}
[[nodiscard]] inline double median(std::vector<double> values) {
    return percentile(std::move(values), 0.5);
}

/// One way, in microseconds: half of each of `count` round trips through `link`.
template <class Link>
[[nodiscard]] std::vector<double> round_trips(Link& link, Cores cores, std::size_t count) {
    const std::size_t warm_up = count / 10;
    std::vector<double> micros;
    micros.reserve(count);
    const auto here = [&] {
        for (std::size_t i = 0; i < warm_up + count; ++i) {
            const auto start = Clock::now();
            link.send(0);
            link.receive(0);
            const std::chrono::duration<double, std::micro> took = Clock::now() - start;
            if (i >= warm_up) micros.push_back(took.count() / 2);
        }
    };
    const auto there = [&] {
        for (std::size_t i = 0; i < warm_up + count; ++i) {
            link.receive(1);
            link.send(1);
        }
    };
    run_both(cores, here, there);
    return micros;
}

}  // namespace paceline::bench
