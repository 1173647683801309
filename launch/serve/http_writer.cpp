#include "launch/serve/http_writer.hpp"

#include <fmt/core.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/status.hpp>

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

/// Values are the server's own or were checked: none has a line break.
std::string status_line(int status, unsigned version) {
    const auto reason = boost::beast::http::obsolete_reason(
        boost::beast::http::int_to_status(static_cast<unsigned>(status)));
    return fmt::format("HTTP/1.{} {} {}\r\nServer: paceline\r\n", version == 10 ? 0 : 1, status,
                       std::string_view{reason.data(), reason.size()});
}

std::string shared_fields(const ResponseTerms& terms, bool keep_alive) {
    std::string fields = "X-Content-Type-Options: nosniff\r\n";
    if (!terms.origin.empty())
        fields += "Access-Control-Allow-Origin: " + terms.origin +
                  "\r\nAccess-Control-Expose-Headers: Retry-After, X-Stream-Id\r\nVary: Origin\r\n";
    if (!keep_alive) {
        fields += "Connection: close\r\n";
    } else if (terms.version == 10) {
        fields += "Connection: keep-alive\r\n";
    }
    return fields;
}

}  // namespace

asio::awaitable<bool> HttpWriter::write_bytes(const std::string& bytes) {
    boost::system::error_code error;
    std::size_t written = 0;
    while (!error && written < bytes.size()) {
        stream_.expires_after(context_.limits.write);  // of a client that takes nothing
        written += co_await stream_.async_write_some(
            asio::buffer(bytes) + written, asio::redirect_error(asio::use_awaitable, error));
    }
    stream_.expires_never();
    co_return !error;
}

asio::awaitable<bool> HttpWriter::write(const Reply& given, const ResponseTerms& terms) {
    const Reply reply = in_form(given, terms.errors);
    const bool goes_on = terms.keep_alive && !reply.closes && !context_.draining;
    std::string bytes = status_line(reply.status, terms.version);
    bytes += "Content-Type: " + reply.content_type + "\r\nCache-Control: no-store\r\n";
    if (reply.retry_after_s > 0) bytes += fmt::format("Retry-After: {}\r\n", reply.retry_after_s);
    if (!reply.allow.empty()) bytes += "Allow: " + reply.allow + "\r\n";
    if (reply.status == 401) bytes += "WWW-Authenticate: Bearer\r\n";
    bytes += reply.fields + shared_fields(terms, goes_on);
    bytes += fmt::format("Content-Length: {}\r\n\r\n", reply.body.size());
    if (!terms.head_only) bytes += reply.body;
    context_.metrics.add_response(reply.status);
    const bool written = co_await write_bytes(bytes);
    if (!written) co_return false;
    co_return goes_on;
}

asio::awaitable<bool> HttpWriter::begin_events(const ResponseTerms& terms,
                                               const std::string& stream_id) {
    chunked_ = terms.version >= 11;
    std::string bytes = status_line(200, terms.version);
    bytes +=
        "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        "X-Accel-Buffering: no\r\n";
    if (!stream_id.empty()) bytes += "X-Stream-Id: " + stream_id + "\r\n";
    if (chunked_) bytes += "Transfer-Encoding: chunked\r\n";
    bytes += shared_fields(terms, terms.keep_alive && chunked_ && !context_.draining) + "\r\n";
    context_.metrics.add_response(200);
    co_return co_await write_bytes(bytes);
}

asio::awaitable<bool> HttpWriter::write_events(std::string_view events, bool last) {
    std::string bytes;
    if (!chunked_) {
        bytes = events;
    } else {
        if (!events.empty()) bytes = fmt::format("{:x}\r\n{}\r\n", events.size(), events);
        if (last) bytes += "0\r\n\r\n";
    }
    const bool written = co_await write_bytes(bytes);
    if (!written) co_return false;
    co_return !last || chunked_;
}

asio::awaitable<bool> HttpWriter::write_preflight(const ResponseTerms& terms) {
    std::string bytes = status_line(204, terms.version);
    bytes +=
        "Access-Control-Allow-Methods: GET, POST\r\n"
        "Access-Control-Allow-Headers: Authorization, Content-Type, Last-Event-ID, X-Api-Key, "
        "Anthropic-Version, Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access\r\n"
        "Access-Control-Max-Age: 600\r\n";
    bytes += shared_fields(terms, terms.keep_alive) + "\r\n";
    context_.metrics.add_response(204);
    const bool written = co_await write_bytes(bytes);
    if (!written) co_return false;
    co_return terms.keep_alive;
}

asio::awaitable<bool> HttpWriter::write_continue() {
    const std::string bytes = "HTTP/1.1 100 Continue\r\n\r\n";
    co_return co_await write_bytes(bytes);
}

}  // namespace paceline::serve
