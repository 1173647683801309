// deep_health(): GET /health?deep=1: the state of GET /health, and whether a token can be decoded.
//
// The token is that of a request of its own, which goes before all that wait and is in no count.
// Where every place is taken, a token of another answer or rows of another prompt show the same.
// One such request runs at a time, and its result holds for a second: however many ask, the engine
// decodes one token a second for them.
// On the I/O thread.
#pragma once

#include <utility>  // before Boost.Asio, which uses std::exchange() without it

#include <boost/asio/awaitable.hpp>

#include "launch/api/reply.hpp"
#include "launch/serve/http_context.hpp"

namespace paceline::serve {

/// 503 with the status `stuck` if no token came within some seconds. Precondition: context.model.
boost::asio::awaitable<Reply> deep_health(HttpContext& context);

}  // namespace paceline::serve
