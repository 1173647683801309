// Two ends of a connection on 127.0.0.1, on one io_context that the test runs.
//
// One thread; run_until() gives up after ten seconds, so that a test fails and does not hang.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

#include "ipc/remote/secure_connection.hpp"

namespace paceline::test {

inline remote::NodeKey key_of(char digit) {
    return remote::NodeKey::from_text(std::string(64, digit), "test").value();
}

inline remote::Hello hello_of(const remote::Build& build = remote::this_build(),
                              remote::Channel channel = remote::Channel::Main) {
    remote::Hello hello;
    hello.build = build.name;
    hello.channel = channel;
    return hello;
}

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// One end: the connection, what it received, how it ended.
struct End {
    void start(remote::ConnectionPtr with) {
        connection = std::move(with);
        connection->start({.on_frame = [this](const remote::Frame& frame, Epoch epoch) -> Status {
                               epochs.push_back(epoch);
                               kinds.push_back(remote::kind_of(frame));
                               if (const auto* part = std::get_if<remote::TensorPart>(&frame)) {
                                   tensor_bytes += part->bytes.size();
                               }
                               return on_frame ? on_frame(frame) : Status{};
                           },
                           .on_end =
                               [this](const Error& error) {
                                   CHECK_FALSE(end.has_value());
                                   end = error;
                               },
                           .on_room = [this] { ++rooms; }});
    }
    remote::Sent send(const remote::Frame& frame,
                      remote::Lane lane = remote::Lane::Control,
                      bool urgent = false) {
        return connection->send(frame, Epoch{5}, lane, urgent);
    }
    [[nodiscard]] bool received(remote::Kind kind) const {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    }
    remote::ConnectionPtr connection;
    std::vector<remote::Kind> kinds;
    std::vector<Epoch> epochs;
    std::uint64_t tensor_bytes = 0;
    std::optional<Error> end;
    int rooms = 0;
    std::function<Status(const remote::Frame&)> on_frame;
};

struct ConnectionFixture {
    using Clock = std::chrono::steady_clock;

    void listen(const remote::NodeKey& key = key_of('1'), bool start = true) {
        const auto accept = [this, start](remote::ConnectionPtr connection) {
            if (start) {
                server.start(std::move(connection));
            } else {
                server.connection = std::move(connection);
            }
        };
        Result<std::unique_ptr<remote::SecureListener>> made = remote::SecureListener::listen(
            io, {"127.0.0.1", 0}, key, server_options,
            {.on_connection = accept,
             .on_refused = [this](const std::string& line) { refusals.push_back(line); }});
        REQUIRE(made.ok());
        listener = std::move(made).value();
    }
    void connect(const remote::NodeKey& key = key_of('1'),
                 std::chrono::milliseconds limit = std::chrono::milliseconds{5'000}) {
        connecting =
            remote::connect_to(io, listener->place(), key, client_options, Clock::now() + limit,
                               [this](Result<remote::ConnectionPtr> result) {
                                   ++connected;
                                   if (result.ok()) {
                                       client.start(std::move(result).value());
                                   } else {
                                       connect_error = result.error();
                                   }
                               });
    }
    /// Both ends have said Hello.
    void join() {
        listen();
        connect();
        REQUIRE(run_until([this] { return server.connection && client.connection; }));
        CHECK(server.send(hello_of()) == remote::Sent::Queued);
        CHECK(client.send(hello_of()) == remote::Sent::Queued);
        REQUIRE(run_until([this] { return !server.kinds.empty() && !client.kinds.empty(); }));
    }
    template <class Condition>
    bool run_until(Condition condition) {
        const Clock::time_point deadline = Clock::now() + std::chrono::seconds{10};
        while (!condition()) {
            if (Clock::now() > deadline) return false;
            io.restart();
            io.run_one_for(std::chrono::milliseconds{20});
        }
        return true;
    }

    boost::asio::io_context io;
    remote::ConnectionOptions server_options;
    remote::ConnectionOptions client_options;
    std::unique_ptr<remote::SecureListener> listener;
    std::unique_ptr<remote::Connecting> connecting;
    std::vector<std::string> refusals;
    std::optional<Error> connect_error;
    int connected = 0;  // calls of `done`
    End server;
    End client;
};

}  // namespace paceline::test
