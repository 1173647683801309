// The emulation itself: it detects each misuse that would hang or crash the real NCCL or driver.
#include "tests/emulated/driver/emulation.hpp"

#include <chrono>
#include <fcntl.h>
#include <fmt/core.h>

#include <doctest/doctest.h>

#include "ipc/device/device_memory.hpp"
#include "ipc/device/nccl.hpp"

#include "link_fixture.hpp"

using namespace paceline;
using namespace paceline::test;
using namespace std::chrono_literals;

namespace {

/// One rank with its own device, memory and stream.
struct Rank {
    Rank(Nccl& library, int number)
        : nccl{library}, rank{number}, driver{std::move(open_driver(number).value())} {
        enter();
        memory = std::move(DeviceMemoryBlock::create(*driver, 16U << 20U).value());
        stream = driver->make_stream().value();
    }
    ~Rank() {
        enter();
        if (comm != nullptr) (void)nccl.abort(comm);
        driver->destroy_stream(stream);
    }
    void enter() const { (void)driver->enter(); }
    NcclResult state() const {
        NcclResult now = NcclResult::Success;
        (void)nccl.state(comm, now);
        return now;
    }
    bool completes(std::chrono::milliseconds limit = 10s) const {
        return until([&] { return state() != NcclResult::InProgress; }, limit);
    }
    NcclResult join(const NcclId& id) {
        enter();
        return nccl.init(comm, 2, id, rank);
    }
    NcclResult send(std::size_t bytes) {
        return nccl.send(memory.data(), bytes, 1 - rank, comm, stream);
    }
    NcclResult receive(std::size_t bytes) {
        return nccl.receive(memory.data(), bytes, 1 - rank, comm, stream);
    }
    /// Whether the stream gets to its end.
    bool finishes(std::chrono::milliseconds limit = 10s) {
        const DeviceEvent event = driver->make_event().value();
        (void)driver->record(event, stream);
        const bool reached = until([&] { return driver->reached(event).value(); }, limit);
        driver->destroy_event(event);
        return reached;
    }

    Nccl& nccl;
    int rank;
    std::unique_ptr<Driver> driver;
    DeviceMemoryBlock memory;
    DeviceStream stream = nullptr;
    NcclComm comm = nullptr;
};

struct Pair {
    Pair() {
        NcclId id{};
        REQUIRE(library->unique_id(id) == NcclResult::Success);
        REQUIRE(sender.join(id) == NcclResult::InProgress);
        REQUIRE(receiver.join(id) == NcclResult::InProgress);
        REQUIRE(sender.completes());
        REQUIRE(receiver.completes());
    }
    /// The pair is connected.
    void warm_up() {
        REQUIRE(sender.send(8) == NcclResult::InProgress);
        REQUIRE(receiver.receive(8) == NcclResult::InProgress);
        REQUIRE(sender.completes());
        REQUIRE(receiver.completes());
        REQUIRE(sender.finishes());
        REQUIRE(receiver.finishes());
    }
    std::shared_ptr<Nccl> library = open_nccl("").value();
    Rank sender{*library, 0};
    Rank receiver{*library, 1};
};

bool found(const char* words) {
    bool there = false;
    for (const std::string& what : emulated::take_misuse()) {
        there = there || what.find(words) != std::string::npos;
    }
    return there;
}

void fill(Rank& rank, int value, std::size_t bytes) {
    rank.enter();
    const std::vector<std::byte> all(bytes, static_cast<std::byte>(value));
    REQUIRE(rank.driver->write(rank.memory.data(), all.data(), bytes).ok());
}

int first_byte(Rank& rank, std::size_t offset = 0) {
    rank.enter();
    std::byte byte{};
    REQUIRE(rank.driver->read(&byte, rank.memory.data() + offset, 1).ok());
    return static_cast<int>(byte);
}

}  // namespace

TEST_CASE("an operation while another is in progress spoils the communicator") {
    Pair pair;
    REQUIRE(pair.sender.send(8) == NcclResult::InProgress);
    CHECK(pair.sender.send(8) == NcclResult::InvalidArgument);
    CHECK(pair.sender.state() == NcclResult::InvalidArgument);
    CHECK(found("in progress"));
}

TEST_CASE("work put into the stream of an operation in progress is found") {
    Pair pair;
    REQUIRE(pair.sender.send(8) == NcclResult::InProgress);
    const DeviceEvent event = pair.sender.driver->make_event().value();
    CHECK(pair.sender.driver->record(event, pair.sender.stream).ok());
    CHECK(found("cuEventRecord()"));
    pair.sender.driver->destroy_event(event);
}

TEST_CASE("two communicators of a device in progress at once are found") {
    Pair one;
    Pair two;
    CHECK(one.sender.send(8) == NcclResult::InProgress);
    CHECK(two.sender.send(8) == NcclResult::InProgress);
    CHECK(found("two communicators of cuda:0"));
}

TEST_CASE("who reads after the launch and before the event reads other bytes") {
    Pair pair;
    pair.warm_up();
    fill(pair.sender, 7, 4096);
    REQUIRE(pair.receiver.receive(4096) == NcclResult::InProgress);
    REQUIRE(pair.receiver.completes());  // "in the stream", not "there"
    CHECK(first_byte(pair.receiver) != 7);
    REQUIRE(pair.sender.send(4096) == NcclResult::InProgress);
    REQUIRE(pair.sender.completes());
    REQUIRE(pair.receiver.finishes());
    CHECK(first_byte(pair.receiver) == 7);
}

TEST_CASE("a small send ends unreceived, a large one waits") {
    Pair pair;
    pair.warm_up();
    REQUIRE(pair.sender.send(1000) == NcclResult::InProgress);
    REQUIRE(pair.sender.completes());
    CHECK(pair.sender.finishes());
    REQUIRE(pair.sender.send(8U << 20U) == NcclResult::InProgress);
    REQUIRE(pair.sender.completes());
    CHECK_FALSE(pair.sender.finishes(100ms));
}

TEST_CASE("counts are not compared: a smaller receive ends, a larger one hangs without an error") {
    Pair pair;
    pair.warm_up();
    fill(pair.sender, 7, 64);
    fill(pair.receiver, 1, 64);
    REQUIRE(pair.sender.send(64) == NcclResult::InProgress);
    REQUIRE(pair.receiver.receive(16) == NcclResult::InProgress);
    REQUIRE(pair.receiver.completes());
    CHECK(pair.receiver.finishes());
    CHECK(first_byte(pair.receiver, 15) == 7);
    CHECK(first_byte(pair.receiver, 16) == 1);
    REQUIRE(pair.sender.completes());
    REQUIRE(pair.sender.send(16) == NcclResult::InProgress);
    REQUIRE(pair.receiver.receive(64) == NcclResult::InProgress);
    REQUIRE(pair.receiver.completes());
    CHECK_FALSE(pair.receiver.finishes(100ms));
    CHECK(pair.receiver.state() == NcclResult::Success);
}

TEST_CASE("a rank waits for the other without limit, and abort ends that") {
    const std::shared_ptr<Nccl> library = open_nccl("").value();
    Rank alone{*library, 0};
    NcclId id{};
    REQUIRE(library->unique_id(id) == NcclResult::Success);
    REQUIRE(alone.join(id) == NcclResult::InProgress);
    CHECK_FALSE(alone.completes(200ms));
    CHECK(library->abort(alone.comm) == NcclResult::Success);
    CHECK(library->abort(alone.comm) == NcclResult::InvalidArgument);
    CHECK(found("no more"));
    alone.comm = nullptr;
}

TEST_CASE("the same rank twice fails for both") {
    const std::shared_ptr<Nccl> library = open_nccl("").value();
    Rank one{*library, 0};
    Rank two{*library, 0};
    NcclId id{};
    REQUIRE(library->unique_id(id) == NcclResult::Success);
    REQUIRE(one.join(id) == NcclResult::InProgress);
    REQUIRE(two.join(id) == NcclResult::InProgress);
    CHECK(one.completes());
    CHECK(two.completes());
    CHECK(one.state() == NcclResult::InvalidUsage);
    CHECK(two.state() == NcclResult::InvalidUsage);
}

TEST_CASE("a revoked communicator takes no operation, and is revoked once") {
    Pair pair;
    pair.warm_up();
    REQUIRE(pair.sender.nccl.revoke(pair.sender.comm) == NcclResult::InProgress);
    CHECK(pair.sender.completes());
    CHECK(pair.sender.send(8) == NcclResult::InvalidUsage);
    CHECK(pair.sender.nccl.revoke(pair.sender.comm) == NcclResult::InvalidArgument);
}

TEST_CASE("mapped memory cannot be accessed before that is allowed") {
    std::unique_ptr<Driver> driver = std::move(open_driver(0).value());
    REQUIRE(driver->enter().ok());
    const std::size_t bytes = driver->granularity().value();
    const MemoryHandle memory = driver->create(bytes).value();
    std::byte* at = driver->reserve(bytes).value();
    std::uint64_t word = 0;
    CHECK_FALSE(driver->read(&word, at, sizeof(word)).ok());
    REQUIRE(driver->map(at, bytes, memory).ok());
    CHECK_FALSE(driver->read(&word, at, sizeof(word)).ok());
    REQUIRE(driver->allow_access(at, bytes).ok());
    CHECK(driver->read(&word, at, sizeof(word)).ok());
    CHECK_FALSE(driver->read(&word, at + bytes - 4, sizeof(word)).ok());
    driver->unmap(at, bytes);
    CHECK_FALSE(driver->read(&word, at, sizeof(word)).ok());
    driver->free_address(at, bytes);
    driver->release(memory);
}

TEST_CASE("exported memory outlives its exporter until its last mapping ends") {
    std::unique_ptr<Driver> driver = std::move(open_driver(0).value());
    REQUIRE(driver->enter().ok());
    const std::uint64_t sent = 42;
    std::uint64_t got = 0;
    DeviceMemoryBlock own = std::move(DeviceMemoryBlock::create(*driver, 100).value());
    REQUIRE(driver->write(own.data(), &sent, sizeof(sent)).ok());
    DeviceMemoryBlock theirs = std::move(
        DeviceMemoryBlock::import(*driver, own.export_file().value(), own.bytes()).value());
    CHECK(theirs.data() != own.data());
    own = {};
    REQUIRE(driver->read(&got, theirs.data(), sizeof(got)).ok());
    CHECK(got == sent);
    const OwnedFd no_memory{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    CHECK_FALSE(DeviceMemoryBlock::import(*driver, no_memory, own.bytes()).ok());
}

TEST_CASE("a call in a thread without the device's context is found") {
    std::unique_ptr<Driver> driver = std::move(open_driver(1).value());
    REQUIRE(open_driver(0).value()->enter().ok());
    const MemoryHandle memory = driver->create(driver->granularity().value()).value();
    CHECK(found("context"));
    driver->release(memory);
}
