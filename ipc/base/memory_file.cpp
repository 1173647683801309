#include "ipc/base/memory_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/base/denied_call.hpp"

namespace paceline {

int open_memory_file(const std::string& name) {
    const int sealable = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (sealable >= 0 || !is_denied(errno)) return sealable;
    constexpr mode_t kMode = 0600;
    const int nameless = ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
    if (nameless >= 0) return nameless;
    std::string path = "/dev/shm/" + name + "-XXXXXX";
    const int unlinked = ::mkostemp(path.data(), O_CLOEXEC);
    if (unlinked >= 0) (void)::unlink(path.c_str());
    return unlinked;
}

bool seals_memory_files() {
    static const bool seals = [] {
        const int descriptor = ::memfd_create("paceline-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (descriptor < 0) return !is_denied(errno);
        (void)::close(descriptor);
        return true;
    }();
    return seals;
}

}  // namespace paceline
