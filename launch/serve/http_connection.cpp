#include "launch/serve/http_connection.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/read.hpp>

#include "launch/serve/http_dispatch.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

using Request = http::request<GrowingBody>;

constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kPartingBytes = 1024 * 1024;
constexpr std::chrono::seconds kPartingTime{1};

std::string_view view_of(boost::beast::string_view text) {
    return {text.data(), text.size()};
}

RequestHead head_of_request(const Request& request) {
    return {.method = view_of(request.method_string()),
            .target = view_of(request.target()),
            .host = view_of(request[http::field::host]),
            .origin = view_of(request[http::field::origin]),
            .authorization = view_of(request[http::field::authorization]),
            .x_api_key = view_of(request["X-Api-Key"]),
            .content_type = view_of(request[http::field::content_type])};
}

/// Ends what reads the stream when a time is over. Unlike the stream's own limit it leaves the
/// socket open: the client is told.
class ReadLimit {
public:
    static constexpr std::chrono::milliseconds kCancelAgain{20};

    ReadLimit(HttpStream& stream, std::chrono::milliseconds time)
        : shared_{std::make_shared<Shared>(stream)} {
        stream.expires_never();
        shared_->timer.expires_after(time);
        watch(shared_);
    }
    ReadLimit(const ReadLimit&) = delete;
    ReadLimit& operator=(const ReadLimit&) = delete;
    ~ReadLimit() {
        shared_->left = true;
        shared_->timer.cancel();
    }
    [[nodiscard]] bool is_over() const { return shared_->over; }

private:
    /// A handler that is due may run after the end of the connection: it sees `left` alone.
    struct Shared {
        explicit Shared(HttpStream& read) : stream{read}, timer{read.get_executor()} {}
        HttpStream& stream;
        asio::steady_timer timer;
        bool over = false;
        bool left = false;
    };
    /// A cancel() ends only a read that waits. While bytes keep coming none does, so it is repeated
    /// until the reader has left.
    static void watch(const std::shared_ptr<Shared>& shared) {
        shared->timer.async_wait([shared](const boost::system::error_code& error) {
            if (error || shared->left) return;
            shared->over = true;
            shared->stream.cancel();
            shared->timer.expires_after(kCancelAgain);
            watch(shared);
        });
    }

    std::shared_ptr<Shared> shared_;
};

/// The answer to bytes that are no request; nothing: the connection just ends.
std::optional<ApiError> parse_error(const boost::system::error_code& error) {
    ApiError refused{.status = 400,
                     .message = "the request is not valid HTTP",
                     .code = "bad_request",
                     .ends = true};
    if (error == boost::beast::error::timeout) {
        refused.status = 408;
        refused.message = "the request did not arrive in time";
        refused.code = "request_timeout";
        return refused;
    }
    if (error == http::error::header_limit) {
        refused.status = 431;
        refused.message = "the head of the request is too long";
        return refused;
    }
    if (error == http::error::body_limit) {
        refused.status = 413;
        refused.message = "the body of the request is too long";
        refused.code = "body_too_long";
        return refused;
    }
    const bool gone = error == http::error::end_of_stream || error == http::error::partial_message;
    const bool foreign = error.category() != make_error_code(http::error::bad_method).category();
    if (gone || foreign) return {};
    return refused;
}

/// A name that is twice in a head may mean different things to a proxy and to this server.
std::optional<ApiError> bad_head(const Request& request, const HttpLimits& limits) {
    const auto fields = static_cast<std::size_t>(std::distance(request.begin(), request.end()));
    if (fields > limits.header_fields)
        return ApiError{.status = 431,
                        .message = "the head of the request has too many fields",
                        .code = "bad_request"};
    bool twice = request.count("X-Api-Key") > 1;
    for (const http::field name :
         {http::field::host, http::field::origin, http::field::authorization,
          http::field::content_type, http::field::content_length})
        twice = twice || request.count(name) > 1;
    if (!twice) return {};
    return ApiError{.status = 400,
                    .message = "a field of the request's head is there twice",
                    .code = "bad_request"};
}

/// What the head alone decides.
ApiResult<Route> admitted(const Request& request, const RequestHead& head, HttpContext& context) {
    if (const auto error = bad_head(request, context.limits)) return *error;
    if (const auto error = context.access.check_place(head)) return *error;
    ApiResult<Route> route = find_route(head.method, head.target);
    const bool open = route && route.value().is_open();
    if (!open) {
        if (const auto error = context.access.check_key(head)) return *error;
    }
    if (!route) return route;
    if (route.value().takes_body()) {
        if (const auto error = AccessRules::check_content_type(head)) return *error;
    }
    return route;
}

/// Counts a request for as long as it is answered: the server ends when there is none.
class OpenExchange {
public:
    explicit OpenExchange(HttpContext& context) : context_{context} { ++context_.exchanges; }
    OpenExchange(const OpenExchange&) = delete;
    OpenExchange& operator=(const OpenExchange&) = delete;
    ~OpenExchange() { --context_.exchanges; }

private:
    HttpContext& context_;
};

}  // namespace

HttpConnection::HttpConnection(HttpSocket socket, HttpContext& context)
    : stream_{std::move(socket)}, context_{context}, writer_{stream_, context} {
    boost::system::error_code ignored;
    stream_.socket().set_option(asio::ip::tcp::no_delay{true}, ignored);
}

asio::awaitable<void> HttpConnection::run() {
    // One co_await a statement: GCC 12 miscompiles those in conditions of && and ||.
    while (true) {
        const bool input = co_await wait_for_input();
        if (!input) break;
        const bool goes_on = co_await exchange();
        if (!goes_on) break;
    }
    co_await part();
}

asio::awaitable<void> HttpConnection::refuse() {
    const Reply reply = reply_of({.status = 429,
                                  .message = "this address has too many connections open",
                                  .code = "too_many_connections",
                                  .retry_after_s = 1,
                                  .ends = true});
    const ResponseTerms terms{.keep_alive = false};
    co_await writer_.write(reply, terms);
    co_await part();
}

/// Closing a socket with unread input resets the connection, and the client may lose the last
/// response: the input is read and dropped for a limited time.
asio::awaitable<void> HttpConnection::part() {
    boost::system::error_code error;
    stream_.socket().shutdown(HttpSocket::shutdown_send, error);
    stream_.expires_after(kPartingTime);
    for (std::size_t bytes = 0; !error && bytes < kPartingBytes;) {
        bytes += co_await stream_.async_read_some(buffer_.prepare(kReadBytes),
                                                  asio::redirect_error(asio::use_awaitable, error));
    }
}

asio::awaitable<bool> HttpConnection::wait_for_input() {
    if (buffer_.size() > 0) co_return true;
    boost::system::error_code error;
    stream_.expires_after(context_.limits.idle);
    const std::size_t got = co_await stream_.async_read_some(
        buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(got);
    co_return !error;
}

asio::awaitable<bool> HttpConnection::exchange() {
    Parser parser;
    parser.header_limit(context_.limits.header_bytes);
    parser.body_limit(context_.limits.body_bytes);
    boost::system::error_code error;
    {
        const ReadLimit limit{stream_, context_.limits.header};
        co_await http::async_read_header(stream_, buffer_, parser,
                                         asio::redirect_error(asio::use_awaitable, error));
        if (limit.is_over()) error = boost::beast::error::timeout;
    }
    if (error) {
        co_await write_parse_error(error);
        co_return false;
    }
    const OpenExchange open{context_};
    const Request& request = parser.get();
    const RequestHead head = head_of_request(request);
    ResponseTerms terms{.version = request.version() >= 11 ? 11U : 10U,
                        .keep_alive = request.keep_alive(),
                        .head_only = head.method == "HEAD",
                        .origin = context_.access.allowed_origin(head),
                        .errors = error_form_of(head.target)};
    if (head.method == "OPTIONS" && !terms.origin.empty() && parser.is_done() &&
        !context_.access.check_place(head))
        co_return co_await writer_.write_preflight(terms);
    ApiResult<Route> route = admitted(request, head, context_);
    if (!route) {
        Reply reply = reply_of(route.error());
        reply.closes = reply.closes || !parser.is_done();  // its body was not read
        co_return co_await writer_.write(reply, terms);
    }
    if (!parser.is_done() && !route.value().takes_body()) {
        // It would be read in vain, and endpoints without a key are among these.
        Reply reply = reply_of(ApiError{
            .status = 413, .message = "this path takes no body", .code = "body_not_expected"});
        reply.closes = true;
        co_return co_await writer_.write(reply, terms);
    }
    BodyShare share{context_.bodies};
    if (!parser.is_done()) {
        const bool read = co_await read_body(parser, share, terms);
        if (!read) co_return false;
    }
    const std::string owner = route.value().is_health() ? "" : context_.access.owner_of(head);
    const Asked asked{.route = std::move(route.value()),
                      .body = std::move(parser.get().body()),
                      .owner = owner,
                      .last_event_id = std::string{view_of(request["Last-Event-ID"])}};
    co_return co_await answer_asked(stream_, context_, asked, terms);
}

/// False: the connection ends.
asio::awaitable<bool> HttpConnection::read_body(Parser& parser,
                                                BodyShare& share,
                                                const ResponseTerms& terms) {
    const auto expects = parser.get()[http::field::expect];
    if (!expects.empty() && boost::beast::iequals(expects, "100-continue")) {
        const bool written = co_await writer_.write_continue();
        if (!written) co_return false;
    }
    boost::system::error_code error;
    bool room = true;
    parser.eager(true);
    {
        const ReadLimit limit{stream_, context_.limits.body};
        while (room && !error && !limit.is_over() && !parser.is_done()) {
            co_await http::async_read_some(stream_, buffer_, parser,
                                           asio::redirect_error(asio::use_awaitable, error));
            room = share.hold(parser.get().body().size());
        }
        if (limit.is_over()) error = boost::beast::error::timeout;
    }
    if (error) {
        co_await write_parse_error(error);
        co_return false;
    }
    if (room) co_return true;
    Reply reply = reply_of(ApiError{.status = 503,
                                    .message = "too many bytes of other requests are held",
                                    .code = "server_busy",
                                    .retry_after_s = 1});
    reply.closes = true;
    co_return co_await writer_.write(reply, terms);
}

asio::awaitable<void> HttpConnection::write_parse_error(boost::system::error_code error) {
    const std::optional<ApiError> refused = parse_error(error);
    if (!refused) co_return;
    const Reply reply = reply_of(*refused);
    const ResponseTerms terms{.keep_alive = false};
    co_await writer_.write(reply, terms);
}

}  // namespace paceline::serve
