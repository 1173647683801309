// Memory of the emulated driver is device memory for the emulated runtime of the kernels, while it
// may be accessed and no longer; as main() of paceline_emulated connects them.
#include <array>
#include <cstdint>

#include <doctest/doctest.h>

#include "ipc/device/device_memory.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "tests/emulated/cuda/order.hpp"
#include "tests/emulated/driver/emulation.hpp"

using namespace paceline;

namespace {

struct Connected {
    Connected() {
        emulated::watch_memory(cuda::emulated::add_memory, cuda::emulated::remove_memory);
        cuda::emulated::set_devices(2);
    }
    ~Connected() {
        emulated::watch_memory(nullptr, nullptr);
        cuda::emulated::set_devices(1);
    }
};

}  // namespace

TEST_CASE("the runtime copies to and from memory that the driver mapped") {
    const Connected connected;
    const std::unique_ptr<Driver> driver = std::move(open_driver(0).value());
    REQUIRE(driver->enter().ok());
    cuda::Stream stream;
    const std::array<std::uint64_t, 4> sent = {1, 2, 3, 4};
    std::array<std::uint64_t, 4> got{};
    std::byte* at = nullptr;
    {
        DeviceMemoryBlock own = std::move(DeviceMemoryBlock::create(*driver, 100).value());
        const DeviceMemoryBlock theirs = std::move(
            DeviceMemoryBlock::import(*driver, own.export_file().value(), own.bytes()).value());
        at = theirs.data();
        stream.to_device(own.data() + 256, sent.data(), sizeof(sent));
        stream.to_host(got.data(), at + 256, sizeof(got));
        stream.finish();
        CHECK(got == sent);
        CHECK_THROWS_AS(stream.to_host(got.data(), at + theirs.bytes() - 8, sizeof(got)),
                        cuda::DeviceError);
    }
    CHECK_THROWS_AS(stream.to_host(got.data(), at + 256, sizeof(got)), cuda::DeviceError);
}

TEST_CASE("there are as many devices as a test asks for") {
    const Connected connected;
    CHECK(cuda::use_device(1).name == "emulated device");
    CHECK_THROWS_AS(cuda::set_device(2), cuda::DeviceError);
    CHECK_THROWS_AS(cuda::set_device(-1), cuda::DeviceError);
}
