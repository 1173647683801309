// HttpConnection: reads the requests of one client, one after the other, and answers them.
//
//     idle -> head -> access rules, route -> body -> answer -> idle
//
// What a head alone decides is decided before the body is read. A request that breaks a limit or
// HTTP itself is answered with an error if that is possible, and ends the connection.
// Owns the socket. On the I/O thread.
#pragma once

#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>

#include "launch/serve/body_budget.hpp"
#include "launch/serve/http_body.hpp"
#include "launch/serve/http_context.hpp"
#include "launch/serve/http_writer.hpp"

namespace paceline::serve {

class HttpConnection {
public:
    HttpConnection(HttpSocket socket, HttpContext& context);
    HttpConnection(const HttpConnection&) = delete;
    HttpConnection& operator=(const HttpConnection&) = delete;

    /// Until client or server ends the connection.
    boost::asio::awaitable<void> run();
    /// Instead of run(): the peer has too many connections.
    boost::asio::awaitable<void> refuse();
    /// Ends what run() waits for.
    void close() { stream_.close(); }

private:
    using Parser = boost::beast::http::request_parser<GrowingBody>;

    boost::asio::awaitable<bool> wait_for_input();
    boost::asio::awaitable<void> part();
    boost::asio::awaitable<bool> exchange();
    boost::asio::awaitable<bool> read_body(Parser& parser,
                                           BodyShare& share,
                                           const ResponseTerms& terms);
    boost::asio::awaitable<void> write_parse_error(boost::system::error_code error);

    HttpStream stream_;
    HttpContext& context_;
    HttpWriter writer_;
    boost::beast::flat_buffer buffer_;
};

}  // namespace paceline::serve
