// Both connections of a link over the loopback interface, with TLS.
#include "runtime/cluster/node_link.hpp"

#include <chrono>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

#include "ipc/remote/secure_connection.hpp"

using namespace paceline;

namespace {

using remote::Channel;
using std::chrono::seconds;

constexpr remote::StageKey kStage{StageId{1}, Epoch{1}};

remote::Hello hello(Channel channel) {
    remote::Hello hello;
    hello.build = remote::this_build().name;
    hello.node = "a";
    hello.channel = channel;
    return hello;
}

remote::StageControl begin(std::size_t bytes) {
    remote::StageControl frame;
    frame.who = kStage;
    frame.type = static_cast<std::uint16_t>(control::Type::Begin);
    frame.body.assign(bytes, std::byte{7});
    return frame;
}

/// A conductor's link and what its agent receives, with both connections.
struct Pair {
    Pair() {
        listener =
            remote::SecureListener::listen(
                io, {"127.0.0.1", 0}, key, {.channel_by_hello = true},
                {.on_connection = [this](remote::ConnectionPtr connection) { receive(connection); },
                 .on_refused = {}})
                .value();
        for (const Channel channel : {Channel::Main, Channel::Bulk}) {
            dialling.push_back(remote::connect_to(
                io, listener->place(), key, {.channel = channel},
                std::chrono::steady_clock::now() + seconds{5},
                [this, channel](Result<remote::ConnectionPtr> made) {
                    REQUIRE(made.ok());
                    if (channel == Channel::Main) {
                        link = std::make_unique<NodeLink>(made.value());
                        link->start({.on_frame = [](const remote::Frame&) { return Status{}; },
                                     .on_end = [](const Error&) {},
                                     .on_room = [] {}});
                        link->say(hello(channel));
                    } else {
                        bulk = made.value();
                        bulk->start(
                            {.on_frame = [](const remote::Frame&, Epoch) { return Status{}; },
                             .on_end = [](const Error&) {},
                             .on_room = [this] { link->on_bulk_room(); }});
                        (void)bulk->send(hello(channel), Epoch{}, remote::Lane::Control, true);
                    }
                }));
        }
        run_until([this] { return greeted == 2 && link != nullptr && bulk != nullptr; });
    }
    void receive(const remote::ConnectionPtr& connection) {
        const std::size_t index = received.size();
        received.push_back(connection);
        connection->start({.on_frame =
                               [this, index](const remote::Frame& frame, Epoch) {
                                   on_frame(index, frame);
                                   return Status{};
                               },
                           .on_end = [](const Error&) {},
                           .on_room = {}});
    }
    void on_frame(std::size_t index, const remote::Frame& frame) {
        if (const auto* said = std::get_if<remote::Hello>(&frame)) {
            ++greeted;
            if (said->channel == Channel::Main) main_index = index;
        } else if (const auto* mark = std::get_if<remote::BulkMark>(&frame)) {
            marks.push_back(mark->begins);
        } else if (const auto* control = std::get_if<remote::StageControl>(&frame)) {
            (index == main_index ? on_main : on_bulk).push_back(control->body.size());
        }
    }
    template <class Done>
    void run_until(Done done) {
        const auto deadline = std::chrono::steady_clock::now() + seconds{20};
        while (!done() && std::chrono::steady_clock::now() < deadline)
            io.run_one_for(std::chrono::milliseconds{50});
        REQUIRE(done());
    }

    boost::asio::io_context io;
    remote::NodeKey key = remote::NodeKey::random().value();
    std::unique_ptr<remote::SecureListener> listener;
    std::vector<std::unique_ptr<remote::Connecting>> dialling;
    std::unique_ptr<NodeLink> link;
    remote::ConnectionPtr bulk;
    std::vector<remote::ConnectionPtr> received;
    int greeted = 0;
    std::size_t main_index = 0;
    std::vector<std::uint64_t> marks;
    std::vector<std::size_t> on_main;
    std::vector<std::size_t> on_bulk;
};

}  // namespace

TEST_CASE("a long Begin goes on the second connection behind a mark, all others on the first") {
    Pair pair;
    constexpr std::size_t kLong = 3U << 20;
    pair.link->say(begin(kLong));  // before the second connection is known
    pair.link->say(begin(remote::kMainBeginBytesMax));
    pair.link->add_bulk(pair.bulk);
    pair.link->say(begin(kLong + 1));
    pair.run_until([&] { return pair.on_bulk.size() == 2 && pair.marks.size() == 2; });
    CHECK(pair.on_bulk == std::vector<std::size_t>{kLong, kLong + 1});
    CHECK(pair.on_main == std::vector<std::size_t>{remote::kMainBeginBytesMax});
    CHECK(pair.marks == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("control frames are not lost when there is no room, and stay in order") {
    Pair pair;
    for (std::size_t i = 1; i <= 400; ++i) pair.link->say(begin(40'000 + i));  // 16 MB
    pair.run_until([&] { return pair.on_main.size() == 400; });
    for (std::size_t i = 1; i <= 400; ++i) CHECK(pair.on_main[i - 1] == 40'000 + i);
}
