// What the host does with devices: memory, copies, streams, events, graphs.
//
// RAII for all of it. Implementation: runtime_cuda.cu, on the CUDA runtime. A program links one
// implementation; tests have another one. Kernels are launched with launch.cuh.
//
// Errors: what may fail for lack of something (a device, memory) returns Result. Anything else
// that fails means that the device or this program is broken, and CUDA gives no way back from
// there within a process: it throws DeviceError naming call, file, line and device, the stage
// ends, and its supervisor starts it anew.
//
// Memory, streams and events belong to the device that is the calling thread's when they are made.
// Kernels are launched, and events recorded, in streams of the calling thread's device alone;
// copies and waits take any.
//
// Threads: an object is used by one thread at a time. C++17 (nvcc compiles it too).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace paceline::cuda {

class DeviceError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct DeviceInfo {
    std::string name;    // "NVIDIA H200"
    int capability = 0;  // 90 is 9.0
    int processors = 0;  // streaming multiprocessors
    std::uint64_t memory_bytes = 0;
    std::uint64_t free_bytes = 0;  // when asked
};

/// What device `index` is; makes it the calling thread's device. Throws DeviceError.
DeviceInfo use_device(int index);

/// Makes device `index` the calling thread's again, for a thread that serves several. Cheap.
void set_device(int index);

/// Lets kernels of each of `devices` read and write the memory of the others. False if one of them
/// cannot, naming none: the caller does without. Leaves the calling thread's device as it was.
/// Throws DeviceError.
[[nodiscard]] bool enable_peers(const std::vector<int>& devices);

/// Memory that its owner frees at the end: one of the two below. Empty after a move.
class OwnedMemory {
public:
    OwnedMemory() = default;
    OwnedMemory(OwnedMemory&& other) noexcept { swap(other); }
    OwnedMemory& operator=(OwnedMemory&& other) noexcept {
        swap(other);
        return *this;
    }
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    template <class T>
    [[nodiscard]] T* as(std::size_t offset_bytes = 0) const {
        return reinterpret_cast<T*>(data_ + offset_bytes);
    }

protected:
    ~OwnedMemory() = default;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;

private:
    void swap(OwnedMemory& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }
};

class DeviceMemory : public OwnedMemory {
public:
    DeviceMemory() = default;
    DeviceMemory(DeviceMemory&&) noexcept = default;
    DeviceMemory& operator=(DeviceMemory&&) noexcept = default;
    ~DeviceMemory();
    /// Nothing if there is not so much; `bytes` may be 0.
    static bool allocate(std::size_t bytes, DeviceMemory& to);
};

/// Host memory that the device copies from and to without a detour.
class PinnedMemory : public OwnedMemory {
public:
    PinnedMemory() = default;
    PinnedMemory(PinnedMemory&&) noexcept = default;
    PinnedMemory& operator=(PinnedMemory&&) noexcept = default;
    ~PinnedMemory();
    static bool allocate(std::size_t bytes, PinnedMemory& to);
};

class Graph;
class Event;

/// Pieces of equal size that lie one after the other on the host, and apart on the device.
struct Pieces {
    std::size_t count = 0;
    std::size_t bytes = 0;   // of each
    std::size_t stride = 0;  // on the device, from the begin of one to the begin of the next
};

/// Work in order on a device.
class Stream {
public:
    Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream();

    void to_device(void* device, const void* host, std::size_t bytes);
    void to_host(void* host, const void* device, std::size_t bytes);
    void to_device(void* device, const void* host, const Pieces& pieces);
    void to_host(void* host, const void* device, const Pieces& pieces);
    /// From device memory to device memory. Either may belong to another device that this one
    /// reaches, or to another process that exported it.
    void on_device(void* to, const void* from, std::size_t bytes);
    /// The same with pieces that lie one after the other at one of the ends, apart at the other.
    void join_on_device(void* together, const void* apart, const Pieces& pieces);
    void part_on_device(void* apart, const void* together, const Pieces& pieces);
    void fill(void* device, std::uint8_t value, std::size_t bytes);
    /// What comes after this begins once everything is done that was in the event's stream when it
    /// was last recorded; at once if it never was. Of an event for order. In a recording it must be
    /// one of the recording; a stream that waits for such a one becomes part of the recording.
    void wait(const Event& event);
    /// Returns when all of it is done. Throws DeviceError if a kernel failed.
    void finish();
    /// Whether all of it is done.
    [[nodiscard]] bool idle();

    /// What `work` puts into this stream, recorded instead of done; and into others, of any device,
    /// from the point on where they wait for an event that was recorded here. At the end of `work`
    /// this stream must have waited for all they were given. The recording is one graph: launched
    /// in one stream, and done there when all of it is.
    [[nodiscard]] Graph record(const std::function<void()>& work);

    struct Handle;  // of the implementation
    [[nodiscard]] Handle& handle() const { return *handle_; }

private:
    std::unique_ptr<Handle> handle_;
};

/// A recorded piece of work; it reads and writes the addresses it was recorded with.
class Graph {
public:
    Graph();
    Graph(Graph&&) noexcept;
    Graph& operator=(Graph&&) noexcept;
    ~Graph();
    void launch(Stream& stream) const;
    [[nodiscard]] bool empty() const { return recording_ == nullptr; }

    struct Recording;  // of the implementation

private:
    friend class Stream;
    std::unique_ptr<Recording> recording_;
};

enum class EventUse : std::uint8_t {
    Time,   // asked for by the host; in a recording it is reached each time that this is launched
    Order,  // waited for by other streams; in a recording it is an edge and no more: it has to be
            // recorded anew before anything outside waits for it
};

/// A point in a stream: when it was reached, or what others wait for.
class Event {
public:
    explicit Event(EventUse use = EventUse::Time);
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event();
    void record(Stream& stream);
    [[nodiscard]] bool reached() const;
    /// Of two events of time that were reached.
    static double seconds_between(const Event& from, const Event& to);

    struct Handle;

private:
    friend class Stream;
    std::unique_ptr<Handle> handle_;
};

}  // namespace paceline::cuda
