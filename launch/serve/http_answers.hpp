// answer_request(): POST /v1/chat/completions and /v1/completions, from the body to the last byte
// of the answer.
//
//     body -> prepare (pool) -> submit -> [events or one body] -> the connection may go on
//
// A client that closes while it waits, while its prompt is processed or in the middle of the
// answer ends its answers, by the destructor of AnswerSet. A client that reads slowly delays
// itself alone: the answers grow in their streams. One coroutine a request, on the I/O thread.
#pragma once

#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "launch/api/routes.hpp"
#include "launch/serve/http_context.hpp"
#include "launch/serve/http_writer.hpp"

namespace paceline::serve {

/// `endpoint`: Chat or Completions. Precondition: context.model. True: the connection may go on.
boost::asio::awaitable<bool> answer_request(boost::beast::tcp_stream& stream,
                                            HttpContext& context,
                                            Endpoint endpoint,
                                            const std::string& body,
                                            const ResponseTerms& terms);

}  // namespace paceline::serve
