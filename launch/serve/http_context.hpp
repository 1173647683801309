// HttpContext: what the connections of a server share.
//
// One per server. Members are used on the I/O thread alone, but for `pool`, which runs what takes
// long: JSON, templates, tokenising.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "launch/api/served_model.hpp"
#include "launch/serve/access_rules.hpp"
#include "launch/serve/body_budget.hpp"
#include "launch/serve/kept_streams.hpp"
#include "launch/serve/serve_metrics.hpp"

namespace paceline::serve {

struct HttpLimits {
    std::uint32_t header_bytes = 16 * 1024;
    std::size_t header_fields = 100;
    std::uint64_t body_bytes = 8 * 1024 * 1024;
    std::chrono::seconds idle{30};                 // of a connection without a request
    std::chrono::milliseconds header{10'000};      // of a request, until its head is complete
    std::chrono::milliseconds body{60'000};        // until its body is
    std::chrono::milliseconds recovery{30'000};    // of the engine, until requests are refused
    std::chrono::seconds write{30};                // of one write: a reader that stands still
    std::chrono::milliseconds keep_alive{10'000};  // between two comments in a stream
};

/// The last GET /health?deep=1: all that come while it runs, or soon after, have its result.
struct DeepHealth {
    bool runs = false;
    std::chrono::steady_clock::time_point ended{};
    bool decoded = false;
    std::chrono::milliseconds took{0};
};

struct HttpContext {
    explicit HttpContext(AccessRules rules) : access{std::move(rules)} {}

    AccessRules access;
    HttpLimits limits = {};
    ServeMetrics metrics = {};
    KeptStreams streams{};
    ServedModel* model = nullptr;  // nullptr: it is being loaded
    std::string waits_for = {};    // what loading waits for, for people; empty: nothing else
    bool draining = false;
    DeepHealth deep{};
    BodyBudget bodies{};
    std::size_t exchanges = 0;  // requests that are answered now
    std::uint64_t requests = 0;
    std::string run_id = {};  // in the ids of responses: two runs do not repeat them
    boost::asio::thread_pool pool{2};
};

/// The stages' cores are planned for them: the server's threads give way.
void lower_thread_priority();

/// Executes `work` on the pool; the coroutine goes on on its own thread.
template <class Work>
boost::asio::awaitable<std::invoke_result_t<Work&>> on_pool(HttpContext& context, Work work) {
    using Made = std::optional<std::invoke_result_t<Work&>>;
    auto task = [&work]() -> boost::asio::awaitable<Made> {
        lower_thread_priority();
        co_return Made{work()};
    };
    Made made = co_await boost::asio::co_spawn(context.pool.get_executor(), std::move(task),
                                               boost::asio::use_awaitable);
    co_return std::move(*made);
}

}  // namespace paceline::serve
