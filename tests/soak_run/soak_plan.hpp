// SoakPlan: the options of a soak. Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace paceline::testing {

/// A planted bug, to show that the soak finds it.
enum class SoakBug : std::uint8_t { None, WrongToken, MemoryLeak, DescriptorLeak, Hang };

/// Parts of a soak that may be left out.
struct SoakParts {
    bool long_rest = true;  // a conversation is continued after a very long rest
    bool leftovers = true;  // at the end stages hold nothing of requests that are over
};

struct SoakPlan {
    std::chrono::milliseconds length{60'000};
    std::uint64_t seed = 1;
    int streams = 8;  // requests that are open at once
    std::chrono::milliseconds fault_every{5'000};
    std::chrono::milliseconds hang_limit{90'000};  // without a token, and of one turn of the loop
    std::string model;
    std::string method = "four-stages";
    SoakParts parts = {};
    SoakBug bug = SoakBug::None;
    bool verbose = false;  // the news of the supervisor on stderr
};

using SoakClock = std::chrono::steady_clock;

}  // namespace paceline::testing
