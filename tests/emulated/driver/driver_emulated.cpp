// driver.hpp on host memory: exported memory is a memory file, and the devices of all processes are
// this machine.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "ipc/device/driver.hpp"
#include "tests/emulated/driver/context.hpp"
#include "tests/emulated/driver/emulation.hpp"
#include "tests/emulated/driver/stream.hpp"

namespace paceline {
namespace {

using emulated::count_object;
using emulated::misuse;

constexpr std::size_t kGranularity = std::size_t{2} << 20U;
constexpr int kUnwritten = 0xFF;

Error system_error(const char* call) {
    return {Errc::System,
            fmt::format("{} of the emulated device failed: {}", call, std::strerror(errno))};
}

/// Address ranges of this process, of all drivers.
class Ranges {
public:
    struct Range {
        std::size_t bytes = 0;
        bool mapped = false;
        bool accessible = false;
    };
    static Ranges& all() {
        static Ranges* one = new Ranges;
        return *one;
    }
    void add(const std::byte* at, std::size_t bytes) {
        const std::scoped_lock lock(mutex_);
        ranges_[at].bytes = bytes;
    }
    void remove(const std::byte* at) {
        const std::scoped_lock lock(mutex_);
        ranges_.erase(at);
    }
    /// False if `at` begins no range of `bytes`.
    [[nodiscard]] bool change(const std::byte* at,
                              std::size_t bytes,
                              bool mapped,
                              bool accessible) {
        const std::scoped_lock lock(mutex_);
        const auto found = ranges_.find(at);
        if (found == ranges_.end() || found->second.bytes != bytes) return false;
        found->second.mapped = mapped;
        found->second.accessible = accessible;
        return true;
    }
    [[nodiscard]] bool accessible(const std::byte* at, std::size_t bytes) {
        const std::scoped_lock lock(mutex_);
        auto after = ranges_.upper_bound(at);
        if (after == ranges_.begin()) return false;
        const auto& [start, range] = *std::prev(after);
        const auto offset = static_cast<std::size_t>(at - start);
        return range.accessible && offset < range.bytes && bytes <= range.bytes - offset;
    }

private:
    std::mutex mutex_;
    std::map<const std::byte*, Range> ranges_;
};

class EmulatedDriver final : public Driver {
public:
    explicit EmulatedDriver(int device) : device_{device} {}

    Status enter() override {
        emulated::set_current_device(device_);
        return {};
    }
    DeviceUuid uuid() const override {
        DeviceUuid uuid{};
        uuid[0] = 'E';
        uuid[1] = static_cast<std::uint8_t>(device_);
        return uuid;
    }
    Status reaches(const DeviceUuid& other) override {
        if (other[0] == 'E') return {};
        return Error{Errc::Unsupported, "memory of a device that is not emulated"};
    }
    Result<std::size_t> granularity() override { return kGranularity; }

    Result<MemoryHandle> create(std::size_t bytes) override {
        check_context("cuMemCreate()");
        if (bytes == 0 || bytes % kGranularity != 0) {
            return Error{Errc::System, "cuMemCreate() of no multiple of the granularity"};
        }
        OwnedFd file{::memfd_create("paceline-emulated-device", MFD_CLOEXEC)};
        if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
            return system_error("cuMemCreate()");
        }
        void* all = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
        if (all == MAP_FAILED) return system_error("cuMemCreate()");
        std::memset(all, kUnwritten, bytes);
        ::munmap(all, bytes);
        return keep(std::move(file));
    }
    Result<OwnedFd> export_memory(MemoryHandle memory) override {
        OwnedFd file{::fcntl(descriptor(memory), F_DUPFD_CLOEXEC, 0)};
        if (!file) return system_error("cuMemExportToShareableHandle()");
        return file;
    }
    Result<MemoryHandle> import_memory(const OwnedFd& file) override {
        check_context("cuMemImportFromShareableHandle()");
        if (::fcntl(file.get(), F_GET_SEALS) < 0) {
            return Error{Errc::System, "cuMemImportFromShareableHandle() of what is no memory"};
        }
        OwnedFd own{::fcntl(file.get(), F_DUPFD_CLOEXEC, 0)};
        if (!own) return system_error("cuMemImportFromShareableHandle()");
        imported_ = imported_ || emulated::link_rules().peer_writes_are_lost;
        return keep(std::move(own));
    }
    Result<std::byte*> reserve(std::size_t bytes) override {
        void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return system_error("cuMemAddressReserve()");
        count_object(1);
        Ranges::all().add(static_cast<std::byte*>(at), bytes);
        return static_cast<std::byte*>(at);
    }
    Status map(std::byte* at, std::size_t bytes, MemoryHandle memory) override {
        struct stat file {};
        if (::fstat(descriptor(memory), &file) != 0 ||
            static_cast<std::size_t>(file.st_size) != bytes) {
            return Error{Errc::System, fmt::format("cuMemMap() of {} bytes, the memory has {}",
                                                   bytes, file.st_size)};
        }
        if (!Ranges::all().change(at, bytes, true, false)) {
            return Error{Errc::System, "cuMemMap() to what was not reserved"};
        }
        const int kind = imported_ ? MAP_PRIVATE : MAP_SHARED;
        if (::mmap(at, bytes, PROT_NONE, kind | MAP_FIXED, descriptor(memory), 0) == MAP_FAILED) {
            return system_error("cuMemMap()");
        }
        return {};
    }
    Status allow_access(std::byte* at, std::size_t bytes) override {
        if (!Ranges::all().change(at, bytes, true, true)) {
            return Error{Errc::System, "cuMemSetAccess() of what is not mapped"};
        }
        if (::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) {
            return system_error("cuMemSetAccess()");
        }
        emulated::tell_memory(true, at, bytes);
        return {};
    }
    void unmap(std::byte* at, std::size_t bytes) override {
        if (!Ranges::all().change(at, bytes, false, false)) misuse("cuMemUnmap() of no mapping");
        emulated::tell_memory(false, at, bytes);
        (void)::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    void free_address(std::byte* at, std::size_t bytes) override {
        Ranges::all().remove(at);
        ::munmap(at, bytes);
        count_object(-1);
    }
    void release(MemoryHandle memory) override {
        OwnedFd{descriptor(memory)}.reset();
        count_object(-1);
    }

    Status write(std::byte* to, const void* from, std::size_t bytes) override {
        return copy_now(to, from, to, bytes);
    }
    Status read(void* to, const std::byte* from, std::size_t bytes) override {
        return copy_now(to, from, from, bytes);
    }
    Status copy(std::byte* to,
                const std::byte* from,
                std::size_t bytes,
                DeviceStream stream) override {
        submit(stream, [=] {
            std::memcpy(to, from, bytes);
            return true;
        });
        return {};
    }

    Result<DeviceStream> make_stream() override {
        check_context("cuStreamCreate()");
        return DeviceStream{new emulated::Stream};
    }
    void destroy_stream(DeviceStream stream) override {
        delete static_cast<emulated::Stream*>(stream);
    }
    Result<DeviceEvent> make_event() override {
        count_object(1);
        return DeviceEvent{new emulated::Event};
    }
    void destroy_event(DeviceEvent event) override {
        delete static_cast<emulated::Event*>(event);
        count_object(-1);
    }
    Status record(DeviceEvent event, DeviceStream stream) override {
        auto& into = *static_cast<emulated::Stream*>(stream);
        if (into.launching()) misuse("cuEventRecord() in a stream of an operation in progress");
        static_cast<emulated::Event*>(event)->record(into);
        return {};
    }
    Result<bool> reached(DeviceEvent event) override {
        return static_cast<emulated::Event*>(event)->reached();
    }

private:
    static int descriptor(MemoryHandle memory) { return static_cast<int>(memory); }

    static MemoryHandle keep(OwnedFd file) {
        count_object(1);
        return static_cast<MemoryHandle>(file.release());
    }

    void check_context(const char* call) const {
        if (emulated::current_device() != device_) {
            misuse(
                fmt::format("{} in a thread whose context is not that of cuda:{}", call, device_));
        }
    }

    static void submit(DeviceStream stream, emulated::Stream::Work work) {
        auto& into = *static_cast<emulated::Stream*>(stream);
        if (into.launching()) misuse("cuMemcpyAsync() in a stream of an operation in progress");
        into.submit(std::move(work));
    }

    Status copy_now(void* to, const void* from, const std::byte* on_device, std::size_t bytes) {
        check_context("cuMemcpyAsync()");
        if (!Ranges::all().accessible(on_device, bytes)) {
            return Error{Errc::System,
                         fmt::format("cuMemcpyAsync() of {} bytes: the device may not "
                                     "access this memory",
                                     bytes)};
        }
        std::memcpy(to, from, bytes);
        return {};
    }

    int device_;
    bool imported_ = false;
};

}  // namespace

Result<std::unique_ptr<Driver>> open_driver(int device) {
    if (Status there = exports_memory(device); !there) return there.error();
    return std::unique_ptr<Driver>{new EmulatedDriver{device}};
}

Status exports_memory(int device) {
    if (device >= 0 && device < emulated::devices()) return {};
    return Error{Errc::Unsupported, fmt::format("cuda:{} is none of the {} emulated devices",
                                                device, emulated::devices())};
}

}  // namespace paceline
