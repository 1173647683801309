// Driver: what links need of one device: memory that other processes can map, streams, events.
//
// A table of CUDA driver functions. Implementations: driver_cuda.cpp on libcuda.so.1, loaded at run
// time; driver_none.cpp, whose functions return Unsupported. A program links one implementation;
// tests have another one. Addresses are valid for the CUDA runtime too: the context is the
// device's primary one.
//
// Memory is made in steps, as the driver does it: create (or import), reserve, map, allow_access.
// It is freed when every mapping and every handle is gone, descriptors included, in whatever
// process.
//
// Threads: any, each after enter(). Errors: System with the call and the driver's words,
// OutOfMemory from create().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"

namespace paceline {

/// Equal for equal devices, whatever number a process knows them by.
using DeviceUuid = std::array<std::uint8_t, 16>;

enum class MemoryHandle : std::uint64_t {};
using DeviceStream = void*;
using DeviceEvent = void*;

class Driver {
public:
    Driver() = default;
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    virtual ~Driver() = default;

    /// Makes the device's context the calling thread's.
    [[nodiscard]] virtual Status enter() = 0;
    [[nodiscard]] virtual DeviceUuid uuid() const = 0;
    /// Whether this device reads and writes memory of that one: Unsupported with the reason.
    [[nodiscard]] virtual Status reaches(const DeviceUuid& other) = 0;

    /// Sizes of memory are multiples of this.
    [[nodiscard]] virtual Result<std::size_t> granularity() = 0;
    [[nodiscard]] virtual Result<MemoryHandle> create(std::size_t bytes) = 0;
    [[nodiscard]] virtual Result<OwnedFd> export_memory(MemoryHandle memory) = 0;
    [[nodiscard]] virtual Result<MemoryHandle> import_memory(const OwnedFd& file) = 0;
    [[nodiscard]] virtual Result<std::byte*> reserve(std::size_t bytes) = 0;
    [[nodiscard]] virtual Status map(std::byte* at, std::size_t bytes, MemoryHandle memory) = 0;
    /// A mapping alone gives none.
    [[nodiscard]] virtual Status allow_access(std::byte* at, std::size_t bytes) = 0;
    virtual void unmap(std::byte* at, std::size_t bytes) = 0;
    virtual void free_address(std::byte* at, std::size_t bytes) = 0;
    virtual void release(MemoryHandle memory) = 0;

    /// Return when the bytes are there.
    [[nodiscard]] virtual Status write(std::byte* to, const void* from, std::size_t bytes) = 0;
    [[nodiscard]] virtual Status read(void* to, const std::byte* from, std::size_t bytes) = 0;
    [[nodiscard]] virtual Status copy(std::byte* to,
                                      const std::byte* from,
                                      std::size_t bytes,
                                      DeviceStream stream) = 0;

    [[nodiscard]] virtual Result<DeviceStream> make_stream() = 0;
    /// Nothing waits in it.
    virtual void destroy_stream(DeviceStream stream) = 0;
    [[nodiscard]] virtual Result<DeviceEvent> make_event() = 0;
    virtual void destroy_event(DeviceEvent event) = 0;
    [[nodiscard]] virtual Status record(DeviceEvent event, DeviceStream stream) = 0;
    [[nodiscard]] virtual Result<bool> reached(DeviceEvent event) = 0;
};

/// Device `device` of those that this process sees. Errors: Unsupported (no driver, no such
/// device).
[[nodiscard]] Result<std::unique_ptr<Driver>> open_driver(int device);

/// Whether memory of the device can be exported as a descriptor: Unsupported with the reason. Makes
/// no context.
[[nodiscard]] Status exports_memory(int device);

}  // namespace paceline
