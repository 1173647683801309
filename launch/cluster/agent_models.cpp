#include "launch/cluster/agent_models.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <system_error>
#include <utility>

#include "launch/placement/stage_assignment.hpp"
#include "model/weights/gguf/gguf_shards.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

bool is_below(const fs::path& folder, const fs::path& path) {
    const auto [end, at] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
    return end == folder.end() && at != path.end();
}

/// A link that leads out of the folder, among the files that are read with `found`: those of a
/// folder, or the other shards of a split model.
std::optional<fs::path> find_way_out(const fs::path& root, const fs::path& found) {
    const auto leads_out = [&root](const fs::path& path) {
        std::error_code error;
        const fs::path there = fs::weakly_canonical(path, error);
        return error || !is_below(root, there);
    };
    std::error_code error;
    fs::directory_iterator entry{found, error};
    for (; !error && entry != fs::directory_iterator{}; entry.increment(error)) {
        if (leads_out(entry->path())) return entry->path();
    }
    const auto shard = parse_shard_name(found.string());
    const int count = shard ? std::min(shard->count, kGgufShardsMax) : 0;
    for (int number = 1; number <= count; ++number) {
        if (leads_out(shard->path(number))) return fs::path{shard->path(number)};
    }
    return std::nullopt;
}

Result<std::string> checked(const fs::path& root, const fs::path& found) {
    const std::optional<fs::path> out = find_way_out(root, found);
    if (!out) return found.string();
    return Error{Errc::BadFile,
                 fmt::format("'{}' is a link that leads out of --models {}: copy what it points to "
                             "there, or name the folder that has both",
                             out->string(), root.string())};
}

}  // namespace

Result<std::string> path_below(const std::string& folder, const std::string& path) {
    if (path.empty()) return std::string{};
    std::error_code error;
    const fs::path root = fs::canonical(folder, error);
    if (error) return Error{Errc::BadFile, "--models " + folder + ": " + error.message()};
    // What links point to counts, so none leads out of the folder.
    const fs::path there = fs::canonical(path, error);
    if (!error && is_below(root, there)) return checked(root, there);
    fs::path name = fs::path{path}.lexically_normal();
    if (!name.has_filename()) name = name.parent_path();
    const fs::path by_name = fs::canonical(root / name.filename(), error);
    if (!error && is_below(root, by_name)) return checked(root, by_name);
    return Error{
        Errc::BadFile,
        fmt::format("'{}' does not lie below --models {}, and there is no '{}' in it: copy "
                    "it there, or name the folder that has it",
                    path, folder, name.filename().string())};
}

CheckAssignment assignment_check(std::string folder, std::vector<int> cores) {
    return [folder = std::move(folder), cores = std::move(cores)](
               const std::vector<std::byte>& payload) -> Result<std::vector<std::byte>> {
        Result<StageAssignment> decoded = decode_assignment(payload);
        if (!decoded) return decoded.error();
        StageAssignment assignment = std::move(decoded).value();
        for (std::string* path :
             {&assignment.model.model, &assignment.model.lora, &assignment.parts.draft,
              &assignment.parts.heads, &assignment.parts.ahead, &assignment.parts.adapter,
              &assignment.parts.probe, &assignment.draft.datastore}) {
            Result<std::string> below = path_below(folder, *path);
            if (!below) return below.error();
            *path = std::move(below).value();
        }
        // Caches of the conductor's machine, and files that a stage would write.
        assignment.model.copy.clear();
        assignment.parts.draft_copy.clear();
        assignment.draft.search.state.clear();
        if (assignment.self_draft) assignment.self_draft->search.state.clear();
        for (int& core : assignment.cores)
            core = cores[static_cast<std::size_t>(core) % cores.size()];
        assignment.threads =
            std::min(assignment.threads, static_cast<std::int32_t>(assignment.cores.size()));
        return encode(std::move(assignment));
    };
}

}  // namespace paceline
