#include "launch/load/parts_search.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace paceline {
namespace {

namespace fs = std::filesystem;

/// The folders in `parent`, sorted by name; none if there is no such folder.
void add_folders_in(const fs::path& parent, std::vector<std::string>& out) {
    std::error_code error;
    std::vector<std::string> found;
    for (fs::directory_iterator at{parent, error}, end; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (at->is_directory(ignored)) found.push_back(at->path().string());
    }
    std::sort(found.begin(), found.end());
    out.insert(out.end(), found.begin(), found.end());
}

}  // namespace

PartsSearch parts_search(const std::string& option, const Environment& environment) {
    PartsSearch search{.option = option, .folders = {}, .hub_cache = environment.hub_cache};
    if (!environment.pretrained.empty()) search.folders.push_back(environment.pretrained);
    add_folders_in(PACELINE_PRETRAINED_FOLDER, search.folders);
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (!error) {
        add_folders_in(program.parent_path().parent_path() / "share" / "paceline" / "pretrained",
                       search.folders);
    }
    return search;
}

}  // namespace paceline
