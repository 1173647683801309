// DeviceMemoryBlock: memory of a device, mapped here; own or another process's.
//
// Owns handle, address and mapping; the driver outlives it. The memory of create() starts
// undefined. Move-only, one thread.
#pragma once

#include <cstddef>
#include <utility>

#include "ipc/device/driver.hpp"

namespace paceline {

class DeviceMemoryBlock {
public:
    DeviceMemoryBlock() = default;
    /// At least `bytes`. Errors: OutOfMemory, System.
    [[nodiscard]] static Result<DeviceMemoryBlock> create(Driver& driver, std::size_t bytes);
    /// Memory that another process exported; `bytes` as its block says. Errors: System.
    [[nodiscard]] static Result<DeviceMemoryBlock> import(Driver& driver,
                                                          const OwnedFd& file,
                                                          std::size_t bytes);
    DeviceMemoryBlock(const DeviceMemoryBlock&) = delete;
    DeviceMemoryBlock& operator=(const DeviceMemoryBlock&) = delete;
    DeviceMemoryBlock(DeviceMemoryBlock&& other) noexcept { swap(other); }
    DeviceMemoryBlock& operator=(DeviceMemoryBlock&& other) noexcept {
        DeviceMemoryBlock old;
        old.swap(*this);
        swap(other);
        return *this;
    }
    ~DeviceMemoryBlock();

    [[nodiscard]] Result<OwnedFd> export_file() const { return driver_->export_memory(memory_); }
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    [[nodiscard]] Status map_in();
    void swap(DeviceMemoryBlock& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(memory_, other.memory_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(mapped_, other.mapped_);
    }

    Driver* driver_ = nullptr;  // null: empty
    MemoryHandle memory_{};
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    bool mapped_ = false;
};

}  // namespace paceline
