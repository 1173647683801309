// driver.hpp on libcuda.so.1, which is loaded at run time: nothing new is linked, and the program
// runs where there is no driver.
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <fmt/core.h>
#include <mutex>
#include <utility>

#include <cuda.h>

#include "ipc/device/driver.hpp"

// Names in the library are those that cuda.h makes of them: cuStreamDestroy_v2.
#define PACELINE_SYMBOL_OF(name) #name
#define PACELINE_SYMBOL(name) PACELINE_SYMBOL_OF(name)
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member that is declared
#define PACELINE_CALL(name) decltype(&::name) name = load<decltype(&::name)>(PACELINE_SYMBOL(name))

namespace paceline {
namespace {

class Calls {
public:
    std::string problem;  // why there are none; stands before the calls, which set it

private:
    void* library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded

    template <class Call>
    Call load(const char* name) {
        void* found = library_ != nullptr ? dlsym(library_, name) : nullptr;
        if (found == nullptr && problem.empty()) {
            const char* words = dlerror();
            problem = fmt::format("no NVIDIA driver with {}(): {}", name,
                                  words != nullptr ? words : "libcuda.so.1 is not there");
        }
        return reinterpret_cast<Call>(found);
    }

public:
    PACELINE_CALL(cuInit);
    PACELINE_CALL(cuGetErrorName);
    PACELINE_CALL(cuGetErrorString);
    PACELINE_CALL(cuDeviceGet);
    PACELINE_CALL(cuDeviceGetCount);
    PACELINE_CALL(cuDeviceGetUuid);
    PACELINE_CALL(cuDeviceGetAttribute);
    PACELINE_CALL(cuDeviceCanAccessPeer);
    PACELINE_CALL(cuDevicePrimaryCtxRetain);
    PACELINE_CALL(cuDevicePrimaryCtxRelease);
    PACELINE_CALL(cuCtxSetCurrent);
    PACELINE_CALL(cuMemGetAllocationGranularity);
    PACELINE_CALL(cuMemCreate);
    PACELINE_CALL(cuMemRelease);
    PACELINE_CALL(cuMemExportToShareableHandle);
    PACELINE_CALL(cuMemImportFromShareableHandle);
    PACELINE_CALL(cuMemAddressReserve);
    PACELINE_CALL(cuMemAddressFree);
    PACELINE_CALL(cuMemMap);
    PACELINE_CALL(cuMemUnmap);
    PACELINE_CALL(cuMemSetAccess);
    PACELINE_CALL(cuMemcpyAsync);
    PACELINE_CALL(cuStreamCreate);
    PACELINE_CALL(cuStreamDestroy);
    PACELINE_CALL(cuStreamSynchronize);
    PACELINE_CALL(cuEventCreate);
    PACELINE_CALL(cuEventDestroy);
    PACELINE_CALL(cuEventRecord);
    PACELINE_CALL(cuEventQuery);

    Calls() {
        if (!problem.empty()) return;
        if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) {
            problem = fmt::format("cuInit() failed: {}", words_for(result));
        }
    }

    [[nodiscard]] std::string words_for(CUresult result) const {
        const char* name = nullptr;
        const char* text = nullptr;
        (void)cuGetErrorName(result, &name);
        (void)cuGetErrorString(result, &text);
        return fmt::format("{}, {}", name != nullptr ? name : std::to_string(result),
                           text != nullptr ? text : "an unknown result");
    }
};

const Calls& calls() {
    static const Calls* loaded = new Calls;  // never destroyed: memory may be freed after main()
    return *loaded;
}

Result<CUdevice> find_device(int number) {
    if (!calls().problem.empty()) return Error{Errc::Unsupported, calls().problem};
    CUdevice device = 0;
    if (const CUresult result = calls().cuDeviceGet(&device, number); result != CUDA_SUCCESS) {
        return Error{Errc::Unsupported, fmt::format("cuda:{} is no device of this process: {}",
                                                    number, calls().words_for(result))};
    }
    return device;
}

bool has(CUdevice device, CUdevice_attribute attribute) {
    int value = 0;
    return calls().cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

CUdeviceptr device_address(const std::byte* address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

class CudaDriver final : public Driver {
public:
    CudaDriver(CUdevice device, int number, CUcontext context)
        : device_{device}, number_{number}, context_{context} {
        where_.type = CU_MEM_LOCATION_TYPE_DEVICE;
        where_.id = device;
        kind_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        kind_.location = where_;
        if (has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
            kind_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        }
    }
    CudaDriver(const CudaDriver&) = delete;
    CudaDriver& operator=(const CudaDriver&) = delete;
    ~CudaDriver() override {
        if (copies_ != nullptr) (void)calls().cuStreamDestroy(copies_);
        (void)calls().cuDevicePrimaryCtxRelease(device_);
    }

    Status enter() override { return said(calls().cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

    DeviceUuid uuid() const override { return uuid_of(device_); }

    Status reaches(const DeviceUuid& other) override {
        int count = 0;
        (void)calls().cuDeviceGetCount(&count);
        for (int number = 0; number < count; ++number) {
            CUdevice peer = 0;
            if (calls().cuDeviceGet(&peer, number) != CUDA_SUCCESS || uuid_of(peer) != other) {
                continue;
            }
            int can = peer == device_ ? 1 : 0;
            if (can == 0) (void)calls().cuDeviceCanAccessPeer(&can, device_, peer);
            if (can != 0) return {};
            return Error{Errc::Unsupported,
                         fmt::format("cuda:{} has no peer access to cuda:{}", number_, number)};
        }
        return {};  // hidden from this process: mapping its memory will tell
    }

    Result<std::size_t> granularity() override {
        std::size_t bytes = 0;
        const CUresult result =
            calls().cuMemGetAllocationGranularity(&bytes, &kind_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        return with(result, "cuMemGetAllocationGranularity", bytes);
    }

    Result<MemoryHandle> create(std::size_t bytes) override {
        CUmemGenericAllocationHandle memory = 0;
        const CUresult result = calls().cuMemCreate(&memory, bytes, &kind_, 0);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            return Error{Errc::OutOfMemory,
                         fmt::format("cuda:{} has no {} bytes left for tensors between stages",
                                     number_, bytes)};
        }
        return with(result, "cuMemCreate", static_cast<MemoryHandle>(memory));
    }

    Result<OwnedFd> export_memory(MemoryHandle memory) override {
        int file = -1;
        const CUresult result = calls().cuMemExportToShareableHandle(
            &file, static_cast<CUmemGenericAllocationHandle>(memory),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (Status done = said(result, "cuMemExportToShareableHandle"); !done) return done.error();
        return OwnedFd{file};
    }

    Result<MemoryHandle> import_memory(const OwnedFd& file) override {
        CUmemGenericAllocationHandle memory = 0;
        // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes a descriptor as a pointer
        auto* handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get()));
        const CUresult result = calls().cuMemImportFromShareableHandle(
            &memory, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        return with(result, "cuMemImportFromShareableHandle", static_cast<MemoryHandle>(memory));
    }

    Result<std::byte*> reserve(std::size_t bytes) override {
        CUdeviceptr at = 0;
        if (Status done =
                said(calls().cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
            !done) {
            return done.error();
        }
        // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers
        return reinterpret_cast<std::byte*>(at);
    }

    Status map(std::byte* at, std::size_t bytes, MemoryHandle memory) override {
        return said(calls().cuMemMap(device_address(at), bytes, 0,
                                     static_cast<CUmemGenericAllocationHandle>(memory), 0),
                    "cuMemMap");
    }

    Status allow_access(std::byte* at, std::size_t bytes) override {
        CUmemAccessDesc access{};
        access.location = where_;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return said(calls().cuMemSetAccess(device_address(at), bytes, &access, 1),
                    "cuMemSetAccess");
    }

    void unmap(std::byte* at, std::size_t bytes) override {
        (void)calls().cuMemUnmap(device_address(at), bytes);
    }
    void free_address(std::byte* at, std::size_t bytes) override {
        (void)calls().cuMemAddressFree(device_address(at), bytes);
    }
    void release(MemoryHandle memory) override {
        (void)calls().cuMemRelease(static_cast<CUmemGenericAllocationHandle>(memory));
    }

    Status write(std::byte* to, const void* from, std::size_t bytes) override {
        return copy_and_wait(device_address(to), reinterpret_cast<CUdeviceptr>(from), bytes);
    }
    Status read(void* to, const std::byte* from, std::size_t bytes) override {
        return copy_and_wait(reinterpret_cast<CUdeviceptr>(to), device_address(from), bytes);
    }
    Status copy(std::byte* to,
                const std::byte* from,
                std::size_t bytes,
                DeviceStream stream) override {
        return said(calls().cuMemcpyAsync(device_address(to), device_address(from), bytes,
                                          static_cast<CUstream>(stream)),
                    "cuMemcpyAsync");
    }

    Result<DeviceStream> make_stream() override {
        CUstream stream = nullptr;
        if (Status done =
                said(calls().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
            !done) {
            return done.error();
        }
        return DeviceStream{stream};
    }
    void destroy_stream(DeviceStream stream) override {
        (void)calls().cuStreamDestroy(static_cast<CUstream>(stream));
    }
    Result<DeviceEvent> make_event() override {
        CUevent event = nullptr;
        if (Status done =
                said(calls().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
            !done) {
            return done.error();
        }
        return DeviceEvent{event};
    }
    void destroy_event(DeviceEvent event) override {
        (void)calls().cuEventDestroy(static_cast<CUevent>(event));
    }
    Status record(DeviceEvent event, DeviceStream stream) override {
        return said(
            calls().cuEventRecord(static_cast<CUevent>(event), static_cast<CUstream>(stream)),
            "cuEventRecord");
    }
    Result<bool> reached(DeviceEvent event) override {
        const CUresult result = calls().cuEventQuery(static_cast<CUevent>(event));
        if (result == CUDA_ERROR_NOT_READY) return false;
        return with(result, "cuEventQuery", true);
    }

private:
    [[nodiscard]] Status said(CUresult result, const char* call) const {
        if (result == CUDA_SUCCESS) return {};
        return Error{Errc::System, fmt::format("{}() on cuda:{} failed: {}", call, number_,
                                               calls().words_for(result))};
    }
    template <class T>
    [[nodiscard]] Result<T> with(CUresult result, const char* call, T value) const {
        if (Status done = said(result, call); !done) return done.error();
        return value;
    }

    static DeviceUuid uuid_of(CUdevice device) {
        CUuuid words{};
        DeviceUuid uuid{};
        if (calls().cuDeviceGetUuid(&words, device) == CUDA_SUCCESS) {
            std::memcpy(uuid.data(), words.bytes, uuid.size());
        }
        return uuid;
    }

    /// In a stream of its own: the default one would wait for the work of others.
    Status copy_and_wait(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
        const std::scoped_lock lock(copies_mutex_);
        if (copies_ == nullptr) {
            Result<DeviceStream> made = make_stream();
            if (!made) return made.error();
            copies_ = static_cast<CUstream>(made.value());
        }
        if (Status put = said(calls().cuMemcpyAsync(to, from, bytes, copies_), "cuMemcpyAsync");
            !put) {
            return put;
        }
        return said(calls().cuStreamSynchronize(copies_), "cuStreamSynchronize");
    }

    CUdevice device_;
    int number_;
    CUcontext context_;
    CUmemLocation where_{};
    CUmemAllocationProp kind_{};
    std::mutex copies_mutex_;
    CUstream copies_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Driver>> open_driver(int device) {
    Result<CUdevice> found = find_device(device);
    if (!found) return found.error();
    CUcontext context = nullptr;
    const CUresult result = calls().cuDevicePrimaryCtxRetain(&context, found.value());
    if (result != CUDA_SUCCESS) {
        return Error{Errc::System, fmt::format("cuDevicePrimaryCtxRetain() on cuda:{} failed: {}",
                                               device, calls().words_for(result))};
    }
    return std::unique_ptr<Driver>{new CudaDriver{found.value(), device, context}};
}

Status exports_memory(int device) {
    Result<CUdevice> found = find_device(device);
    if (!found) return found.error();
    if (!has(found.value(), CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        return Error{Errc::Unsupported,
                     fmt::format("cuda:{} has no virtual memory management", device)};
    }
    if (!has(found.value(), CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        return Error{Errc::Unsupported,
                     fmt::format("memory of cuda:{} cannot be passed as a descriptor", device)};
    }
    return {};
}

}  // namespace paceline
