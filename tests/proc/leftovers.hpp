// Leftovers: what must be the same after a run of processes as before it.
//
// Children (alive or zombie), descriptors, mappings of shared memory, and names in /dev/shm and
// /tmp. Checked by the destructor, as doctest checks.
#pragma once

#include <cerrno>
#include <dirent.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <doctest/doctest.h>

namespace paceline::testing {

inline std::set<std::string> entries_of(const char* path) {
    std::set<std::string> entries;
    DIR* folder = ::opendir(path);
    if (folder == nullptr) return entries;
    while (const dirent* entry = ::readdir(folder)) entries.insert(entry->d_name);
    ::closedir(folder);
    return entries;
}

/// Processes whose parent this one is, dead ones included.
inline int child_count() {
    int count = 0;
    for (const std::string& name : entries_of("/proc")) {
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream status{"/proc/" + name + "/status"};
        for (std::string line; std::getline(status, line);) {
            if (line == "PPid:\t" + std::to_string(::getpid())) ++count;
        }
    }
    return count;
}

inline bool is_folder(const std::string& path) {
    std::error_code vanished;  // it may be gone by now
    return std::filesystem::is_directory(path, vanished);
}

inline int mapped_channels() {
    int count = 0;
    std::ifstream maps{"/proc/self/maps"};
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:paceline") != std::string::npos) ++count;
    }
    return count;
}

class Leftovers {
public:
    Leftovers() = default;
    Leftovers(const Leftovers&) = delete;
    Leftovers& operator=(const Leftovers&) = delete;
    ~Leftovers() {
        CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
        CHECK(errno == ECHILD);
        CHECK(child_count() == 0);
        CHECK(entries_of("/proc/self/fd").size() == descriptors_);
        CHECK(mapped_channels() == 0);
        check_names("/dev/shm", shm_);
        check_names("/tmp", tmp_);
    }

private:
    /// Other programs, and other tests in folders of their own, may use these at the same time:
    /// ours would be a file with our name.
    static void check_names(const char* folder, const std::set<std::string>& before) {
        for (const std::string& name : entries_of(folder)) {
            if (is_folder(std::string{folder} + "/" + name)) continue;
            const bool is_ours = name.starts_with("paceline-") || name.starts_with("toy_stage");
            CHECK_MESSAGE((!is_ours || before.count(name) != 0), folder << "/" << name);
        }
    }
    std::size_t descriptors_ = entries_of("/proc/self/fd").size();
    std::set<std::string> shm_ = entries_of("/dev/shm");
    std::set<std::string> tmp_ = entries_of("/tmp");
};

}  // namespace paceline::testing
