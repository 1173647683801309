// Fuzzes what a client may send to `paceline serve`: the input is two bytes of set-up and the bytes
// of a connection, which arrive in two parts, at a server that has no model yet. Whatever they are,
// the connection ends, each response is whole, and without its key nothing is told but health and
// page.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "launch/serve/http_connection.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

namespace asio = boost::asio;

constexpr std::string_view kKey = "fuzz-key-1";

constexpr std::string_view kTargets[] = {"/health",
                                         "/v1/health",
                                         "/metrics",
                                         "/version",
                                         "/",
                                         "/openapi.json",
                                         "/v1/models",
                                         "/v1/models/a%2Fb",
                                         "/v1/models/",
                                         "/props",
                                         "/tokenize",
                                         "/v1/chat/completions",
                                         "/completions",
                                         "/health?deep=1&x=%",
                                         "/nothing",
                                         "*",
                                         "/infill",
                                         "http://localhost/health"};
constexpr std::string_view kMethods[] = {"GET", "POST", "HEAD", "OPTIONS", "DELETE", "BREW"};
constexpr std::string_view kFields[] = {"Host: localhost\r\n",
                                        "Host: evil.example\r\n",
                                        "Host: [::1]:80\r\n",
                                        "Authorization: Bearer fuzz-key-1\r\n",
                                        "authorization: bearer wrong-key\r\n",
                                        "X-Api-Key: fuzz-key-1\r\n",
                                        "Content-Type: application/json\r\n",
                                        "Content-Type: text/plain; x=y\r\n",
                                        "Origin: http://localhost:3000\r\n",
                                        "Origin: null\r\n",
                                        "Connection: close\r\n",
                                        "Connection: keep-alive, upgrade\r\n",
                                        "Expect: 100-continue\r\n",
                                        "Transfer-Encoding: chunked\r\n",
                                        "Transfer-Encoding: gzip, chunked\r\n",
                                        "Content-Length: 2\r\n",
                                        "Content-Length: 99999999999999999999\r\n",
                                        "Content-Length: -1\r\n",
                                        "Last-Event-ID: 7\r\n",
                                        "Range: bytes=0-1\r\n",
                                        "Upgrade: h2c\r\n",
                                        ": nameless\r\n",
                                        " folded: x\r\n",
                                        "X: \xff\x01\r\n"};
constexpr std::string_view kBodies[] = {"", "{}", "2\r\n{}\r\n0\r\n\r\n",
                                        "2;x=y\r\n{}\r\n0\r\nA: b\r\n\r\n",
                                        "ffffffffffffffff\r\n{}\r\n"};

serve::AccessRules rules(bool with_key) {
    Result<serve::AccessRules> made = serve::AccessRules::make(
        "127.0.0.1", {.key = with_key ? std::string{kKey} : ""}, {"http://localhost:3000"});
    PACE_CHECK(made.ok(), "rules");
    return std::move(made).value();
}

/// The client's end of a connection to a server in this thread.
class Client {
public:
    Client(asio::io_context& io, serve::HttpContext& context) : io_{io} {
        std::array<int, 2> ends{};
        PACE_CHECK(
            ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
            "no socket");
        own_ = ends[0];
        serve::HttpSocket socket{io};
        socket.assign(serve::HttpProtocol{AF_UNIX, 0}, ends[1]);
        auto serve = [](serve::HttpSocket taken,
                        serve::HttpContext& shared) -> asio::awaitable<void> {
            serve::HttpConnection connection{std::move(taken), shared};
            co_await connection.run();
        };
        asio::co_spawn(io, serve(std::move(socket), context), [this](const std::exception_ptr& e) {
            PACE_CHECK(e == nullptr, "an exception left a connection");
            over_ = true;
        });
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { ::close(own_); }

    void send(std::string_view bytes) {
        while (!bytes.empty() && !over_) {
            const ssize_t sent = ::send(own_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
            if (sent < 0 && errno == EPIPE) return;
            turn();
        }
        turn();
    }
    /// Until the server has ended the connection; what came.
    const std::string& rest() {
        ::shutdown(own_, SHUT_WR);
        while (!over_) {
            turn();
            if (over_) break;
            if (io_.stopped()) io_.restart();
            io_.poll_one();
        }
        turn();
        return got_;
    }

private:
    void turn() {
        if (io_.stopped()) io_.restart();
        while (io_.poll() > 0) {
        }
        std::array<char, 65536> block;
        for (ssize_t n = 0; (n = ::recv(own_, block.data(), block.size(), 0)) > 0;)
            got_.append(block.data(), static_cast<std::size_t>(n));
    }

    asio::io_context& io_;
    int own_ = -1;
    bool over_ = false;
    std::string got_;
};

/// Takes the first response off `bytes`: its status.
int take_response(std::string_view& bytes) {
    PACE_CHECK(bytes.starts_with("HTTP/1.1 ") || bytes.starts_with("HTTP/1.0 "), "no status line");
    const std::size_t end = bytes.find("\r\n\r\n");
    PACE_CHECK(end != bytes.npos, "a head without end");
    const std::string_view head = bytes.substr(0, end + 2);
    const int status = std::stoi(std::string{head.substr(9, 3)});
    bytes.remove_prefix(end + 4);
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const std::size_t length = head.find(kLength);
    if (length == head.npos) {
        PACE_CHECK(status == 100 || status == 204, "a response without length");
        return status;
    }
    const std::size_t size = std::stoul(std::string{head.substr(length + kLength.size(), 8)});
    // To HEAD the body is left out.
    if (bytes.empty() || bytes.starts_with("HTTP/1.")) return status;
    PACE_CHECK(bytes.size() >= size, "a body that is cut");
    bytes.remove_prefix(size);
    return status;
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    std::string text(2, '\0');
    text[0] = static_cast<char>(random.next());
    text[1] = static_cast<char>(random.next());
    for (std::uint32_t requests = 1 + random.below(3); requests > 0; --requests) {
        const std::string_view method = random.below(3) == 0
                                            ? kMethods[random.below(std::size(kMethods))]
                                            : kMethods[random.below(2)];
        text +=
            std::string{method} + " " + std::string{kTargets[random.below(std::size(kTargets))]};
        text += random.one_in(8) ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n";
        if (!random.one_in(4)) text += kFields[0];
        for (std::uint32_t fields = random.below(5); fields > 0; --fields)
            text += kFields[random.below(std::size(kFields))];
        text += "\r\n";
        text += kBodies[random.below(std::size(kBodies))];
    }
    return {text.begin(), text.end()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static asio::io_context io{1};
    static serve::HttpContext open{rules(false)};
    static serve::HttpContext locked{rules(true)};
    if (size < 2) return 0;
    serve::HttpContext& context = data[0] % 2 == 0 ? open : locked;
    const std::string_view bytes{reinterpret_cast<const char*>(data) + 2, size - 2};
    const std::size_t cut = bytes.size() * data[1] / 255;
    Client client{io, context};
    client.send(bytes.substr(0, cut));
    client.send(bytes.substr(cut));
    const std::string& got = client.rest();
    PACE_CHECK(context.exchanges == 0, "a request is still open");
    for (std::string_view rest = got; !rest.empty();) {
        const int status = take_response(rest);
        constexpr std::array kKnown{100, 200, 204, 400, 401, 403, 404,
                                    405, 408, 413, 415, 431, 501, 503};
        PACE_CHECK(std::find(kKnown.begin(), kKnown.end(), status) != kKnown.end(),
                   "another status");
    }
    const bool told = got.find("paceline_http_responses_total") != got.npos;
    PACE_CHECK(&context == &open || !told || bytes.find(kKey) != bytes.npos,
               "metrics without a key");
    return 0;
}
