// nccl.hpp on libnccl.so.2, which is loaded at run time. Compiled against nccl.h.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/core.h>
#include <mutex>
#include <vector>

#include <nccl.h>

#include "ipc/device/nccl.hpp"

// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member that is declared
#define PACELINE_CALL(name) decltype(&::name) name = load<decltype(&::name)>(#name)

namespace paceline {
namespace {

static_assert(static_cast<int>(NcclResult::RemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::InProgress) == ncclInProgress);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

/// Where packages, the CUDA toolkit and people put the library: names are looked for in
/// LD_LIBRARY_PATH and in the system's folders.
constexpr const char* kPlaces[] = {"libnccl.so.2",
                                   "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
                                   "/usr/lib/aarch64-linux-gnu/libnccl.so.2",
                                   "/usr/local/cuda/lib64/libnccl.so.2",
                                   "/usr/local/cuda/lib/libnccl.so.2",
                                   "/usr/local/cuda/targets/x86_64-linux/lib/libnccl.so.2",
                                   "/usr/local/lib/libnccl.so.2",
                                   "/opt/nccl/lib/libnccl.so.2"};
/// Where pip puts nvidia-nccl-cu13: LIBRARY/python3.X/PACKAGES/nvidia/nccl/lib.
constexpr const char* kPipRoots[] = {"/usr/local/lib", "/usr/lib"};
constexpr const char* kPipPackages[] = {"dist-packages", "site-packages"};

std::vector<std::string> places() {
    std::vector<std::string> all(std::begin(kPlaces), std::end(kPlaces));
    for (const char* root : kPipRoots) {
        std::error_code problem;
        for (const auto& entry : std::filesystem::directory_iterator{root, problem}) {
            if (!entry.path().filename().string().starts_with("python3")) continue;
            for (const char* packages : kPipPackages) {
                all.push_back(entry.path() / packages / "nvidia/nccl/lib/libnccl.so.2");
            }
        }
    }
    return all;
}

/// The listener of NCCL's RAS thread would take a port that all processes of the host share.
/// What the user has set stays.
void prepare_environment() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): once, before the library and its threads are there
    (void)setenv("NCCL_RAS_ENABLE", "0", 0);
}

class Library final : public Nccl {
public:
    /// Errors: Unsupported with what is wrong with this library.
    static Result<std::shared_ptr<Nccl>> load(const std::string& path) {
        void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded
        if (handle == nullptr) {
            const char* words = dlerror();
            return Error{Errc::Unsupported, words != nullptr ? words : path + ": not loaded"};
        }
        auto library = std::make_shared<Library>(handle);
        if (library->missing_ != nullptr) {
            return Error{Errc::Unsupported, fmt::format("{} has no {}()", path, library->missing_)};
        }
        if (library->ncclGetVersion(&library->version_) != ncclSuccess ||
            library->version_ < kNcclVersionMin) {
            return Error{Errc::Unsupported, fmt::format("{} is NCCL {}, at least {} is needed",
                                                        path, nccl_version_text(library->version_),
                                                        nccl_version_text(kNcclVersionMin))};
        }
        return std::shared_ptr<Nccl>{library};
    }

    explicit Library(void* handle) : handle_{handle} {}

    int version() const override { return version_; }

    NcclResult unique_id(NcclId& id) override {
        ncclUniqueId made{};
        const ncclResult_t result = ncclGetUniqueId(&made);
        std::memcpy(id.data(), made.internal, id.size());
        return ours(result);
    }

    NcclResult init(NcclComm& comm, int ranks, const NcclId& id, int rank) override {
        ncclUniqueId theirs{};
        std::memcpy(theirs.internal, id.data(), id.size());
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.minCTAs = 1;
        config.maxCTAs = 1;
        ncclComm_t made = nullptr;
        const ncclResult_t result = ncclCommInitRankConfig(&made, ranks, theirs, rank, &config);
        comm = made;
        return ours(result);
    }

    NcclResult state(NcclComm comm, NcclResult& state) override {
        ncclResult_t now = ncclSuccess;
        const ncclResult_t result = ncclCommGetAsyncError(static_cast<ncclComm_t>(comm), &now);
        state = ours(now);
        return ours(result);
    }

    NcclResult send(const std::byte* from,
                    std::size_t bytes,
                    int peer,
                    NcclComm comm,
                    DeviceStream stream) override {
        return ours(ncclSend(from, bytes, ncclUint8, peer, static_cast<ncclComm_t>(comm),
                             static_cast<cudaStream_t>(stream)));
    }
    NcclResult receive(
        std::byte* to, std::size_t bytes, int peer, NcclComm comm, DeviceStream stream) override {
        return ours(ncclRecv(to, bytes, ncclUint8, peer, static_cast<ncclComm_t>(comm),
                             static_cast<cudaStream_t>(stream)));
    }

    bool can_revoke() const override { return revoke_ != nullptr; }
    NcclResult revoke(NcclComm comm) override {
        return ours(revoke_(static_cast<ncclComm_t>(comm), 0));
    }
    NcclResult abort(NcclComm comm) override {
        return ours(ncclCommAbort(static_cast<ncclComm_t>(comm)));
    }
    std::string last_error(NcclComm comm) override {
        const char* words = ncclGetLastError(static_cast<ncclComm_t>(comm));
        return words != nullptr ? words : "";
    }

private:
    static NcclResult ours(ncclResult_t result) { return static_cast<NcclResult>(result); }

    template <class Call>
    Call load(const char* name) {
        void* found = dlsym(handle_, name);
        if (found == nullptr) missing_ = name;
        return reinterpret_cast<Call>(found);
    }

    void* handle_;
    const char* missing_ = nullptr;  // stands before the calls, which set it
    PACELINE_CALL(ncclGetVersion);
    PACELINE_CALL(ncclGetUniqueId);
    PACELINE_CALL(ncclCommInitRankConfig);
    PACELINE_CALL(ncclCommGetAsyncError);
    PACELINE_CALL(ncclSend);
    PACELINE_CALL(ncclRecv);
    PACELINE_CALL(ncclCommAbort);
    PACELINE_CALL(ncclGetLastError);
    using RevokeCall = ncclResult_t (*)(ncclComm_t, int);  // older headers have none
    // Null: nor has the library.
    RevokeCall revoke_ = reinterpret_cast<RevokeCall>(dlsym(handle_, "ncclCommRevoke"));
    int version_ = 0;
};

Result<std::shared_ptr<Nccl>> find_library(const std::string& named) {
    prepare_environment();
    if (!named.empty()) return Library::load(named);
    std::string tried;
    for (const std::string& path : places()) {
        std::error_code problem;
        if (path.front() == '/' && !std::filesystem::exists(path, problem)) continue;
        Result<std::shared_ptr<Nccl>> found = Library::load(path);
        if (found) return found;
        tried += (tried.empty() ? "" : "; ") + found.error().what;
    }
    return Error{Errc::Unsupported,
                 fmt::format("no NCCL library ({}); install libnccl2 or nvidia-nccl-cu13, or name "
                             "it with PACELINE_NCCL_LIBRARY",
                             tried)};
}

}  // namespace

Result<std::shared_ptr<Nccl>> open_nccl(const std::string& named) {
    static std::mutex mutex;
    static std::shared_ptr<Nccl>* loaded = nullptr;  // never unloaded: its threads live on
    const std::scoped_lock lock(mutex);
    if (loaded != nullptr) return *loaded;
    Result<std::shared_ptr<Nccl>> found = find_library(named);
    if (found) loaded = new std::shared_ptr<Nccl>{found.value()};
    return found;
}

}  // namespace paceline
