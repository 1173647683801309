// HttpStream: a client's connection, over TCP or a Unix socket, with a time limit of its own.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>

namespace paceline::serve {

using HttpProtocol = boost::asio::generic::stream_protocol;
using HttpSocket = HttpProtocol::socket;
using HttpStream = boost::beast::basic_stream<HttpProtocol>;

}  // namespace paceline::serve
