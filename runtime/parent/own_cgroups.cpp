#include "runtime/parent/own_cgroups.hpp"

#include <fstream>
#include <iterator>

namespace paceline {

bool OwnCgroup::has(std::string_view controller) const {
    const std::string listed = "," + controllers + ",";
    return listed.find("," + std::string{controller} + ",") != std::string::npos;
}

std::vector<OwnCgroup> own_cgroups() {
    std::vector<OwnCgroup> groups;
    std::ifstream lines{"/proc/self/cgroup"};
    for (std::string line; std::getline(lines, line);) {
        // "id:controllers:path"
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        groups.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
    }
    return groups;
}

std::vector<std::string> with_groups_above(std::string path) {
    std::vector<std::string> all{path};
    while (!path.empty() && path != "/") {
        path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
        all.push_back(path);
    }
    return all;
}

std::optional<std::string> read_kernel_file(const std::string& path) {
    std::ifstream file{path};
    if (!file) return std::nullopt;
    return std::string{std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace paceline
