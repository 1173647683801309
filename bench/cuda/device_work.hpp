// What benches of kernels share: device memory that must be there, and the time of the device
// alone.
//
// Throws std::runtime_error where memory does not suffice, cuda::DeviceError as the device does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/core.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/kernels/cuda/random.hpp"
#include "model/kernels/cuda/runtime.hpp"

#include "bench/cuda/rungs.hpp"

namespace paceline::bench {

/// Device memory full of zeros.
[[nodiscard]] inline cuda::DeviceMemory take(std::size_t bytes) {
    cuda::DeviceMemory memory;
    if (!cuda::DeviceMemory::allocate(bytes, memory))
        throw std::runtime_error(fmt::format("no room for {} MiB on the device", bytes >> 20U));
    cuda::Stream stream;
    stream.fill(memory.data(), 0, bytes);
    stream.finish();
    return memory;
}

/// Host numbers on the device.
template <class T>
[[nodiscard]] cuda::DeviceMemory on_device(const std::vector<T>& values) {
    cuda::DeviceMemory memory = take(values.size() * sizeof(T));
    cuda::Stream stream;
    stream.to_device(memory.data(), values.data(), values.size() * sizeof(T));
    stream.finish();
    return memory;
}

/// bf16 numbers at random: [rows][columns].
[[nodiscard]] inline cuda::DeviceMemory random_bf16(int rows, int columns) {
    cuda::DeviceMemory memory =
        take(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * 2);
    cuda::DeviceMatrix as;
    as.values = memory.data();
    as.outputs = rows;
    as.inputs = columns;
    as.stride = columns;
    cuda::Stream stream;
    cuda::launch_random(stream, as, 1);
    stream.finish();
    return memory;
}

/// mixed() over `bytes` bytes of device memory.
[[nodiscard]] inline std::uint64_t checksum(cuda::Stream& stream,
                                            const std::byte* memory,
                                            std::size_t bytes) {
    std::vector<std::byte> copy(bytes);
    stream.to_host(copy.data(), memory, bytes);
    stream.finish();
    return mixed(kChecksumBegin, copy);
}

/// work(i) for i = 0 .. times - 1 as one graph, to be timed as often as wanted.
class TimedWork {
public:
    template <class Work>
    TimedWork(cuda::Stream& stream, int times, Work work) : stream_{stream}, times_{times} {
        work(0);  // a first launch loads code, which a recording may not
        stream.finish();
        graph_ = stream.record([&] {
            for (int i = 0; i < times; ++i) work(i);
        });
        graph_.launch(stream);
    }
    /// Seconds that the device takes for one, the mean of one replay between two events.
    [[nodiscard]] double seconds() const {
        cuda::Event begin;
        cuda::Event end;
        begin.record(stream_);
        graph_.launch(stream_);
        end.record(stream_);
        stream_.finish();
        return cuda::Event::seconds_between(begin, end) / times_;
    }

private:
    cuda::Stream& stream_;
    int times_;
    cuda::Graph graph_;
};

/// Seconds that the device takes for work(i), the mean over i = 0 .. times - 1, which are recorded
/// as one graph and replayed once for warming up and once between two events.
template <class Work>
[[nodiscard]] double device_seconds(cuda::Stream& stream, int times, Work work) {
    return TimedWork{stream, times, work}.seconds();
}

}  // namespace paceline::bench
