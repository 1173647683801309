// answer_asked(): the answer to a request that was admitted, by its route.
//
// On the I/O thread; what takes long runs on the pool.
#pragma once

#include <utility>  // before Boost.Asio, which uses std::exchange() without it

#include <boost/asio/awaitable.hpp>

#include "launch/serve/http_answers.hpp"
#include "launch/serve/http_context.hpp"
#include "launch/serve/http_stream.hpp"
#include "launch/serve/http_writer.hpp"

namespace paceline::serve {

/// True: the connection may go on.
boost::asio::awaitable<bool> answer_asked(HttpStream& stream,
                                          HttpContext& context,
                                          const Asked& asked,
                                          const ResponseTerms& terms);

}  // namespace paceline::serve
