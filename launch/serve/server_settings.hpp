// ListenPlace, ServerSettings: where a server listens, and its limits that are options.
// Plain values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace paceline::serve {

struct ListenPlace {
    std::string host = "127.0.0.1";
    std::uint16_t port = 0;      // 0: a free one
    std::string unix_path = {};  // instead of both
};

struct ServerSettings {
    std::chrono::milliseconds keep_alive{10'000};     // between two comments in a stream
    std::chrono::milliseconds head_timeout{10'000};   // until a request's head has arrived
    std::chrono::milliseconds body_timeout{60'000};   // until its body has
    std::chrono::milliseconds recovery_wait{30'000};  // then further requests are refused
    std::chrono::milliseconds resume{60'000};         // how long a stream is kept; 0: not at all
    std::size_t peer_connections = 0;                 // of one address; 0: no limit
};

}  // namespace paceline::serve
