#include "ipc/transport/shm_region.hpp"

#include <array>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/transport/doorbell.hpp"

using namespace paceline;

TEST_CASE("two mappings of one file show the same bytes, and begin with the header given") {
    const std::array head = {std::byte{1}, std::byte{2}};
    const ShmFile file = ShmFile::create("test", 10'000, head).value();
    const ShmRegion a = ShmRegion::attach(file.fd(), 10'000).value();
    const ShmRegion b = ShmRegion::attach(file.fd(), 10'000).value();
    REQUIRE(a.bytes().size() == 10'000);
    CHECK(a.bytes()[1] == std::byte{2});
    CHECK(a.bytes()[9'999] == std::byte{0});
    a.bytes()[9'999] = std::byte{7};
    CHECK(b.bytes()[9'999] == std::byte{7});
    CHECK(a.bytes().data() != b.bytes().data());
}

TEST_CASE("the size of shared memory can never be changed again") {
    const ShmFile file = ShmFile::create("test", 8192, {}).value();
    CHECK(::ftruncate(file.fd(), 4096) != 0);
    CHECK(::ftruncate(file.fd(), 16'384) != 0);
    CHECK(::fcntl(file.fd(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("memory that a peer could still shrink is not mapped") {
    const OwnedFd file{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    REQUIRE(::ftruncate(file.get(), 8192) == 0);
    const Result<ShmRegion> region = ShmRegion::attach(file.get(), 8192);
    REQUIRE_FALSE(region.ok());
    CHECK(region.error().code == Errc::Protocol);
}

TEST_CASE("memory smaller than what it should hold is not mapped") {
    const ShmFile file = ShmFile::create("test", 4096, {}).value();
    CHECK_FALSE(ShmRegion::attach(file.fd(), 4097).ok());
    CHECK_FALSE(ShmRegion::attach(-1, 1).ok());
    const OwnedFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    CHECK_FALSE(ShmRegion::attach(null.get(), 1).ok());
}

TEST_CASE("memory that cannot be had is an error, not a later crash") {
    const Result<ShmFile> file = ShmFile::create("huge", std::size_t{1} << 50, {});
    REQUIRE_FALSE(file.ok());
    CHECK(file.error().code == Errc::OutOfMemory);
}

TEST_CASE("a doorbell is attached only to memory that is one") {
    const ShmFile bell = Doorbell::create("bell").value();
    CHECK(Doorbell::attach(ShmRegion::attach(bell.fd(), 1).value()).ok());
    const ShmFile other = ShmFile::create("other", 4096, {}).value();
    CHECK_FALSE(Doorbell::attach(ShmRegion::attach(other.fd(), 1).value()).ok());
    const ShmFile tiny = ShmFile::create("tiny", 16, {}).value();
    CHECK_FALSE(Doorbell::attach(ShmRegion::attach(tiny.fd(), 1).value()).ok());
}
