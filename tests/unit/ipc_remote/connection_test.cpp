#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/unit/ipc_remote/connection_fixture.hpp"

using namespace paceline;
using namespace paceline::remote;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

const std::vector<std::byte> kPart(kPartBytesMax);

TensorPart tensor_part() {
    TensorPart part;
    part.total = kPart.size();
    part.bytes = kPart;
    return part;
}

}  // namespace

TEST_CASE_FIXTURE(ConnectionFixture,
                  "frames of two machines with the same key arrive with their epoch") {
    join();
    CHECK(server.epochs.front() == Epoch{5});
    CHECK(server.connection->peer_host() == "127.0.0.1");
    CHECK(client.connection->peer() == listener->place().text());
    CHECK(listener->interface_name() == "lo");
    CHECK(client.send(LeaseAsk{1, 2}) == Sent::Queued);
    REQUIRE(run_until([this] { return server.received(Kind::LeaseAsk); }));
    CHECK(server.send(LeaseGrant{}) == Sent::Queued);
    REQUIRE(run_until([this] { return client.received(Kind::LeaseGrant); }));
    CHECK(refusals.empty());
}

TEST_CASE_FIXTURE(
    ConnectionFixture,
    "tensors of many megabytes arrive whole, and a callback tells when there is room") {
    client_options.queue_bytes = 1U << 20;
    client_options.reserve_bytes = 1U << 18;
    join();
    constexpr std::uint64_t kParts = 200;
    std::uint64_t sent = 0;
    while (sent < kParts) {
        if (client.send(tensor_part(), Lane::Data) == Sent::Queued) {
            ++sent;
            CHECK(client.connection->queued_bytes() < 2 * client_options.queue_bytes);
            continue;
        }
        const int rooms = client.rooms;
        REQUIRE(run_until([&] { return client.rooms > rooms; }));
    }
    REQUIRE(run_until([&] { return server.tensor_bytes == kParts * kPart.size(); }));
    CHECK(client.rooms > 0);
    CHECK(client.connection->queued_bytes() == 0);
}

TEST_CASE_FIXTURE(ConnectionFixture, "keys are renewed in the middle of a stream, at both ends") {
    client_options.key_bytes_max = 1U << 20;
    server_options.key_bytes_max = 100'000;
    join();
    constexpr std::uint64_t kParts = 20;
    for (std::uint64_t i = 0; i < kParts; ++i) {
        CHECK(client.send(tensor_part(), Lane::Data) == Sent::Queued);
        CHECK(server.send(tensor_part(), Lane::Data) == Sent::Queued);
    }
    constexpr std::uint64_t kBytes = kParts * kPartBytesMax;
    REQUIRE(
        run_until([&] { return server.tensor_bytes == kBytes && client.tensor_bytes == kBytes; }));
}

TEST_CASE_FIXTURE(ConnectionFixture, "urgent frames use the room that normal ones may not") {
    client_options.queue_bytes = 1U << 20;
    client_options.reserve_bytes = 1U << 18;
    join();
    while (client.send(tensor_part(), Lane::Data) == Sent::Queued) {
    }
    CHECK(client.send(EdgeRoom{}, Lane::Control) == Sent::Full);
    CHECK(client.send(EdgeRoom{}, Lane::Control, true) == Sent::Queued);
    while (client.send(tensor_part(), Lane::Data, true) == Sent::Queued) {
    }
    CHECK(client.send(EdgeRoom{}, Lane::Control, true) == Sent::Full);
    CHECK(client.connection->queued_bytes() <= client_options.queue_bytes + 2 * kPart.size());
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "frames of the control lane pass queued data, and each lane keeps its order") {
    join();
    std::vector<std::uint64_t> numbers;
    server.on_frame = [&numbers](const Frame& frame) -> Status {
        if (const auto* room = std::get_if<EdgeRoom>(&frame)) numbers.push_back(room->taken);
        return {};
    };
    for (int i = 0; i < 8; ++i) CHECK(client.send(tensor_part(), Lane::Data) == Sent::Queued);
    CHECK(client.send(EdgeRoom{0, 3}, Lane::Data) == Sent::Queued);
    CHECK(client.send(EdgeRoom{0, 1}, Lane::Control) == Sent::Queued);
    CHECK(client.send(EdgeRoom{0, 2}, Lane::Control) == Sent::Queued);
    REQUIRE(run_until([&] { return numbers.size() == 3; }));
    CHECK(numbers == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(server.tensor_bytes == 8 * kPart.size());
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "close sends what is queued, and tells the reason here and an end there") {
    join();
    for (int i = 0; i < 20; ++i) CHECK(client.send(tensor_part(), Lane::Data) == Sent::Queued);
    CHECK(client.send(Shutdown{"done"}, Lane::Data) == Sent::Queued);
    client.connection->close("the run is over", 5s);
    CHECK(client.send(Kill{}) == Sent::Ended);
    CHECK_FALSE(client.end.has_value());  // never from within a call
    REQUIRE(run_until([this] { return client.end && server.end; }));
    CHECK(server.tensor_bytes == 20 * kPart.size());
    CHECK(server.received(Kind::Shutdown));
    CHECK(server.end->code == Errc::PeerGone);
    CHECK(client.end->code == Errc::Cancelled);
    CHECK(has(client.end->what, "the run is over"));
    CHECK(client.connection->descriptor() == -1);
}

TEST_CASE_FIXTURE(ConnectionFixture, "a peer that ends is noticed, and later sends say so") {
    join();
    client.connection.reset();
    REQUIRE(run_until([this] { return server.end.has_value(); }));
    CHECK(server.end->code == Errc::PeerGone);
    CHECK(server.send(Kill{}) == Sent::Ended);
    CHECK_FALSE(client.end.has_value());  // its handle was destroyed
}

TEST_CASE_FIXTURE(ConnectionFixture, "a callback may end its own connection") {
    join();
    server.on_frame = [this](const Frame&) -> Status {
        server.connection.reset();
        return {};
    };
    CHECK(client.send(Kill{}) == Sent::Queued);
    CHECK(client.send(Kill{}) == Sent::Queued);
    REQUIRE(run_until([this] { return client.end.has_value(); }));
    CHECK(std::count(server.kinds.begin(), server.kinds.end(), Kind::Kill) == 1);
    CHECK_FALSE(server.end.has_value());
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "an error of a callback closes the connection, and the peer is told why") {
    join();
    server.on_frame = [](const Frame&) -> Status {
        return Error{Errc::BadArgument, "two tasks on machine b"};
    };
    CHECK(client.send(Kill{}) == Sent::Queued);
    REQUIRE(run_until([this] { return client.end && server.end; }));
    CHECK(has(server.end->what, "two tasks on machine b"));
    CHECK(client.received(Kind::Refused));
    CHECK(client.end->code == Errc::Protocol);
    CHECK(has(client.end->what, "the other end refused it: "));
    CHECK(has(client.end->what, "two tasks on machine b"));
}

TEST_CASE_FIXTURE(ConnectionFixture, "another build is refused at both ends with both names") {
    client_options.build = build_of("an older build");
    listen();
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    CHECK(client.send(hello_of(client_options.build)) == Sent::Queued);
    REQUIRE(run_until([this] { return client.end && server.end; }));
    CHECK(server.kinds.empty());
    for (const Error& error : {*client.end, *server.end}) {
        CHECK(error.code == Errc::Protocol);
        CHECK(has(error.what, "'an older build'"));
        CHECK(has(error.what, this_build().name));
    }
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "a listener may learn from the hello which of the two connections it is") {
    server_options.channel_by_hello = true;
    client_options.channel = Channel::Bulk;
    listen();
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    CHECK(client.send(hello_of(this_build(), Channel::Bulk)) == Sent::Queued);
    REQUIRE(run_until([this] { return server.received(Kind::Hello); }));
    CHECK(server.send(hello_of(this_build(), Channel::Bulk)) == Sent::Queued);
    StageControl begin;
    begin.type = static_cast<std::uint16_t>(control::Type::Begin);
    begin.body.resize(kMainBeginBytesMax + 1);
    CHECK(server.send(begin) == Sent::Queued);
    REQUIRE(run_until([this] { return client.received(Kind::StageControl); }));
}

TEST_CASE_FIXTURE(ConnectionFixture, "a first frame that is no hello is refused") {
    listen();
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    CHECK(client.send(Kill{}) == Sent::Queued);
    REQUIRE(run_until([this] { return client.end && server.end; }));
    CHECK(has(server.end->what, "the first frame is 'kill'"));
}

TEST_CASE_FIXTURE(ConnectionFixture, "a peer that has the key and says nothing is given up") {
    server_options.greet_limit = 100ms;
    listen();
    connect();
    REQUIRE(run_until([this] { return server.end.has_value(); }));
    CHECK(server.end->code == Errc::PeerGone);
    CHECK(has(server.end->what, "has not said hello within 100 ms"));
    REQUIRE(run_until([this] { return client.end.has_value(); }));
    CHECK(has(client.end->what, "has not said hello"));
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "a peer that stops reading is given up, and costs bounded memory") {
    client_options.stall_limit = 300ms;
    client_options.queue_bytes = 1U << 20;
    client_options.reserve_bytes = 1U << 18;
    listen(key_of('1'), false);
    connect();
    REQUIRE(run_until([this] { return server.connection && client.connection; }));
    // The server's handle is never started, so nothing is read there.
    CHECK(client.send(hello_of()) == Sent::Queued);
    while (!client.end) {
        if (client.send(tensor_part(), Lane::Data) == Sent::Queued) continue;
        const int rooms = client.rooms;
        REQUIRE(run_until([&] { return client.end || client.rooms > rooms; }));
    }
    CHECK(client.end->code == Errc::PeerGone);
    CHECK(has(client.end->what, "it has read nothing for 300 ms"));
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "a place without a listener is tried until the deadline and then named") {
    listen();
    const NodePlace place = listener->place();
    listener.reset();
    const auto start = Clock::now();
    const auto handle =
        connect_to(io, place, key_of('1'), {}, start + 350ms, [this](Result<ConnectionPtr> result) {
            REQUIRE_FALSE(result.ok());
            connect_error = result.error();
        });
    REQUIRE(run_until([this] { return connect_error.has_value(); }));
    CHECK(connect_error->code == Errc::PeerGone);
    CHECK(has(connect_error->what, "cannot connect to " + place.text()));
    CHECK(Clock::now() - start > 100ms);
    CHECK(Clock::now() - start < 5s);
}

TEST_CASE_FIXTURE(ConnectionFixture, "a listener that comes later is found before the deadline") {
    listen();
    const NodePlace place = listener->place();
    listener.reset();
    bool done = false;
    const auto handle = connect_to(io, place, key_of('1'), {}, Clock::now() + 8s,
                                   [&](Result<ConnectionPtr> result) {
                                       REQUIRE(result.ok());
                                       client.start(std::move(result).value());
                                       done = true;
                                   });
    CHECK_FALSE(io.run_for(150ms) == 0);
    REQUIRE_FALSE(done);
    Result<std::unique_ptr<SecureListener>> later = SecureListener::listen(
        io, place, key_of('1'), {},
        {.on_connection = [this](ConnectionPtr connection) { server.start(std::move(connection)); },
         .on_refused = {}});
    REQUIRE(later.ok());
    REQUIRE(run_until([&] { return done && server.connection; }));
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "destroying an attempt to connect gives it up without a call") {
    listen();
    connect();
    connecting.reset();
    io.restart();
    io.run_for(100ms);
    CHECK(connected == 0);
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "places that cannot be listened at are refused with the reason") {
    listen();
    const auto error_at = [this](const NodePlace& place) {
        const Result<std::unique_ptr<SecureListener>> made =
            SecureListener::listen(io, place, key_of('1'), {}, {});
        REQUIRE_FALSE(made.ok());
        CHECK(made.error().code == Errc::BadArgument);
        return made.error().what;
    };
    CHECK(has(error_at(listener->place()),
              "cannot listen at " + listener->place().text() + ": the port is taken"));
    CHECK(has(error_at({"0.0.0.0", 0}), "means all interfaces"));
    CHECK(has(error_at({"192.0.2.77", 0}), "is not an address of this machine"));
}

TEST_CASE_FIXTURE(ConnectionFixture,
                  "the wrong key is refused at both ends, and is not tried again") {
    listen();
    connect(key_of('2'));
    REQUIRE(run_until([this] { return connect_error && !refusals.empty(); }));
    CHECK(connect_error->code == Errc::Protocol);
    CHECK(has(connect_error->what, "it has another key"));
    CHECK(has(refusals.front(), "it has another key"));
    CHECK(has(refusals.front(), "127.0.0.1"));
    CHECK(refusals.size() == 1);
    CHECK(connected == 1);
    CHECK_FALSE(server.connection);
}
