// HttpWriter: writes the responses of one connection: whole ones, and streams of events.
//
// A write that a client does not take within HttpLimits::write ends the connection. After false the
// connection is of no further use. Borrows stream and context. On the I/O thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "launch/api/reply.hpp"
#include "launch/serve/http_context.hpp"
#include "launch/serve/http_stream.hpp"

namespace paceline::serve {

/// What a response owes to its request.
struct ResponseTerms {
    unsigned version = 11;    // 10: no chunks
    bool keep_alive = true;   // the connection goes on afterwards
    bool head_only = false;   // HEAD
    std::string origin = {};  // Access-Control-Allow-Origin; empty: none
    ErrorForm errors = ErrorForm::OpenAi;
};

class HttpWriter {
public:
    HttpWriter(HttpStream& stream, HttpContext& context) : stream_{stream}, context_{context} {}

    /// True: the connection may go on.
    boost::asio::awaitable<bool> write(const Reply& reply, const ResponseTerms& terms);

    /// The head of a stream of events; `stream_id`: by which it can be resumed, may be empty.
    /// False: the client is gone, and of the next two.
    boost::asio::awaitable<bool> begin_events(const ResponseTerms& terms,
                                              const std::string& stream_id);
    boost::asio::awaitable<bool> write_events(std::string_view events, bool last);
    /// 204 to a browser's question whether a page may ask.
    boost::asio::awaitable<bool> write_preflight(const ResponseTerms& terms);
    boost::asio::awaitable<bool> write_continue();

private:
    boost::asio::awaitable<bool> write_bytes(const std::string& bytes);

    HttpStream& stream_;
    HttpContext& context_;
    bool chunked_ = true;
};

}  // namespace paceline::serve
