// Measures a connection between machines (ipc/remote) beside plain TCP on the same way: the round
// trip of a verdict's frame, and the throughput of tensors. README.md says how to read the table.
//
//     bench_hop [--rounds N]                                   two processes, over loopback
//     bench_hop --listen HOST:PORT --key FILE                  on one machine
//     bench_hop --connect HOST:PORT --key FILE [--rounds N]    on the other; it prints the table
//
// Plain TCP is at the next port: one thread with blocking calls, the least that TCP can take.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <functional>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <variant>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "ipc/remote/secure_connection.hpp"

using namespace paceline;
using namespace paceline::remote;
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;
using Socket = asio::ip::tcp::socket;

constexpr std::size_t kTrips = 5'000;
constexpr std::size_t kVerdictBytes = 352;
constexpr std::size_t kVerdictFrameBytes = kNodeHeaderBytes + 8 + kVerdictBytes;
constexpr std::size_t kParts = 2'000;  // of kPartBytesMax: 500 MiB
constexpr std::uint16_t kVerdictKind = 3;

struct Figures {
    double trip_us = 0;  // median
    double gb_per_s = 0;
};

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "bench_hop: %s\n", what.c_str());
    std::exit(1);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- plain TCP ----

void serve_plain(Socket& socket) {
    std::array<std::byte, kVerdictFrameBytes> verdict{};
    for (std::size_t i = 0; i < kTrips; ++i) {
        asio::read(socket, asio::buffer(verdict));
        asio::write(socket, asio::buffer(verdict));
    }
    std::vector<std::byte> part(kPartBytesMax);
    for (std::size_t i = 0; i < kParts; ++i) asio::read(socket, asio::buffer(part));
    asio::write(socket, asio::buffer(verdict));
}

Figures ask_plain(Socket& socket) {
    std::array<std::byte, kVerdictFrameBytes> verdict{};
    std::vector<double> trips;
    for (std::size_t i = 0; i < kTrips; ++i) {
        const Clock::time_point start = Clock::now();
        asio::write(socket, asio::buffer(verdict));
        asio::read(socket, asio::buffer(verdict));
        trips.push_back(seconds_since(start) * 1e6);
    }
    const std::vector<std::byte> part(kPartBytesMax);
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < kParts; ++i) asio::write(socket, asio::buffer(part));
    asio::read(socket, asio::buffer(verdict));
    return {median(trips), static_cast<double>(kParts * part.size()) / seconds_since(start) / 1e9};
}

// ---- a connection of ipc/remote ----

Hello hello() {
    Hello said;
    said.build = this_build().name;
    return said;
}

/// Runs the io_context as a relay does: without sleeping while there is work.
template <class Condition>
void run_until(asio::io_context& io, Condition condition) {
    while (!condition()) {
        if (io.stopped()) io.restart();
        if (io.poll() == 0) io.run_one_for(std::chrono::milliseconds{100});
    }
}

class Server {
public:
    explicit Server(ConnectionPtr connection) : connection_{std::move(connection)} {
        connection_->start({.on_frame = [this](const Frame& frame, Epoch) { return take(frame); },
                            .on_end = [this](const Error&) { over = true; },
                            .on_room = {}});
        say(hello());
    }
    bool over = false;

private:
    void say(const Frame& frame) { (void)connection_->send(frame, Epoch{1}, Lane::Data, true); }
    Status take(const Frame& frame) {
        if (const auto* edge = std::get_if<EdgeFrame>(&frame)) say(*edge);
        if (std::holds_alternative<TensorPart>(frame) && ++parts_ % kParts == 0) say(EdgeRoom{});
        return {};
    }
    ConnectionPtr connection_;
    std::size_t parts_ = 0;
};

class Asker {
public:
    Asker(asio::io_context& io, ConnectionPtr connection)
        : io_{io}, connection_{std::move(connection)} {
        connection_->start({.on_frame =
                                [this](const Frame&, Epoch) {
                                    ++answers_;
                                    return Status{};
                                },
                            .on_end = [](const Error& error) { fail(error.what); },
                            .on_room = [this] { room_ = true; }});
        if (connection_->send(hello(), Epoch{1}, Lane::Data, true) != Sent::Queued)
            fail("no hello");
        run_until(io_, [this] { return answers_ == 1; });
    }
    Figures ask() {
        const std::vector<std::byte> verdict(kVerdictBytes);
        std::vector<double> trips;
        for (std::size_t i = 0; i < kTrips; ++i) {
            const Clock::time_point start = Clock::now();
            send(EdgeFrame{1, kVerdictKind, true, verdict});
            wait_for_answer();
            trips.push_back(seconds_since(start) * 1e6);
        }
        const std::vector<std::byte> bytes(kPartBytesMax);
        TensorPart part;
        part.total = bytes.size();
        part.bytes = bytes;
        const Clock::time_point start = Clock::now();
        for (std::size_t i = 0; i < kParts; ++i) send(part);
        wait_for_answer();
        return {median(trips),
                static_cast<double>(kParts * bytes.size()) / seconds_since(start) / 1e9};
    }

private:
    void send(const Frame& frame) {
        while (connection_->send(frame, Epoch{1}, Lane::Data, false) != Sent::Queued) {
            room_ = false;
            run_until(io_, [this] { return room_; });
        }
    }
    void wait_for_answer() {
        const std::size_t before = answers_;
        run_until(io_, [&] { return answers_ > before; });
    }
    asio::io_context& io_;
    ConnectionPtr connection_;
    std::size_t answers_ = 0;
    bool room_ = false;
};

// ---- both ----

void serve(const NodePlace& place,
           const NodeKey& key,
           const std::function<void(NodePlace)>& ready) {
    asio::io_context io;
    std::unique_ptr<Server> server;
    Result<std::unique_ptr<SecureListener>> listener =
        SecureListener::listen(io, place, key, {},
                               {.on_connection =
                                    [&](ConnectionPtr connection) {
                                        server = std::make_unique<Server>(std::move(connection));
                                    },
                                .on_refused = [](const std::string& line) { fail(line); }});
    if (!listener.ok()) fail(listener.error().what);
    const NodePlace own = listener.value()->place();
    const asio::ip::tcp::endpoint plain{asio::ip::make_address(own.host),
                                        static_cast<std::uint16_t>(own.port + 1)};
    asio::ip::tcp::acceptor acceptor{io, plain};
    ready(own);
    std::thread thread{[&] {
        Socket socket{io};
        acceptor.accept(socket);
        socket.set_option(asio::ip::tcp::no_delay{true});
        try {
            for (;;) serve_plain(socket);
        } catch (const boost::system::system_error&) {  // the asker has ended
        }
    }};
    run_until(io, [&] { return server && server->over; });
    thread.join();
}

void ask(const NodePlace& place, const NodeKey& key, int rounds) {
    asio::io_context io;
    ConnectionPtr connection;
    const auto connecting = connect_to(io, place, key, {}, Clock::now() + std::chrono::seconds{10},
                                       [&](Result<ConnectionPtr> result) {
                                           if (!result.ok()) fail(result.error().what);
                                           connection = std::move(result).value();
                                       });
    run_until(io, [&] { return connection != nullptr; });
    Asker asker{io, std::move(connection)};
    Socket socket{io};
    asio::ip::tcp::resolver resolver{io};
    asio::connect(socket, resolver.resolve(place.host, std::to_string(place.port + 1)));
    socket.set_option(asio::ip::tcp::no_delay{true});

    std::vector<double> plain_us, own_us, plain_gb, own_gb, speed, latency;
    for (int round = 0; round < rounds; ++round) {
        const Figures plain = ask_plain(socket);
        const Figures own = asker.ask();
        plain_us.push_back(plain.trip_us);
        own_us.push_back(own.trip_us);
        plain_gb.push_back(plain.gb_per_s);
        own_gb.push_back(own.gb_per_s);
        latency.push_back(plain.trip_us / own.trip_us);
        speed.push_back(own.gb_per_s / plain.gb_per_s);
    }
    fmt::print("| | plain TCP | ipc/remote | share |\n| --- | ---: | ---: | ---: |\n");
    fmt::print("| round trip of {} bytes, us | {:.1f} | {:.1f} | {:.2f} |\n", kVerdictFrameBytes,
               median(plain_us), median(own_us), median(latency));
    fmt::print("| tensors in parts of {} KiB, GB/s | {:.2f} | {:.2f} | {:.2f} |\n",
               kPartBytesMax / 1024, median(plain_gb), median(own_gb), median(speed));
}

void on_loopback(int rounds) {
    const NodeKey key = NodeKey::random().value();
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) fail("pipe");
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve({"127.0.0.1", 0}, key, [&](const NodePlace& place) {
            if (::write(pipe[1], &place.port, sizeof place.port) < 0) fail("write");
        });
        std::exit(0);
    }
    std::uint16_t port = 0;
    if (child < 0 || ::read(pipe[0], &port, sizeof port) != sizeof port)
        fail("the server did not start");
    ask({"127.0.0.1", port}, key, rounds);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

}  // namespace

int main(int count, char** words) {
    std::string listen, connect, key_file;
    int rounds = 5;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string_view option = words[i];
        const std::string value = words[i + 1];
        if (option == "--listen")
            listen = value;
        else if (option == "--connect")
            connect = value;
        else if (option == "--key")
            key_file = value;
        else if (option == "--rounds")
            rounds = std::atoi(value.c_str());
        else
            fail(fmt::format("unknown option {}", option));
    }
    if (rounds < 1) fail("--rounds is at least 1");
    if (listen.empty() && connect.empty()) {
        on_loopback(rounds);
        return 0;
    }
    const Result<NodeKey> key = NodeKey::from_file(key_file);
    if (!key.ok()) fail(key.error().what);
    const Result<NodePlace> place = NodePlace::parse(listen.empty() ? connect : listen);
    if (!place.ok()) fail(place.error().what);
    if (listen.empty()) {
        ask(place.value(), key.value(), rounds);
    } else {
        serve(place.value(), key.value(), [](const NodePlace& own) {
            fmt::print("listening at {}\n", own.text());
            std::fflush(stdout);
        });
    }
    return 0;
}
