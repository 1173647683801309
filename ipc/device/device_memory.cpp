#include "ipc/device/device_memory.hpp"

#include <algorithm>

namespace paceline {

Result<DeviceMemoryBlock> DeviceMemoryBlock::create(Driver& driver, std::size_t bytes) {
    Result<std::size_t> step = driver.granularity();
    if (!step) return step.error();
    const std::size_t whole = (std::max<std::size_t>(bytes, 1) + step.value() - 1) / step.value();
    Result<MemoryHandle> memory = driver.create(whole * step.value());
    if (!memory) return memory.error();
    DeviceMemoryBlock block;
    block.driver_ = &driver;
    block.memory_ = memory.value();
    block.bytes_ = whole * step.value();
    if (Status mapped = block.map_in(); !mapped) return mapped.error();
    return block;
}

Result<DeviceMemoryBlock> DeviceMemoryBlock::import(Driver& driver,
                                                    const OwnedFd& file,
                                                    std::size_t bytes) {
    Result<MemoryHandle> memory = driver.import_memory(file);
    if (!memory) return memory.error();
    DeviceMemoryBlock block;
    block.driver_ = &driver;
    block.memory_ = memory.value();
    block.bytes_ = bytes;
    if (Status mapped = block.map_in(); !mapped) return mapped.error();
    return block;
}

Status DeviceMemoryBlock::map_in() {
    Result<std::byte*> at = driver_->reserve(bytes_);
    if (!at) return at.error();
    data_ = at.value();
    if (Status mapped = driver_->map(data_, bytes_, memory_); !mapped) return mapped;
    mapped_ = true;
    return driver_->allow_access(data_, bytes_);
}

DeviceMemoryBlock::~DeviceMemoryBlock() {
    if (driver_ == nullptr) return;
    (void)driver_->enter();  // the thread of the end may be another one
    if (mapped_) driver_->unmap(data_, bytes_);
    if (data_ != nullptr) driver_->free_address(data_, bytes_);
    driver_->release(memory_);
}

}  // namespace paceline
