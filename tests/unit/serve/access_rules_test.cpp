#include "launch/serve/access_rules.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launch/serve/peer_connections.hpp"

namespace paceline::serve {
namespace {

class KeyFile {
public:
    explicit KeyFile(const std::string& text)
        : path_{std::filesystem::temp_directory_path() /
                ("paceline-keys-" + std::to_string(::getpid()))} {
        std::ofstream{path_} << text;
    }
    KeyFile(const KeyFile&) = delete;
    KeyFile& operator=(const KeyFile&) = delete;
    ~KeyFile() { std::filesystem::remove(path_); }
    [[nodiscard]] std::string path() const { return path_.string(); }

private:
    std::filesystem::path path_;
};

int status(const std::optional<ApiError>& error) {
    return error ? error->status : 200;
}

TEST_CASE("access: names of this machine") {
    for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"})
        CHECK_MESSAGE(is_loopback_name(host), host);
    for (const char* host : {"", "0.0.0.0", "127.evil.example", "localhost.evil.example",
                             "::", "10.0.0.1", "128.0.0.1"})
        CHECK_MESSAGE(!is_loopback_name(host), host);
}

TEST_CASE("access: without a key only a loopback address is served") {
    CHECK(AccessRules::make("127.0.0.1", {}, {}));
    CHECK(AccessRules::make("::1", {}, {}));
    CHECK_FALSE(AccessRules::make("0.0.0.0", {}, {}));
    CHECK_FALSE(AccessRules::make("example.com", {}, {}));
    const KeyFile keys{"a-long-key\n"};
    CHECK(AccessRules::make("0.0.0.0", {keys.path()}, {}));
    CHECK_FALSE(AccessRules::make("0.0.0.0", {keys.path()}, {"*"}));
    CHECK(AccessRules::make("127.0.0.1", {}, {"*"}));
}

TEST_CASE("access: a key file has a key a line, of visible characters") {
    for (const char* text :
         {"", "# none\n\n", "short\n", "with a space\n", "t\xc3\xa4st-key-1\n"}) {
        const KeyFile keys{text};
        CHECK_MESSAGE(!AccessRules::make("127.0.0.1", {keys.path()}, {}), text);
    }
    const KeyFile keys{"# ours\r\nfirst-key\r\n  second-key  \n"};
    const AccessRules rules = AccessRules::make("127.0.0.1", {keys.path()}, {}).value();
    CHECK(status(rules.check_key({.authorization = "Bearer first-key"})) == 200);
    CHECK(status(rules.check_key({.authorization = "bearer second-key"})) == 200);
    CHECK(status(rules.check_key({.x_api_key = "second-key"})) == 200);
    for (const char* given : {"", "Bearer ", "Bearer first-ke", "Bearer first-keys", "first-key",
                              "Basic first-key", "Bearer FIRST-KEY"})
        CHECK_MESSAGE(status(rules.check_key({.authorization = given})) == 401, given);
}

TEST_CASE("access: without keys the Host must be this machine or what the server is bound to") {
    const AccessRules rules = AccessRules::make("127.0.0.1", {}, {}).value();
    CHECK(status(rules.check_place({.host = "localhost:80"})) == 200);
    CHECK(status(rules.check_place({.host = "[::1]:80"})) == 200);
    CHECK(status(rules.check_place({})) == 400);
    CHECK(status(rules.check_place({.host = "evil.example"})) == 403);
    CHECK(status(rules.check_place({.host = "[::1"})) == 403);
}

TEST_CASE("access: an Origin is the server's own or an allowed one") {
    const AccessRules rules = AccessRules::make("127.0.0.1", {}, {"http://Localhost:3000"}).value();
    const auto from = [](const char* origin) {
        return RequestHead{.host = "localhost:8080", .origin = origin};
    };
    CHECK(status(rules.check_place(from("http://localhost:8080"))) == 200);
    CHECK(rules.allowed_origin(from("http://localhost:8080")).empty());
    CHECK(status(rules.check_place(from("http://localhost:3000"))) == 200);
    CHECK(rules.allowed_origin(from("http://localhost:3000")) == "http://localhost:3000");
    for (const char* origin : {"http://localhost", "https://localhost:8080", "null",
                               "http://localhost:3000.evil.example"})
        CHECK_MESSAGE(status(rules.check_place(from(origin))) == 403, origin);
    // Behind a proxy that speaks TLS.
    const AccessRules on_socket = AccessRules::make(kUnixSocket, {}, {}).value();
    CHECK(status(on_socket.check_place(from("https://localhost:8080"))) == 200);
    CHECK(status(on_socket.check_place(from("https://localhost:8081"))) == 403);
    CHECK(AccessRules::make("127.0.0.1", {}, {"*"}).value().allowed_origin(from("http://x")) ==
          "*");
}

TEST_CASE("access: a body must be announced as JSON") {
    const auto check = [](const char* type) {
        return status(AccessRules::check_content_type({.content_type = type}));
    };
    CHECK(check("application/json") == 200);
    CHECK(check("Application/JSON ; charset=utf-8") == 200);
    CHECK(check("") == 415);
    CHECK(check("text/plain") == 415);
    CHECK(check("application/jsonx") == 415);
}

TEST_CASE("access: a key of a variable counts like those of the file") {
    const AccessRules rules = AccessRules::make("0.0.0.0", {.key = "secret-key-1"}, {}).value();
    CHECK_FALSE(rules.check_key({.x_api_key = "secret-key-1"}));
    CHECK(rules.check_key({.x_api_key = "secret-key-2"}));
    CHECK_FALSE(AccessRules::make("127.0.0.1", {.key = "short"}, {}));
}

TEST_CASE("access: two different keys in one request are refused, whichever of them is valid") {
    const AccessRules rules = AccessRules::make("127.0.0.1", {.key = "secret-key-1"}, {}).value();
    const auto check = [&](const char* authorization, const char* other) {
        return status(rules.check_key({.authorization = authorization, .x_api_key = other}));
    };
    CHECK(check("Bearer secret-key-1", "secret-key-2") == 400);
    CHECK(check("Bearer secret-key-2", "secret-key-1") == 400);
    CHECK(check("Bearer ", "secret-key-1") == 400);
    CHECK(check("Bearer secret-key-1", "secret-key-1") == 200);
    CHECK(check("Bearer secret-key-2", "secret-key-2") == 401);
    CHECK(check("Basic dTpw", "secret-key-1") == 200);  // of a proxy in front: no key of ours
    const AccessRules open = AccessRules::make("127.0.0.1", {}, {}).value();
    CHECK_FALSE(open.check_key({.authorization = "Bearer a", .x_api_key = "b"}));
}

TEST_CASE("access: requests with the same key have one owner, and without keys all have") {
    const AccessRules rules = AccessRules::make("127.0.0.1", {.key = "secret-key-1"}, {}).value();
    const std::string owner = rules.owner_of({.authorization = "Bearer secret-key-1"});
    CHECK(owner.size() == 32);
    CHECK(rules.owner_of({.x_api_key = "secret-key-1"}) == owner);
    CHECK(rules.owner_of({.x_api_key = "secret-key-2"}) != owner);
    CHECK(AccessRules::make("127.0.0.1", {}, {}).value().owner_of({.x_api_key = "x"}).empty());
}

TEST_CASE("access: a Unix socket takes any Host, and needs no key") {
    const AccessRules rules = AccessRules::make(kUnixSocket, {}, {}).value();
    CHECK_FALSE(rules.check_place({.host = "any.example"}));
    CHECK(rules.check_place({.host = "any.example", .origin = "http://evil.example"}));
}

TEST_CASE("peers: an address has a limit, this machine has none") {
    PeerConnections peers{2};
    CHECK(peers.add("192.0.2.1"));
    CHECK(peers.add("192.0.2.1"));
    CHECK_FALSE(peers.add("192.0.2.1"));
    CHECK(peers.add("192.0.2.2"));
    for (int i = 0; i < 10; ++i) CHECK(peers.add(""));
    peers.remove("192.0.2.1");
    CHECK(peers.add("192.0.2.1"));
    peers.remove("192.0.2.1");
    peers.remove("192.0.2.1");
    peers.remove("192.0.2.2");
    CHECK(peers.peers() == 1);
    peers.set_most(0);
    for (int i = 0; i < 10; ++i) CHECK(peers.add("192.0.2.1"));
}

}  // namespace
}  // namespace paceline::serve
