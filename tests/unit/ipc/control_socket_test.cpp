#include "ipc/wire/control_socket.hpp"

#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/transport/shm_region.hpp"
#include "ipc/wire/messages.hpp"

using namespace paceline;
using namespace std::chrono_literals;
namespace control = paceline::control;

namespace {

auto soon() {
    return std::chrono::steady_clock::now() + 5s;
}

ControlFrameHeader header_of(std::uint16_t type, std::uint32_t len) {
    ControlFrameHeader header{};
    header.magic = kControlMagic;
    header.version = static_cast<std::uint16_t>(msg::kWireVersion);
    header.type = type;
    header.len = len;
    return header;
}

void write_raw(const ControlSocket& socket, const void* bytes, std::size_t count) {
    REQUIRE(::send(socket.fd(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
}

}  // namespace

TEST_CASE("messages arrive whole and in order, however the socket cuts them") {
    auto [a, b] = ControlSocket::make_pair().value();
    constexpr std::size_t kPayload = 3'000'000;  // many times the socket's buffer
    std::thread sender{[&a = a] {
        for (std::uint64_t i = 0; i < 3; ++i) {
            CHECK(a.send(control::Begin{RequestId{i}, Attempt{1}, std::vector<std::byte>(kPayload)})
                      .ok());
            CHECK(a.send(control::Ready{Epoch{static_cast<std::uint32_t>(i)}}).ok());
        }
    }};
    for (std::uint64_t i = 0; i < 3; ++i) {
        const auto begin = std::get<control::Begin>(b.receive(soon()).value().message);
        CHECK(begin.request.value == i);
        CHECK(begin.payload.size() == kPayload);
        CHECK(std::get<control::Ready>(b.receive(soon()).value().message).epoch.value == i);
    }
    sender.join();
    CHECK_FALSE(b.try_receive().value().has_value());
}

TEST_CASE("descriptors arrive with the message they were sent with") {
    auto [a, b] = ControlSocket::make_pair().value();
    const std::array one = {std::byte{1}};
    const std::array two = {std::byte{2}};
    const ShmFile first = ShmFile::create("first", 64, one).value();
    const ShmFile second = ShmFile::create("second", 64, two).value();
    const std::array both = {first.fd(), second.fd()};
    REQUIRE(a.send(control::Ready{}).ok());
    REQUIRE(a.send(control::Wire{}, both).ok());
    REQUIRE(a.send(control::Wire{}, std::span{both}.first(1)).ok());
    CHECK(b.receive(soon()).value().files.empty());
    const auto wire = b.receive(soon()).value();
    REQUIRE(wire.files.size() == 2);
    CHECK(ShmRegion::attach(wire.files[0].get(), 1).value().bytes()[0] == std::byte{1});
    CHECK(ShmRegion::attach(wire.files[1].get(), 1).value().bytes()[0] == std::byte{2});
    CHECK((::fcntl(wire.files[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(b.receive(soon()).value().files.size() == 1);
}

TEST_CASE("more descriptors than the kernel takes at once arrive in order, with their message") {
    auto [a, b] = ControlSocket::make_pair().value();
    std::vector<ShmFile> own;
    for (int i = 0; i < 2; ++i) {
        const std::array head = {static_cast<std::byte>(i)};
        own.push_back(ShmFile::create("many", 64, head).value());
    }
    // Which of the two the i-th descriptor is looks random, so that an exchanged one is noticed.
    const auto which = [](std::size_t i) { return (i * i + i / 7) % 3 % 2; };
    for (const std::size_t count : {std::size_t{253}, std::size_t{254}, kControlFilesMax}) {
        CAPTURE(count);
        std::vector<int> files;
        for (std::size_t i = 0; i < count; ++i) files.push_back(own[which(i)].fd());
        REQUIRE(a.send(control::Shutdown{}, files).ok());  // the shortest body of all
        REQUIRE(a.send(control::Wire{}, std::span{files}.first(1)).ok());
        const auto many = b.receive(soon()).value();
        CHECK(std::holds_alternative<control::Shutdown>(many.message));
        REQUIRE(many.files.size() == count);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
            std::array<std::byte, 1> head{};
            REQUIRE(::pread(many.files[i].get(), head.data(), 1, 0) == 1);
            if (head[0] != static_cast<std::byte>(which(i))) ++wrong;
        }
        CHECK(wrong == 0);
        CHECK(b.receive(soon()).value().files.size() == 1);
    }
}

TEST_CASE("an envelope says whose message it is and for whom; without one it is the process's") {
    auto [a, b] = ControlSocket::make_pair().value();
    REQUIRE(a.send(control::Ready{}, {}, 10s, {StageId{4}, StageId{513}}).ok());
    REQUIRE(a.send(control::Ready{}).ok());
    const auto addressed = b.receive(soon()).value();
    CHECK(addressed.envelope.from == StageId{4});
    CHECK(addressed.envelope.to == StageId{513});
    const auto plain = b.receive(soon()).value();
    CHECK(plain.envelope.from == StageId{0});
    CHECK(plain.envelope.to == StageId{0});
}

TEST_CASE("a closed peer is told apart from a silent one") {
    auto [a, b] = ControlSocket::make_pair().value();
    const auto silent = b.receive(std::chrono::steady_clock::now() + 10ms);
    REQUIRE_FALSE(silent.ok());
    CHECK(silent.error().code == Errc::Cancelled);
    REQUIRE(a.send(control::Ready{}).ok());
    a.close();
    CHECK(b.receive(soon()).ok());  // what was said before still counts
    const auto gone = b.receive(soon());
    REQUIRE_FALSE(gone.ok());
    CHECK(gone.error().code == Errc::PeerGone);
    CHECK(b.send(control::Ready{}).error().code == Errc::PeerGone);
}

TEST_CASE("a peer that does not read is given up after the limit") {
    auto [a, b] = ControlSocket::make_pair().value();
    const Status sent = a.send(
        control::Begin{RequestId{1}, Attempt{1}, std::vector<std::byte>(8'000'000)}, {}, 50ms);
    REQUIRE_FALSE(sent.ok());
    CHECK(sent.error().code == Errc::PeerGone);
}

TEST_CASE("a frame that breaks the protocol is refused") {
    auto [a, b] = ControlSocket::make_pair().value();
    ControlFrameHeader header = header_of(4, 5);
    SUBCASE("magic") {
        header.magic ^= 1;
    }
    SUBCASE("version") {
        header.version += 1;
    }
    SUBCASE("unknown type") {
        header.type = 60;
    }
    SUBCASE("more bytes than the type allows") {
        header.len = 0xffffffff;
    }
    SUBCASE("files that did not come along") {
        header.files = 2;
    }
    SUBCASE("a body that does not decode") {
        header.len = 3;
    }
    write_raw(a, &header, sizeof header);
    const std::array<std::byte, 5> body{std::byte{1}};
    write_raw(a, body.data(), body.size());
    const auto received = b.receive(soon());
    REQUIRE_FALSE(received.ok());
    CHECK(received.error().code == Errc::Protocol);
}

TEST_CASE("random bytes on the socket never crash the reader") {
    std::mt19937 random{3};
    for (int round = 0; round < 3000; ++round) {
        auto [a, b] = ControlSocket::make_pair().value();
        ControlFrameHeader header = header_of(static_cast<std::uint16_t>(1 + random() % 12),
                                              static_cast<std::uint32_t>(random() % 64));
        std::vector<std::byte> bytes(sizeof header + random() % 100);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        if (round % 4 != 0) std::memcpy(bytes.data(), &header, sizeof header);
        write_raw(a, bytes.data(), bytes.size());
        a.close();
        for (;;) {
            const auto received = b.try_receive();
            if (!received.ok()) break;  // at the latest when the end of the file is reached
        }
    }
}
