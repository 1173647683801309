// runtime.hpp and launch.cuh on the CUDA runtime.
//
// A call that fails throws DeviceError with its text, file, line, device and CUDA's words for it.
// Destructors ignore what fails: the process is then on its way out for a reason already given.
#include <cstdlib>
#include <cxxabi.h>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/runtime.hpp"

#define CUDA_CHECK(call) ::paceline::cuda::check((call), #call, __FILE__, __LINE__)

namespace paceline::cuda {
namespace {

constexpr std::size_t kSharedBytesOfEvery = 48 * 1024;  // what a kernel may have without asking

std::string words_for(cudaError_t status) {
    int device = -1;
    (void)cudaGetDevice(&device);
    (void)cudaGetLastError();  // one that can be forgotten should not show up in the next call
    return "device " + std::to_string(device) + ": " + cudaGetErrorName(status) + ", " +
           cudaGetErrorString(status);
}

void check(cudaError_t status, const char* call, const char* file, int line) {
    if (status == cudaSuccess) return;
    const std::string path = file;
    throw DeviceError(std::string(call) + " at " + path.substr(path.find_last_of('/') + 1) + ":" +
                      std::to_string(line) + ", " + words_for(status));
}

/// Whether there was memory. Any failure but a lack of it throws.
bool check_allocation(cudaError_t status, const char* call, std::size_t bytes) {
    if (status == cudaSuccess) return true;
    const std::string words = words_for(status);
    if (status == cudaErrorMemoryAllocation) return false;
    throw DeviceError(std::string(call) + " of " + std::to_string(bytes) + " bytes, " + words);
}

std::string kernel_name(const void* kernel) {
    const char* symbol = nullptr;
#if CUDART_VERSION >= 12030
    if (cudaFuncGetName(&symbol, kernel) != cudaSuccess) symbol = nullptr;
    (void)cudaGetLastError();
#endif
    if (symbol == nullptr) return "a kernel";
    int status = 0;
    char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = status == 0 ? text : symbol;
    std::free(text);
    return name;
}

/// The stream for something other than a kernel.
cudaStream_t without_kernel(Stream& stream) {
    stream.handle().after_kernel = false;
    return stream.handle().stream;
}

bool records(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

}  // namespace

namespace native {

void allow_shared_bytes(const void* kernel, std::size_t bytes) {
    if (bytes <= kSharedBytesOfEvery) return;
    static std::mutex mutex;
    static std::map<std::pair<int, const void*>, std::size_t> allowed;
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    const std::lock_guard<std::mutex> lock(mutex);
    std::size_t& most = allowed[{device, kernel}];
    if (bytes <= most) return;
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status != cudaSuccess) {
        const std::string words = words_for(status);
        throw DeviceError(kernel_name(kernel) + " cannot have " + std::to_string(bytes) +
                          " bytes of shared memory, " + words);
    }
    most = bytes;
}

void check_launch(cudaError_t status, const void* kernel, const LaunchShape& shape) {
    if (status == cudaSuccess) return;
    const std::string words = words_for(status);
    throw DeviceError(kernel_name(kernel) + " cannot be launched, " +
                      std::to_string(shape.blocks_x) + " x " + std::to_string(shape.blocks_y) +
                      " blocks of " + std::to_string(shape.threads) + " threads and " +
                      std::to_string(shape.shared_bytes) + " bytes of shared memory, " + words);
}

}  // namespace native

DeviceInfo use_device(int index) {
    set_device(index);
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    std::size_t free_bytes = 0;
    std::size_t memory_bytes = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &memory_bytes));
    DeviceInfo info;
    info.name = properties.name;
    info.capability = properties.major * 10 + properties.minor;
    info.processors = properties.multiProcessorCount;
    info.memory_bytes = memory_bytes;
    info.free_bytes = free_bytes;
    return info;
}

void set_device(int index) {
    const cudaError_t status = cudaSetDevice(index);
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();
    // Not words_for(): the device that it names is the one in use, and this one was wanted.
    throw DeviceError("cuda:" + std::to_string(index) + " cannot be used: " +
                      cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}

bool enable_peers(const std::vector<int>& devices) {
    int before = 0;
    CUDA_CHECK(cudaGetDevice(&before));
    const auto each_pair = [&](const auto& call) {
        for (const int from : devices) {
            for (const int to : devices) {
                if (from != to && !call(from, to)) return false;
            }
        }
        return true;
    };
    const bool can = each_pair([](int from, int to) {
        int reaches = 0;
        CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, from, to));
        return reaches != 0;
    });
    if (!can) return false;
    (void)each_pair([](int from, int to) {
        set_device(from);
        const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
        if (status == cudaErrorPeerAccessAlreadyEnabled) {
            (void)cudaGetLastError();
        } else {
            check(status, "cudaDeviceEnablePeerAccess", __FILE__, __LINE__);
        }
        return true;
    });
    set_device(before);
    return true;
}

bool DeviceMemory::allocate(std::size_t bytes, DeviceMemory& to) {
    DeviceMemory made;
    if (bytes > 0) {
        void* address = nullptr;
        if (!check_allocation(cudaMalloc(&address, bytes), "cudaMalloc", bytes)) return false;
        made.data_ = static_cast<std::byte*>(address);
        made.bytes_ = bytes;
    }
    to = std::move(made);
    return true;
}

DeviceMemory::~DeviceMemory() {
    if (data_ != nullptr) (void)cudaFree(data_);
}

bool PinnedMemory::allocate(std::size_t bytes, PinnedMemory& to) {
    PinnedMemory made;
    if (bytes > 0) {
        void* address = nullptr;
        if (!check_allocation(cudaMallocHost(&address, bytes), "cudaMallocHost", bytes)) {
            return false;
        }
        made.data_ = static_cast<std::byte*>(address);
        made.bytes_ = bytes;
    }
    to = std::move(made);
    return true;
}

PinnedMemory::~PinnedMemory() {
    if (data_ != nullptr) (void)cudaFreeHost(data_);
}

Stream::Stream() : handle_(std::make_unique<Handle>()) {
    int device = 0;
    int major = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    handle_->overlaps = major >= 9;
    CUDA_CHECK(cudaStreamCreateWithFlags(&handle_->stream, cudaStreamNonBlocking));
}

Stream::~Stream() {
    (void)cudaStreamDestroy(handle_->stream);
}

void Stream::to_device(void* device, const void* host, std::size_t bytes) {
    if (bytes == 0) return;
    CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, without_kernel(*this)));
}

void Stream::to_host(void* host, const void* device, std::size_t bytes) {
    if (bytes == 0) return;
    CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, without_kernel(*this)));
}

void Stream::to_device(void* device, const void* host, const Pieces& pieces) {
    if (pieces.count == 0 || pieces.bytes == 0) return;
    CUDA_CHECK(cudaMemcpy2DAsync(device, pieces.stride, host, pieces.bytes, pieces.bytes,
                                 pieces.count, cudaMemcpyHostToDevice, without_kernel(*this)));
}

void Stream::to_host(void* host, const void* device, const Pieces& pieces) {
    if (pieces.count == 0 || pieces.bytes == 0) return;
    CUDA_CHECK(cudaMemcpy2DAsync(host, pieces.bytes, device, pieces.stride, pieces.bytes,
                                 pieces.count, cudaMemcpyDeviceToHost, without_kernel(*this)));
}

void Stream::on_device(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    // Default: the addresses say whose memory it is.
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, without_kernel(*this)));
}

void Stream::join_on_device(void* together, const void* apart, const Pieces& pieces) {
    if (pieces.count == 0 || pieces.bytes == 0) return;
    CUDA_CHECK(cudaMemcpy2DAsync(together, pieces.bytes, apart, pieces.stride, pieces.bytes,
                                 pieces.count, cudaMemcpyDefault, without_kernel(*this)));
}

void Stream::part_on_device(void* apart, const void* together, const Pieces& pieces) {
    if (pieces.count == 0 || pieces.bytes == 0) return;
    CUDA_CHECK(cudaMemcpy2DAsync(apart, pieces.stride, together, pieces.bytes, pieces.bytes,
                                 pieces.count, cudaMemcpyDefault, without_kernel(*this)));
}

void Stream::fill(void* device, std::uint8_t value, std::size_t bytes) {
    if (bytes == 0) return;
    CUDA_CHECK(cudaMemsetAsync(device, value, bytes, without_kernel(*this)));
}

void Stream::finish() {
    CUDA_CHECK(cudaStreamSynchronize(handle_->stream));
}

bool Stream::idle() {
    const cudaError_t status = cudaStreamQuery(handle_->stream);
    if (status == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    check(status, "cudaStreamQuery", __FILE__, __LINE__);
    return true;
}

struct Graph::Recording {
    cudaGraphExec_t graph = nullptr;
    ~Recording() {
        if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
    }
};

/// A stream that is being recorded; not any more, and nothing kept, if something throws.
class Capture {
public:
    explicit Capture(Stream& stream) : stream_(stream) {
        CUDA_CHECK(
            cudaStreamBeginCapture(without_kernel(stream_), cudaStreamCaptureModeThreadLocal));
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() {
        if (open_) {
            (void)cudaStreamEndCapture(without_kernel(stream_), &graph_);
            (void)cudaGetLastError();
        }
        if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
    }
    cudaGraph_t end() {
        open_ = false;
        CUDA_CHECK(cudaStreamEndCapture(without_kernel(stream_), &graph_));
        return graph_;
    }

private:
    Stream& stream_;
    cudaGraph_t graph_ = nullptr;
    bool open_ = true;
};

Graph Stream::record(const std::function<void()>& work) {
    Capture capture(*this);
    work();
    Graph graph;
    graph.recording_ = std::make_unique<Graph::Recording>();
    CUDA_CHECK(cudaGraphInstantiate(&graph.recording_->graph, capture.end(), 0));
    return graph;
}

Graph::Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(Stream& stream) const {
    if (empty()) throw DeviceError("launch() of an empty graph");
    CUDA_CHECK(cudaGraphLaunch(recording_->graph, without_kernel(stream)));
}

struct Event::Handle {
    cudaEvent_t event = nullptr;
    EventUse use = EventUse::Time;
    bool recorded = false;  // CUDA calls an event done that was never recorded
};

Event::Event(EventUse use) : handle_(std::make_unique<Handle>()) {
    handle_->use = use;
    // Without a time a wait costs less.
    const unsigned flags = use == EventUse::Time ? 0U : cudaEventDisableTiming;
    CUDA_CHECK(cudaEventCreateWithFlags(&handle_->event, flags));
}

Event::~Event() {
    (void)cudaEventDestroy(handle_->event);
}

void Event::record(Stream& stream) {
    cudaStream_t native_stream = without_kernel(stream);
    // In a graph an event of time is a node of its own, to be seen from outside of it; one of order
    // is no node: who waits for it depends on what was recorded before.
    const bool outside = handle_->use == EventUse::Time && records(native_stream);
    const unsigned flags = outside ? cudaEventRecordExternal : 0U;
    CUDA_CHECK(cudaEventRecordWithFlags(handle_->event, native_stream, flags));
    handle_->recorded = true;
}

void Stream::wait(const Event& event) {
    if (event.handle_->use != EventUse::Order)
        throw DeviceError("wait() for an event that is not for order");
    if (!event.handle_->recorded) return;
    CUDA_CHECK(cudaStreamWaitEvent(without_kernel(*this), event.handle_->event, 0));
}

bool Event::reached() const {
    if (!handle_->recorded) return false;
    const cudaError_t status = cudaEventQuery(handle_->event);
    if (status == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    check(status, "cudaEventQuery", __FILE__, __LINE__);
    return true;
}

double Event::seconds_between(const Event& from, const Event& to) {
    if (!from.handle_->recorded || !to.handle_->recorded) {
        throw DeviceError("seconds_between() of an event that was not reached");
    }
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, from.handle_->event, to.handle_->event));
    return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace paceline::cuda
