// Peers that are none of ours: what they send costs one connection and one line.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <fmt/core.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/transport/owned_fd.hpp"
#include "tests/unit/ipc/seeded_random.hpp"
#include "tests/unit/ipc_remote/connection_fixture.hpp"

using namespace paceline;
using namespace paceline::remote;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

/// A plain connection to the listener, from an address of this machine.
OwnedFd plain_connection(const NodePlace& place, const std::string& from = "127.0.0.1") {
    OwnedFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in own{};
    own.sin_family = AF_INET;
    REQUIRE(::inet_pton(AF_INET, from.c_str(), &own.sin_addr) == 1);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(place.port);
    REQUIRE(::inet_pton(AF_INET, place.host.c_str(), &address.sin_addr) == 1);
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return fd;
}

/// OpenSSL as a peer uses it that does not follow our rules.
struct RawTls {
    explicit RawTls(int fd) : context{SSL_CTX_new(TLS_client_method())}, ssl{SSL_new(context)} {
        SSL_set_fd(ssl, fd);
    }
    RawTls(const RawTls&) = delete;
    RawTls& operator=(const RawTls&) = delete;
    ~RawTls() {
        SSL_free(ssl);
        SSL_CTX_free(context);
    }
    SSL_CTX* context;
    SSL* ssl;
};

int offer_with_early_data(SSL* ssl,
                          const EVP_MD*,
                          const unsigned char** identity,
                          std::size_t* identity_bytes,
                          SSL_SESSION** session) {
    constexpr std::array<unsigned char, 2> kSuite = {0x13, 0x01};
    const std::array<unsigned char, kNodeKeyBytes> key = [] {
        std::array<unsigned char, kNodeKeyBytes> bytes{};
        bytes.fill(0x11);
        return bytes;
    }();
    *session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*session, key.data(), key.size());
    SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, kSuite.data()));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    SSL_SESSION_set_max_early_data(*session, 16 * 1024);
    static constexpr std::string_view kName = "paceline";
    *identity = reinterpret_cast<const unsigned char*>(kName.data());
    *identity_bytes = kName.size();
    return 1;
}

int offer_no_exchange(SSL* ssl,
                      const EVP_MD* hash,
                      const unsigned char** identity,
                      std::size_t* identity_bytes,
                      SSL_SESSION** session) {
    const int result = offer_with_early_data(ssl, hash, identity, identity_bytes, session);
    SSL_SESSION_set_max_early_data(*session, 0);
    return result;
}

}  // namespace

TEST_CASE_FIXTURE(ConnectionFixture,
                  "strange bytes cost one connection and one line, and the next peer is served") {
    listen();
    SeededRandom random{7};
    std::vector<std::string> texts = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                      "SSH-2.0-OpenSSH_9.2\r\n", std::string(3000, '\0'),
                                      std::string("\x16\x03\x01\x00\x05hello")};
    for (int i = 0; i < 20; ++i) {
        std::string text(50 + random.below(500), '\0');
        for (char& c : text) c = static_cast<char>(random.next());
        // Some of them begin like a ClientHello.
        if (random.one_in(2)) text.replace(0, 5, std::string{"\x16\x03\x01\x00\x30", 5});
        texts.push_back(text);
    }
    for (const std::string& text : texts) {
        const std::size_t lines = refusals.size();
        OwnedFd fd = plain_connection(listener->place());
        REQUIRE(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(text.size()));
        ::shutdown(fd.get(), SHUT_WR);
        REQUIRE(run_until([&] { return refusals.size() > lines; }));
        CHECK(refusals.size() == lines + 1);
        CHECK(has(refusals.back(), "connection with 127.0.0.1:"));
        CHECK(refusals.back().find('\n') == std::string::npos);
    }
    CHECK(has(refusals[0], "its bytes are not TLS 1.3"));
    CHECK(has(refusals[1], "its bytes are not TLS 1.3"));
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
}

TEST_CASE_FIXTURE(
    ConnectionFixture,
    "a peer that connects and says nothing is given up, and does not keep others waiting") {
    server_options.greet_limit = 300ms;
    listen();
    const OwnedFd silent = plain_connection(listener->place());
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    CHECK(refusals.empty());
    REQUIRE(run_until([this] { return !refusals.empty(); }));
    CHECK(has(refusals.front(), "it has not proved a key within 300 ms"));
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "more silent peers than may prove the key at once do not delay others") {
    listen();
    std::vector<OwnedFd> silent;
    for (int i = 0; i < 80; ++i) silent.push_back(plain_connection(listener->place()));
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    // Of one address 16 may be there at once; the one that proved the key ended one of them too.
    CHECK(refusals.size() == 80 - 15);
    CHECK(has(refusals.front(), "too many connections prove no key"));
}

TEST_CASE_FIXTURE(
    ConnectionFixture,
    "an address with many silent connections ends only its own, until all are too many") {
    listen();
    std::vector<OwnedFd> silent;
    for (int i = 0; i < 40; ++i) silent.push_back(plain_connection(listener->place(), "127.0.0.2"));
    REQUIRE(run_until([this] { return refusals.size() == 40 - 16; }));
    for (int host = 3; host < 6; ++host) {
        for (int i = 0; i < 16; ++i)
            silent.push_back(plain_connection(listener->place(), fmt::format("127.0.0.{}", host)));
    }
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    REQUIRE(refusals.size() == 40 - 16 + 1);
    for (const std::string& line : refusals) CHECK(has(line, "connection with 127.0.0.2:"));
}

TEST_CASE_FIXTURE(ConnectionFixture, "a peer that ends in mid-handshake costs one line") {
    listen();
    {
        const OwnedFd fd = plain_connection(listener->place());
        REQUIRE(::send(fd.get(), "\x16\x03\x01\x02\x00", 5, MSG_NOSIGNAL) == 5);
    }
    REQUIRE(run_until([this] { return !refusals.empty(); }));
    CHECK(has(refusals.front(), "it closed before it had proved a key"));
}

TEST_CASE_FIXTURE(ConnectionFixture, "TLS without a key is refused") {
    listen();
    const OwnedFd fd = plain_connection(listener->place());
    int result = 1;
    std::thread peer{[&] {
        const RawTls tls{fd.get()};
        result = SSL_connect(tls.ssl);
    }};
    REQUIRE(run_until([this] { return !refusals.empty(); }));
    peer.join();
    CHECK(result != 1);
    CHECK(has(refusals.front(), "it has no key"));
    CHECK_FALSE(server.connection);
}

TEST_CASE_FIXTURE(ConnectionFixture, "older TLS is refused") {
    listen();
    const OwnedFd fd = plain_connection(listener->place());
    std::thread peer{[&] {
        const RawTls tls{fd.get()};
        SSL_set_max_proto_version(tls.ssl, TLS1_2_VERSION);
        CHECK(SSL_connect(tls.ssl) != 1);
    }};
    REQUIRE(run_until([this] { return !refusals.empty(); }));
    peer.join();
    CHECK(has(refusals.front(), "it does not speak TLS 1.3"));
}

TEST_CASE_FIXTURE(ConnectionFixture, "early data of a peer that has the key are not taken") {
    listen();
    const OwnedFd fd = plain_connection(listener->place());
    std::vector<std::byte> early;
    append_frame(early, hello_of(), Epoch{1}, this_build(), Channel::Main);
    int status = -1;
    std::atomic<bool> over = false;
    std::thread peer{[&] {
        const RawTls tls{fd.get()};
        SSL_set_psk_use_session_callback(tls.ssl, offer_with_early_data);
        std::size_t written = 0;
        CHECK(SSL_write_early_data(tls.ssl, early.data(), early.size(), &written) == 1);
        CHECK(written == early.size());
        (void)SSL_connect(tls.ssl);
        status = SSL_get_early_data_status(tls.ssl);
        over = true;
    }};
    REQUIRE(run_until([&] { return over && (server.connection || !refusals.empty()); }));
    peer.join();
    CHECK(status != SSL_EARLY_DATA_ACCEPTED);
    io.restart();
    io.run_for(50ms);
    CHECK(server.kinds.empty());
}

TEST_CASE_FIXTURE(ConnectionFixture, "a key without an ephemeral exchange is refused") {
    listen();
    const OwnedFd fd = plain_connection(listener->place());
    std::thread peer{[&] {
        const RawTls tls{fd.get()};
        SSL_set_options(tls.ssl, SSL_OP_ALLOW_NO_DHE_KEX);
        SSL_set_psk_use_session_callback(tls.ssl, offer_no_exchange);
        // A group that the server does not have: only psk_ke would be left.
        SSL_set1_groups_list(tls.ssl, "P-521");
        CHECK(SSL_connect(tls.ssl) != 1);
    }};
    REQUIRE(run_until([this] { return !refusals.empty(); }));
    peer.join();
    CHECK_FALSE(server.connection);
}

TEST_CASE_FIXTURE(ConnectionFixture, "a server without the key is not believed") {
    // Plain TCP that answers like a web server.
    const OwnedFd listening{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0);
    REQUIRE(::listen(listening.get(), 4) == 0);
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    std::thread peer{[&] {
        const OwnedFd fd{::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\n\r\n";
        (void)::send(fd.get(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
        std::array<char, 64> rest{};
        while (::recv(fd.get(), rest.data(), rest.size(), 0) > 0) {
        }
    }};
    const auto handle = connect_to(io, {"127.0.0.1", ntohs(address.sin_port)}, key_of('1'), {},
                                   Clock::now() + 5s, [this](Result<ConnectionPtr> result) {
                                       REQUIRE_FALSE(result.ok());
                                       connect_error = result.error();
                                   });
    REQUIRE(run_until([this] { return connect_error.has_value(); }));
    peer.join();
    CHECK(connect_error->code == Errc::Protocol);
    CHECK(has(connect_error->what, "its bytes are not TLS 1.3"));
}
