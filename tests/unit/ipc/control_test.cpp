#include "ipc/wire/control.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

using namespace paceline;
namespace control = paceline::control;

namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

std::vector<control::Message> one_of_each() {
    control::Hello hello;
    hello.wire_version = 1;
    hello.pid = 4242;
    hello.role = "segment";
    hello.equality_class = "avx512/bf16";
    hello.model_fingerprint = "b179c9";
    hello.vocab_size = 49'152;
    hello.dim = 576;
    hello.first_layer = 15;
    hello.last_layer = 30;
    hello.weight_bytes = 1ULL << 40;
    hello.pinned_bytes = 1ULL << 33;
    const std::vector<control::EdgeWire> edges = {
        {StageId{2}, StageId{3}, Epoch{2}, true, 1, 2, 3, Transport::Nccl, "early -> final"},
        {StageId{7}, StageId{1}, Epoch{1}, false, 4, control::kNoFile, 5}};
    const control::Wire wire{0, 20, 3000, 40'000, edges};
    return {
        control::Assign{
            StageId{2}, Epoch{9}, {StageId{2}, StageId{7}}, "segment-1", bytes_of("layers = 0-15")},
        hello,
        wire,
        control::Ready{Epoch{9}},
        control::Begin{RequestId{77}, Attempt{3}, bytes_of(std::string(5000, 'x'))},
        control::Failed{static_cast<std::uint8_t>(Errc::OutOfMemory), "no room"},
        control::Shutdown{},
        control::Unwire{{StageId{3}, StageId{4}}, Epoch{2}},
        control::Rewire{{StageId{3}}, Epoch{3}, edges},
        control::Rewired{StageId{3}, Epoch{3}},
        control::EdgeFault{StageId{1}, Epoch{1}, "a sequence number is wrong"},
        control::EdgeOffer{StageId{2}, Epoch{9}, StageId{3}, Epoch{4}, bytes_of("a handle")},
        control::BeginWanted{RequestId{1ULL << 40}, Attempt{3}, 4711},
        control::PagesWanted{RequestId{1ULL << 41}, Attempt{2}, 17}};
}

std::uint16_t type_number(const control::Message& message) {
    return static_cast<std::uint16_t>(control::type_of(message));
}

}  // namespace

TEST_CASE("every control message comes out as it went in") {
    for (const control::Message& message : one_of_each()) {
        const std::vector<std::byte> body = control::encode(message);
        CHECK(body.size() <= control::body_bytes_max(type_number(message)));
        const Result<control::Message> decoded = control::decode(type_number(message), body);
        REQUIRE(decoded.ok());
        CHECK(decoded.value().index() == message.index());
        CHECK(control::encode(decoded.value()) == body);
    }
    const auto messages = one_of_each();
    const auto hello =
        std::get<control::Hello>(control::decode(2, control::encode(messages[1])).value());
    CHECK(hello.role == "segment");
    CHECK(hello.last_layer == 30);
    CHECK(hello.weight_bytes == 1ULL << 40);
    CHECK(hello.pinned_bytes == 1ULL << 33);
    const auto wire =
        std::get<control::Wire>(control::decode(3, control::encode(messages[2])).value());
    REQUIRE(wire.edges.size() == 2);
    CHECK(wire.edges[0].outgoing);
    CHECK_FALSE(wire.edges[1].outgoing);
    CHECK(wire.edges[1].pool_file == control::kNoFile);
    CHECK(wire.edges[1].self == StageId{7});
    CHECK(wire.hang_limit_ms == 3000);
    CHECK(wire.link_limit_ms == 40'000);
    CHECK(wire.edges[0].transport == Transport::Nccl);
    CHECK(wire.edges[0].name == "early -> final");
    CHECK(wire.edges[1].transport == Transport::Host);
}

TEST_CASE("what a recovery says names every actor, incarnation and channel again") {
    const auto messages = one_of_each();
    const auto again = [&messages](std::uint16_t type) {
        return control::decode(type, control::encode(messages[type - 1U])).value();
    };
    const auto assign = std::get<control::Assign>(again(1));
    CHECK(assign.actors == std::vector{StageId{2}, StageId{7}});
    const auto unwire = std::get<control::Unwire>(again(8));
    CHECK(unwire.peers == std::vector{StageId{3}, StageId{4}});
    CHECK(unwire.peer_epoch == Epoch{2});
    const auto rewire = std::get<control::Rewire>(again(9));
    CHECK(rewire.peers == std::vector{StageId{3}});
    CHECK(rewire.peer_epoch == Epoch{3});
    REQUIRE(rewire.edges.size() == 2);
    CHECK(rewire.edges[0].self == StageId{2});
    CHECK(rewire.edges[0].bell_file == 3);
    const auto rewired = std::get<control::Rewired>(again(10));
    CHECK(rewired.peer == StageId{3});
    CHECK(rewired.peer_epoch == Epoch{3});
    const auto fault = std::get<control::EdgeFault>(again(11));
    CHECK(fault.peer == StageId{1});
    CHECK(fault.text == "a sequence number is wrong");
    const auto offer = std::get<control::EdgeOffer>(again(12));
    CHECK(offer.from == StageId{2});
    CHECK(offer.from_epoch == Epoch{9});
    CHECK(offer.to == StageId{3});
    CHECK(offer.to_epoch == Epoch{4});
    CHECK(offer.bytes == bytes_of("a handle"));
    const auto wanted = std::get<control::BeginWanted>(again(13));
    CHECK(wanted.request == RequestId{1ULL << 40});
    CHECK(wanted.attempt == Attempt{3});
    CHECK(wanted.position == 4711);
    const auto pages = std::get<control::PagesWanted>(again(14));
    CHECK(pages.request == RequestId{1ULL << 41});
    CHECK(pages.attempt == Attempt{2});
    CHECK(pages.running == 17);
}

TEST_CASE("a transport that does not exist, and an offer over its limit, do not decode") {
    control::Rewire one{{}, Epoch{1}, {{StageId{2}, StageId{3}, Epoch{2}, true, 1, 2, 3}}};
    std::vector<std::byte> rewire = control::encode(one);
    // Of an edge the transport and an empty name (count u32) come last.
    const std::size_t at = rewire.size() - 5;
    for (const int transport : {0, 1, 2, 3}) {
        rewire[at] = static_cast<std::byte>(transport);
        const auto edge =
            std::get<control::Rewire>(control::decode(9, rewire).value()).edges.front();
        CHECK(edge.transport == static_cast<Transport>(transport));
    }
    rewire[at] = std::byte{4};
    const Result<control::Message> wrong = control::decode(9, rewire);
    REQUIRE_FALSE(wrong.ok());
    CHECK(wrong.error().code == Errc::Protocol);

    control::EdgeOffer full{};
    full.bytes.resize(control::kOfferBytesMax);
    std::vector<std::byte> offer = control::encode(full);
    CHECK(control::decode(12, offer).ok());
    // EdgeOffer: endianness byte, two stages and two epochs, count u32.
    const std::uint32_t count = control::kOfferBytesMax + 1;
    std::memcpy(offer.data() + 13, &count, sizeof count);
    offer.push_back(std::byte{0});
    CHECK_FALSE(control::decode(12, offer).ok());
}

TEST_CASE("more peers or edges than a process can have do not decode") {
    // Unwire: endianness byte, count u32, 2 bytes per peer, epoch u32.
    std::vector<std::byte> unwire = control::encode(
        control::Unwire{std::vector<StageId>(control::kActorsMax, StageId{1}), Epoch{1}});
    CHECK(control::decode(8, unwire).ok());
    const std::uint32_t peers = control::kActorsMax + 1;
    std::memcpy(unwire.data() + 1, &peers, sizeof peers);
    unwire.insert(unwire.end(), sizeof(StageId), std::byte{0});
    const Result<control::Message> decoded = control::decode(8, unwire);
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.error().what.find("over its limit") != std::string::npos);

    control::Rewire full{{}, Epoch{1}, std::vector<control::EdgeWire>(control::kEdgesMax)};
    std::vector<std::byte> rewire = control::encode(full);
    CHECK(control::decode(9, rewire).ok());
    // Rewire: endianness byte, no peers (count u32), epoch u32, count of edges u32.
    const std::uint32_t edges = control::kEdgesMax + 1;
    std::memcpy(rewire.data() + 9, &edges, sizeof edges);
    rewire.insert(rewire.end(), 64, std::byte{0});
    CHECK_FALSE(control::decode(9, rewire).ok());
}

TEST_CASE("a truncated message does not decode, wherever it is cut") {
    for (const control::Message& message : one_of_each()) {
        const std::vector<std::byte> body = control::encode(message);
        for (std::size_t length = 0; length < std::min<std::size_t>(body.size(), 200); ++length) {
            CHECK_FALSE(control::decode(type_number(message), std::span{body}.first(length)).ok());
        }
    }
}

TEST_CASE("a message with bytes after its end does not decode") {
    for (const control::Message& message : one_of_each()) {
        std::vector<std::byte> body = control::encode(message);
        body.push_back(std::byte{0});
        const Result<control::Message> decoded = control::decode(type_number(message), body);
        REQUIRE_FALSE(decoded.ok());
        CHECK(decoded.error().code == Errc::Protocol);
    }
}

TEST_CASE("a count beyond its limit or beyond the message allocates nothing") {
    // Begin: endianness byte, request u64, attempt u32, count u32.
    std::vector<std::byte> begin = control::encode(control::Begin{RequestId{1}, Attempt{1}, {}});
    REQUIRE(begin.size() == 1 + 8 + 4 + 4);
    for (const std::uint32_t count :
         {1U, control::kBeginBytesMax, control::kBeginBytesMax + 1, 0xffffffffU}) {
        std::memcpy(begin.data() + 13, &count, sizeof count);
        CHECK_FALSE(control::decode(5, begin).ok());
    }
    // Unwire: endianness byte, count u32. 72 stages need at least 144 bytes.
    std::vector<std::byte> unwire = control::encode(control::Unwire{});
    REQUIRE(unwire.size() == 1 + 4 + 4);
    unwire.resize(100);
    const std::uint32_t count = control::kActorsMax;
    std::memcpy(unwire.data() + 1, &count, sizeof count);
    const Result<control::Message> decoded = control::decode(8, unwire);
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.error().what.find("beyond the message") != std::string::npos);
}

TEST_CASE("unknown types and over-long bodies are refused before they are read") {
    CHECK_FALSE(control::decode(0, {}).ok());
    CHECK_FALSE(control::decode(99, {}).ok());
    const std::vector<std::byte> much(control::body_bytes_max(4) + 1);
    CHECK_FALSE(control::decode(4, much).ok());
}

TEST_CASE("random and mutated bytes never crash the decoder, and what decodes encodes") {
    std::mt19937 random{20};
    int decoded_count = 0;
    const auto feed = [&](std::uint16_t type, const std::vector<std::byte>& body) {
        const Result<control::Message> decoded = control::decode(type, body);
        if (!decoded.ok()) return;
        ++decoded_count;
        (void)control::encode(decoded.value());
    };
    for (int round = 0; round < 10'000; ++round) {
        std::vector<std::byte> body(random() % 300);
        for (std::byte& byte : body) byte = static_cast<std::byte>(random());
        if (!body.empty()) body[0] = static_cast<std::byte>(round % 2);  // cereal's byte order
        feed(static_cast<std::uint16_t>(random() % 14), body);
    }
    const std::vector<control::Message> messages = one_of_each();
    for (int round = 0; round < 20'000; ++round) {
        const control::Message& message = messages[random() % messages.size()];
        std::vector<std::byte> body = control::encode(message);
        for (int hit = 0; hit < 3; ++hit)
            body[random() % body.size()] = static_cast<std::byte>(random());
        if (random() % 4 == 0) body.resize(random() % (body.size() + 1));
        feed(type_number(message), body);
    }
    CHECK(decoded_count > 100);  // mutations of payload bytes are valid messages
}
